//! The steps from Kubernetes' Go modules to container images, and to the partition that carries them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_image::layout::{self, Layout};
use corten_image::sbom;
use corten_image::{Release, checksums, output, provenance};
use corten_rootfs::images::{self, Image, Images};
use corten_rootfs::manifest::{Content, Source};
use corten_rootfs::squashfs::{self, Effort};
use corten_rootfs::tree::{self, Kind, Node, Sources, Tree};
use corten_rootfs::{check, go, kubernetes};
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Remedy as _, Result};
use corten_steps::file_name;
use corten_steps::recipe::{Handle, Recipe};
use corten_steps::report::Reporter;
use corten_steps::toolchain::Locked;

use super::context::Context;
use super::foundation::{Foundation, foundation};
use super::programs::Programs;
use super::steps::Handles;
use super::{Finished, origin, place};
use crate::components::{self, Part};
use crate::notices::{self, Notices};
use crate::output::Output;

/// The cache in the output of the step `imagecache`.
pub const CACHE: &str = "imagecache.squashfs";
/// The path of the bill of materials in an image.
const BILL: &str = "sbom.spdx.json";
/// The path of the licence texts in an image.
const TEXTS: &str = "licences.txt";

/// Builds the container images alone, without the node. Each image holds its own bill of materials
/// and the licence texts of its components.
pub fn build(context: &Context) -> Result<Finished> {
    let options = &context.options;
    let mut recipe = Recipe::default();
    let (tools, archive) = alone(&mut recipe, context)?;
    let reporter = Reporter::new(options.format, recipe.steps().len());
    let built = recipe.run(&options.cache, &reporter)?;
    fs::create_dir_all(&options.out).or_fail(
        format!("creating {}", options.out.display()),
        "set --out to a writable directory",
    )?;
    let stem = format!("{}{}", context.release.stem(), Output::Images.suffix());
    let archived = options.out.join(&stem);
    place::copy(&built.dir(&archive).join(&stem), &archived)?;
    let origin = options.out.join(format!("{stem}.provenance.json"));
    let provenance = origin::of(context, std::slice::from_ref(&archived))?;
    place::whole(&origin, |file| {
        provenance::write(file, &context.release, &provenance)
    })?;
    let sums = options.out.join(format!("{stem}.SHA256SUMS"));
    let files = vec![archived, origin];
    place::whole(&sums, |file| checksums::write(file, &files))?;
    for file in files.iter().chain([&sums]) {
        reporter.output(file);
    }
    Ok(Finished {
        files: files.into_iter().take(1).collect(),
        tools: built.dir(&tools).to_owned(),
    })
}

/// Adds the steps that the output `images` needs without a node. Returns the image tools and the
/// archive.
pub fn alone<'a>(recipe: &mut Recipe<'a>, context: &'a Context) -> Result<(Handle, Handle)> {
    let Foundation {
        programs,
        go_tools,
        tools,
    } = foundation(recipe, context);
    let layout = layout(recipe, context, &programs, &go_tools)?;
    Ok((tools, archive(recipe, context, &layout)))
}

/// Adds every step of the images to the steps of a node.
pub fn every<'a>(recipe: &mut Recipe<'a>, context: &'a Context, handles: &Handles) -> Result<()> {
    let listed = &handles.files.bill.steps;
    let layout = layout(recipe, context, &listed.programs, &listed.go_tools)?;
    archive(recipe, context, &layout);
    cache(recipe, &layout, &handles.tools);
    Ok(())
}

/// Adds the steps that end in an OCI layout of every image.
pub fn layout<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    compilers: &Programs,
    go_tools: &Handle,
) -> Result<Handle> {
    let list = Images::read(&context.options.source)?;
    let programs = programs(recipe, context, (compilers, go_tools), &list)?;
    let (compilers, go_tools) = (compilers.clone(), go_tools.clone());
    let debian = context.arch().names().debian;
    let source = &context.options.source;
    let key = KeyBuilder::new("container-images").step(&programs.key);
    let key = images::key(source, key)?.add("arch", context.arch().to_string());
    let mut key = notices::key(source, &context.lock, context.arch(), key)?;
    for purpose in ["rootfs", images::PURPOSE] {
        for package in context.lock.packages(purpose, debian) {
            key = key.add("deb", &package.sha256);
        }
    }
    Ok(recipe.add(
        "container-images",
        key.finish(),
        move |built, out, scratch| {
            let module = (&go_tools, kubernetes::DIRECTORY);
            compilers.with_go(context, built, module, |inputs| {
                kubernetes::fetch(inputs, context.options.offline)
            })?;
            let files = Files {
                programs: built.dir(&programs),
                go: &go::go_program(built.dir(&go_tools))?,
                packages: &packages(context)?,
            };
            let parts = list.images.iter().map(|image| files.parts(context, image));
            let parts: Vec<Vec<Part>> = parts.collect::<Result<_>>()?;
            let notices = Notices::read(&context.files(scratch), parts.iter().flatten())?;
            let mut layout = Layout::create(out, context.arch())?;
            for (image, parts) in list.images.iter().zip(parts) {
                let scratch = scratch.join(&image.name);
                let about = about(context, image, parts, &notices)?;
                let tree = files
                    .tree(context, image, &about, &scratch)
                    .with_context(|| format!("assembling the image {}", image.name))?;
                let name = format!("{}/{}:{}", list.registry, image.name, image.version);
                layout.add(&name, &image.run(), &image.annotations(), &tree)?;
            }
            layout.finish()
        },
    ))
}

/// Adds the output `images`: the layout as one file.
pub fn archive<'a>(recipe: &mut Recipe<'a>, context: &'a Context, layout: &Handle) -> Handle {
    let key = KeyBuilder::new("images")
        .add("recipe", images::RECIPE)
        .add("version", &context.release.version)
        .step(&layout.key)
        .finish();
    let layout = layout.clone();
    recipe.add("images", key, move |built, out, _| {
        output::create(&out.join(context.file(Output::Images)), |file| {
            layout::archive(built.dir(&layout), file)
        })
    })
}

/// Adds the file system of the partition IMAGECACHE.
pub fn cache<'a>(recipe: &mut Recipe<'a>, layout: &Handle, tools: &Handle) -> Handle {
    // The programs take half a gigabyte: the thorough level costs minutes and saves a tenth.
    let effort = Effort::Quick;
    let key = KeyBuilder::new("imagecache")
        .add("recipe", images::RECIPE)
        .add("squashfs", effort.parameters())
        .step(&layout.key)
        .step(&tools.key)
        .finish();
    let (layout, tools) = (layout.clone(), tools.clone());
    recipe.add("imagecache", key, move |built, out, scratch| {
        let tree = layout::cache(built.dir(&layout))?;
        let tools = Locked::new(built.dir(&tools));
        squashfs::write(&tree, effort, &tools, scratch, &out.join(CACHE))
    })
}

/// Kubernetes, etcd, CoreDNS, flannel and our own small programs.
fn programs<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    (compilers, go_tools): (&Programs, &Handle),
    list: &Images,
) -> Result<Handle> {
    let pause = list.version("pause")?.to_owned();
    let module = context.source(kubernetes::DIRECTORY);
    let (compilers, go_tools) = (compilers.clone(), go_tools.clone());
    // No program contains C code, so the key covers only Go's compiler.
    let key = KeyBuilder::new("kubernetes")
        .add("pause", &pause)
        .step(&go_tools.key);
    let key = kubernetes::key(&module, context.arch().names().go, key)?.finish();
    Ok(recipe.add("kubernetes", key, move |built, out, scratch| {
        let module = (&go_tools, kubernetes::DIRECTORY);
        compilers.with_go(context, built, module, |inputs| {
            kubernetes::fetch(inputs, context.options.offline)?;
            kubernetes::build(inputs, out, scratch, &pause, context.options.jobs)
        })
    }))
}

/// The locked packages that images take files from.
fn packages(context: &Context) -> Result<BTreeMap<String, PathBuf>> {
    let mut packages = BTreeMap::new();
    for purpose in ["rootfs", images::PURPOSE] {
        for package in context
            .lock
            .packages(purpose, context.arch().names().debian)
        {
            packages.insert(package.name.clone(), context.fetcher.package(package)?);
        }
    }
    Ok(packages)
}

/// What the images are made of.
struct Files<'a> {
    /// The programs in Go.
    programs: &'a Path,
    /// Go's own program, which reads the modules in the others.
    go: &'a Path,
    /// The files of the packages, by name.
    packages: &'a BTreeMap<String, PathBuf>,
}

impl Files<'_> {
    /// The components of an image.
    fn parts(&self, context: &Context, image: &Image) -> Result<Vec<Part>> {
        let manifest = image.manifest(&context.options.source, context.arch())?;
        let lock = &context.lock;
        let mut found = components::of_packages(lock, context.arch(), |name| {
            manifest.entries().any(|entry| match &entry.content {
                Content::File(Source::Deb { package, .. }) => package == name,
                _ => false,
            })
        });
        let modules = go::modules(&context.go_cache());
        for program in &image.programs {
            let program = self.programs.join(file_name(Path::new(program)));
            found.extend(components::go_modules(lock, self.go, &program, &modules)?);
        }
        Ok(found)
    }

    /// The files of an image, checked by the rules of the root file system, and those `about` it.
    fn tree(
        &self,
        context: &Context,
        image: &Image,
        about: &[(&str, String)],
        scratch: &Path,
    ) -> Result<Tree> {
        fs::create_dir_all(scratch).with_context(|| format!("creating {}", scratch.display()))?;
        let manifest = image.manifest(&context.options.source, context.arch())?;
        let nothing = Path::new("");
        let sources = Sources {
            repo: &context.options.source,
            packages: self.packages,
            go: self.programs,
            cargo: nothing,
            c: nothing,
            modules: None,
            arch: context.arch(),
            version: &image.version,
            bill: "",
            licences: "",
        };
        let mut tree = tree::assemble(&manifest, &sources, scratch)?;
        check::check(&tree, context.arch(), &images::executables(&tree))?;
        for (path, content) in about {
            let file = scratch.join(path);
            fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
            let node = Node {
                kind: Kind::File(file),
                mode: 0o644,
                uid: 0,
                gid: 0,
            };
            tree.insert((*path).to_owned(), node)?;
        }
        Ok(tree)
    }
}

/// The bill of materials of an image, with the image's version and no date, and its licence texts.
fn about(
    context: &Context,
    image: &Image,
    parts: Vec<Part>,
    notices: &Notices,
) -> Result<[(&'static str, String); 2]> {
    let release = Release {
        version: format!("{}-{}", image.name, image.version),
        arch: context.arch(),
        epoch: 0,
    };
    let title = format!("Licences of the image {} {}", image.name, image.version);
    let texts = notices.document(&title, &parts);
    let components = notices::declared(parts, &notices.licences());
    Ok([
        (BILL, sbom::document(&release, &components)?),
        (TEXTS, texts),
    ])
}
