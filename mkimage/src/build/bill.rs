//! The components of an image, collected from the steps that build it, and the step that reads their licences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_image::Release;
use corten_image::sbom::{self, Component};
use corten_kernel::CONFIG_DIR;
use corten_kernel::source::SourceLock;
use corten_rootfs::{go, libkmod, rust};
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Remedy as _, Result};
use corten_steps::lock::SOURCE;
use corten_steps::recipe::{Built, Handle, Recipe};

use super::context::Context;
use super::programs::Programs;
use crate::components::{self, Part};
use crate::notices::{self, Notices};

/// The licences by package URL, in the output of the step `licences`.
const LICENCES: &str = "licences.json";
/// The texts, in the output of the step `licences`.
const TEXTS: &str = "licences.txt";

/// The steps whose outputs list the components.
#[derive(Debug, Clone)]
pub struct Steps {
    /// The compilers.
    pub programs: Programs,
    /// Go's own tools.
    pub go_tools: Handle,
    /// The Go programs.
    pub go: Handle,
}

/// The steps of the components, and of their licences.
#[derive(Debug, Clone)]
pub struct Bill {
    /// The steps that list the components.
    pub steps: Steps,
    /// The licences and their texts.
    pub licences: Handle,
}

impl Steps {
    /// Every component of the image.
    fn parts(&self, context: &Context, built: &Built) -> Result<Vec<Part>> {
        let (source, arch) = (&context.options.source, context.arch());
        let mut found = components::debian(&context.lock, arch);
        found.push(components::kernel(source)?);
        let rustc = self.programs.compilers(context, built)?.rust();
        found.extend(components::crates(source, arch, &rustc)?);
        let go = go::go_program(built.dir(&self.go_tools))?;
        let modules = go::modules(&context.go_cache());
        let programs = built.dir(&self.go);
        found.extend(components::go_modules(
            &context.lock,
            &go,
            programs,
            &modules,
        )?);
        Ok(found)
    }

    /// Adds the components to a step's key.
    fn key(&self, context: &Context, key: KeyBuilder) -> Result<KeyBuilder> {
        let source = &context.options.source;
        let kernel = SourceLock::read(&source.join(CONFIG_DIR))?.kernel;
        let key = key
            .add("kernel", kernel.package().version)
            .step(&self.programs.toolchain.key)
            .step(&self.go_tools.key)
            .step(&self.go.key);
        let key = rust::linked_key(source, key)?;
        let debian = context.arch().names().debian;
        let packages = components::PURPOSES
            .into_iter()
            .flat_map(|purpose| context.lock.packages(purpose, debian));
        let sources = context.lock.packages(libkmod::PURPOSE, SOURCE);
        Ok(packages
            .chain(sources)
            .fold(key, |key, package| key.add("package", &package.sha256)))
    }
}

impl Bill {
    /// Adds the step that reads the licences of all components.
    pub fn add<'a>(recipe: &mut Recipe<'a>, context: &'a Context, steps: Steps) -> Result<Self> {
        let key = KeyBuilder::new("licences").add("arch", context.arch().to_string());
        let key = notices::key(&context.options.source, &context.lock, context.arch(), key)?;
        let key = steps.key(context, key)?.finish();
        let all = steps.clone();
        let licences = recipe.add("licences", key, move |built, out, scratch| {
            let module = (&all.go_tools, go::DIRECTORY);
            all.programs.with_go(context, built, module, |inputs| {
                inputs.fetch(context.options.offline)
            })?;
            let parts = all.parts(context, built)?;
            let notices = Notices::read(&context.files(scratch), &parts)?;
            let title = format!("Licences of the components of Corten ({})", context.arch());
            write(&out.join(TEXTS), &notices.document(&title, &parts))?;
            let licences = serde_json::to_string_pretty(&notices.licences())?;
            write(&out.join(LICENCES), &licences)
        });
        Ok(Self { steps, licences })
    }

    /// Every component of the image with its licence.
    pub fn components(&self, context: &Context, built: &Built) -> Result<Vec<Component>> {
        let licences = read(built.dir(&self.licences), LICENCES)?;
        let licences: BTreeMap<String, String> = serde_json::from_str(&licences)?;
        let parts = self.steps.parts(context, built)?;
        Ok(notices::declared(parts, &licences))
    }

    /// The bill of materials that the image itself contains. It has no date, so that the root file
    /// system stays the same across commits that do not touch it.
    pub fn in_image(&self, context: &Context, built: &Built) -> Result<String> {
        let release = Release {
            epoch: 0,
            ..context.release.clone()
        };
        sbom::document(&release, &self.components(context, built)?)
    }

    /// The licence texts that the image itself contains.
    pub fn texts(&self, built: &Built) -> Result<String> {
        read(built.dir(&self.licences), TEXTS)
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).or_fail(
        format!("writing {}", path.display()),
        "free disk space in CORTEN_CACHE",
    )
}

fn read(directory: &Path, name: &str) -> Result<String> {
    fs::read_to_string(directory.join(name))
        .with_context(|| format!("reading {name} of the step licences"))
}
