//! The files of a node, in two forms: a squashfs that machines start from, and a container image for Docker.

use std::fs;
use std::path::Path;

use corten_image::layout::{self, Layout};
use corten_image::output;
use corten_kernel::build::MODULES;
use corten_rootfs::images;
use corten_rootfs::manifest::Manifest;
use corten_rootfs::squashfs::{self as packed, Effort};
use corten_rootfs::tree::{self, Sources, Tree};
use corten_rootfs::{REVISION, check};
use corten_steps::cache::KeyBuilder;
use corten_steps::error::Result;
use corten_steps::recipe::{Built, Handle, Recipe};
use corten_steps::toolchain::Locked;
use serde_json::{Value, json};

use super::bill::Bill;
use super::context::Context;
use crate::output::Output;

/// The root file system in the output of the step `rootfs`.
pub const ROOTFS: &str = "rootfs.squashfs";
/// Name of the container image.
const IMAGE: &str = "images.corten.internal/corten";

/// The steps whose outputs are files of a node.
#[derive(Debug, Clone)]
pub struct Files {
    /// The components of the image.
    pub bill: Bill,
    /// `vmlinuz` and modules.
    pub kernel: Handle,
    /// The programs in Rust.
    pub daemons: Handle,
    /// The library that loads modules.
    pub libkmod: Handle,
}

impl Files {
    /// Adds the inputs of the file tree to a step's key.
    fn key(&self, context: &Context, key: KeyBuilder) -> Result<KeyBuilder> {
        let mut key = key
            .add("revision", REVISION)
            .add("version", &context.release.version)
            .file(&context.source("rootfs/manifest.toml"))?
            .file(&context.source("rootfs/executables.txt"))?
            .tree(&context.source("rootfs/etc"))?
            .file(&context.source("kernel-config/sysctl.conf"))?
            .file(&context.source(&format!("kernel-config/sysctl.{}.conf", context.arch())))?;
        let debian = context.arch().names().debian;
        for package in context.lock.packages("rootfs", debian) {
            key = key.add("deb", &package.sha256);
        }
        let steps = [
            &self.kernel,
            &self.bill.steps.go,
            &self.bill.licences,
            &self.daemons,
            &self.libkmod,
        ];
        Ok(steps
            .into_iter()
            .fold(key, |key, input| key.step(&input.key)))
    }

    /// Builds the file tree of the manifest, and checks it.
    fn tree(
        &self,
        context: &Context,
        built: &Built,
        scratch: &Path,
        modules: Option<&Path>,
    ) -> Result<Tree> {
        let manifest = Manifest::read(&context.source("rootfs/manifest.toml"), context.arch())?;
        let debian = context.arch().names().debian;
        let sources = Sources {
            repo: &context.options.source,
            packages: &context.fetch("rootfs", debian)?,
            go: built.dir(&self.bill.steps.go),
            cargo: built.dir(&self.daemons),
            c: built.dir(&self.libkmod),
            modules,
            arch: context.arch(),
            version: &context.release.version,
            bill: &self.bill.in_image(context, built)?,
            licences: &self.bill.texts(built)?,
        };
        let tree = tree::assemble(&manifest, &sources, &scratch.join("files"))?;
        let allowed = fs::read_to_string(context.source("rootfs/executables.txt"))?;
        check::check(&tree, context.arch(), &allowed)?;
        Ok(tree)
    }
}

/// Adds the step of the squashfs.
pub fn squashfs<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    files: &Files,
    tools: &Handle,
) -> Result<Handle> {
    let effort = match context.options.profile.quick {
        true => Effort::Quick,
        false => Effort::Full,
    };
    let key = KeyBuilder::new("rootfs")
        .add("squashfs", effort.parameters())
        .step(&tools.key);
    let key = files.key(context, key)?.finish();
    let (files, tools) = (files.clone(), tools.clone());
    Ok(recipe.add("rootfs", key, move |built, out, scratch| {
        let modules = built.dir(&files.kernel).join(MODULES).join("lib/modules");
        let tree = files.tree(context, built, scratch, Some(&modules))?;
        let tools = Locked::new(built.dir(&tools));
        packed::write(&tree, effort, &tools, scratch, &out.join(ROOTFS))
    }))
}

/// Adds the output `container`: an OCI archive that `docker load` reads, too. Modules are left out: the kernel is the
/// host's.
pub fn container<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    files: &Files,
) -> Result<Handle> {
    let version = &context.release.version;
    let labels = json!({
        "org.opencontainers.image.title": "corten",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    });
    let run = run(&labels);
    let key = KeyBuilder::new("container")
        .add("recipe", images::RECIPE)
        .add("run", run.to_string());
    let key = files.key(context, key)?.finish();
    let files = files.clone();
    Ok(recipe.add("container", key, move |built, out, scratch| {
        let tree = files.tree(context, built, scratch, None)?;
        let directory = scratch.join("layout");
        let mut layout = Layout::create(&directory, context.arch())?;
        layout.add(&format!("{IMAGE}:{version}"), &run, &labels, &tree)?;
        layout.finish_for_docker()?;
        output::create(&out.join(context.file(Output::Container)), |file| {
            layout::archive(&directory, file)
        })
    }))
}

/// OCI's `config` of the container: machined is its first process. Volumes keep the node's state while the container
/// exists.
fn run(labels: &Value) -> Value {
    json!({
        "Entrypoint": ["/usr/bin/init"],
        "Env": ["PATH=/usr/bin", "PLATFORM=container"],
        "WorkingDir": "/",
        "Volumes": {"/system/state": {}, "/var": {}},
        "ExposedPorts": {"6443/tcp": {}, "50000/tcp": {}, "50001/tcp": {}},
        "Labels": labels,
    })
}
