//! The steps that compile the image's programs, except the kernel.

use std::path::Path;

use corten_rootfs::{go, libkmod, rust};
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Result};
use corten_steps::lock::SOURCE;
use corten_steps::recipe::{Built, Handle, Recipe};
use corten_steps::toolchain::{Compilers, Trees};

use super::context::Context;

/// The steps whose outputs the compilers run from, as [`Trees`].
#[derive(Debug, Clone)]
pub struct Programs {
    /// The compilers.
    pub toolchain: Handle,
    /// The libraries and headers of the target.
    pub sysroot: Handle,
    /// The libraries and headers of the build machine.
    pub build_sysroot: Handle,
}

impl Programs {
    /// Adds them to the key of a compiling step.
    fn key(&self, key: KeyBuilder) -> KeyBuilder {
        key.step(&self.toolchain.key).step(&self.sysroot.key)
    }

    /// The compilers in the outputs of the steps; their scripts are in the cache, beside the steps.
    pub fn compilers(&self, context: &Context, built: &Built) -> Result<Compilers> {
        let key = self.toolchain.key.as_str();
        let trees = Trees {
            toolchain: built.dir(&self.toolchain),
            sysroot: built.dir(&self.sysroot),
            build_sysroot: built.dir(&self.build_sysroot),
        };
        let bin = context.options.cache.root().join("bin").join(key);
        Compilers::write(trees, context.arch(), &bin)
    }

    /// Calls `act` with the inputs of Go's programs in the repository's directory `module`.
    pub fn with_go(
        &self,
        context: &Context,
        built: &Built,
        (go_tools, module): (&Handle, &str),
        act: impl FnOnce(&go::Inputs<'_>) -> Result<()>,
    ) -> Result<()> {
        act(&go::Inputs {
            go: built.dir(go_tools),
            module: &context.source(module),
            compilers: &self.compilers(context, built)?,
            cache: &context.go_cache(),
        })
    }
}

/// containerd, its shim, runc and the CNI plugins.
pub fn go_programs<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    programs: &Programs,
    go_tools: &Handle,
) -> Result<Handle> {
    let key = programs.key(KeyBuilder::new("go")).step(&go_tools.key);
    let key = go::Inputs::key(&context.source(go::DIRECTORY), context.arch(), key)?.finish();
    let (programs, go_tools) = (programs.clone(), go_tools.clone());
    Ok(recipe.add("go", key, move |built, out, scratch| {
        programs.with_go(context, built, (&go_tools, go::DIRECTORY), |inputs| {
            inputs.fetch(context.options.offline)?;
            inputs.build(out, scratch)
        })
    }))
}

/// `init`, the multi-call binary and `udevd`.
pub fn daemons<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    programs: &Programs,
) -> Result<Handle> {
    let programs = programs.clone();
    let key_of = {
        let arch = context.arch().to_string();
        let profile = context.cargo_profile();
        let programs = programs.clone();
        move |sources: &Path| {
            let key = programs.key(KeyBuilder::new("daemons"));
            let key = rust::Inputs::key(sources, key)?;
            let key = key.add("arch", &arch).add("profile", profile.name());
            Ok::<_, anyhow::Error>(key.finish())
        }
    };
    let key = key_of(&context.options.source)?;
    Ok(recipe.add("daemons", key.clone(), move |built, out, _| {
        let compilers = programs.compilers(context, built)?;
        // One directory for each architecture: the compilers differ, so that cargo would compile what runs on this
        // machine again after a build of another architecture.
        let directory = format!("cargo-{}", context.arch());
        let inputs = rust::Inputs {
            workspace: &context.options.source,
            compilers: &compilers,
            profile: context.cargo_profile(),
            target: &context.options.cache.root().join(&directory),
        };
        inputs.fetch(context.options.offline)?;
        let _alone = context.options.cache.lock(&directory)?;
        if key_of(&inputs.copy()?)? != key {
            return Err(Failure::new(
                "the sources changed after the start of the build",
                "build again",
            ));
        }
        inputs.build(out)
    }))
}

/// libkmod, which `udevd` loads.
pub fn libkmod<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    programs: &Programs,
) -> Result<Handle> {
    let key = programs
        .key(KeyBuilder::new("libkmod"))
        .add("recipe", libkmod::RECIPE)
        .add("arch", context.arch().to_string());
    let key = context
        .lock
        .packages(libkmod::PURPOSE, SOURCE)
        .fold(key, |key, source| key.add("source", &source.sha256));
    let programs = programs.clone();
    Ok(
        recipe.add("libkmod", key.finish(), move |built, out, scratch| {
            let source = libkmod::source(&context.lock)?;
            let tarball = context.fetcher.package(source)?;
            let compilers = programs.compilers(context, built)?;
            libkmod::build(&tarball, context.arch(), &compilers, out, scratch)
        }),
    )
}
