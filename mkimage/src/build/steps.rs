//! The recipe up to the unified kernel image, in execution order.

use std::fs;

use corten_image::initramfs::{self, Initramfs};
use corten_image::uki::{self, Uki};
use corten_kernel::{CONFIG_DIR, build, cli, parameters};
use corten_rootfs::tree;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Result};
use corten_steps::recipe::{Handle, Recipe};
use corten_steps::toolchain::Locked;

use super::bill::{self, Bill};
use super::context::Context;
use super::foundation::{Foundation, foundation, packages};
use super::programs;
use super::rootfs::{self, Files, ROOTFS};
use super::{layers, signed};
use crate::output::Output;
use crate::platform::Platform;

/// The initramfs in the output of the step `initramfs`.
pub const INITRAMFS: &str = "initramfs";

/// The steps that later steps and the caller need.
#[derive(Debug)]
pub struct Handles {
    /// The files of a node.
    pub files: Files,
    /// Image tools: xorriso, mksquashfs, GRUB's.
    pub tools: Handle,
    /// Boot loaders as data: systemd-boot and GRUB's modules.
    pub boot: Handle,
    /// `vmlinuz` and modules.
    pub kernel: Handle,
    /// The signed boot loader, and the updates of the firmware's keys.
    pub signed: Handle,
    /// The root file system.
    pub rootfs: Handle,
    /// The initramfs.
    pub initramfs: Handle,
    /// The unified kernel image.
    pub uki: Handle,
}

/// Adds every step up to the unified kernel image.
pub fn add<'a>(recipe: &mut Recipe<'a>, context: &'a Context) -> Result<Handles> {
    let Foundation {
        programs,
        go_tools,
        tools,
    } = foundation(recipe, context);
    let boot = packages(recipe, context, "boot", &["boot"], context.arch());
    let go = programs::go_programs(recipe, context, &programs, &go_tools)?;
    let daemons = programs::daemons(recipe, context, &programs)?;
    let kernel = kernel(recipe, context)?;
    let libkmod = programs::libkmod(recipe, context, &programs)?;
    let listed = bill::Steps {
        programs,
        go_tools,
        go,
    };
    let bill = Bill::add(recipe, context, listed)?;
    let files = Files {
        bill,
        kernel: kernel.clone(),
        daemons: daemons.clone(),
        libkmod,
    };
    let rootfs = rootfs::squashfs(recipe, context, &files, &tools)?;
    let initramfs = initramfs(recipe, context, [&daemons, &rootfs, &tools, &kernel])?;
    let signed = signed::add(recipe, context, &boot)?;
    let uki = uki(recipe, context, [&kernel, &initramfs, &boot])?;
    Ok(Handles {
        files,
        tools,
        boot,
        kernel,
        signed,
        rootfs,
        initramfs,
        uki,
    })
}

/// Builds `vmlinuz` and signed modules from kernel source, fragments and keys.
fn kernel<'a>(recipe: &mut Recipe<'a>, context: &'a Context) -> Result<Handle> {
    let options = &context.options;
    let paths = cli::Paths {
        config_dir: context.source(CONFIG_DIR),
        lock: context.lock.clone(),
        cache: options.cache.clone(),
        fetcher: options.fetcher(),
        kernel_source: options.kernel_source.clone(),
    };
    let keys = options.keys.as_deref();
    let inputs = cli::inputs(&paths, context.arch(), keys, Some(options.jobs))?;
    let key = inputs.key()?;
    Ok(recipe.add("kernel", key, move |_, out, _| {
        let source = cli::source(&paths)?;
        let compiler = cli::compiler(&paths)?;
        build::build(&inputs, &source, &compiler, &paths.cache, out)
    }))
}

/// Packs `init`, the squashfs and the layers over it.
fn initramfs<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    [daemons, rootfs, tools, kernel]: [&Handle; 4],
) -> Result<Handle> {
    let profile = &context.options.profile;
    let signers = signed::accepted(context)?;
    let key = KeyBuilder::new("initramfs")
        .add("revision", "5")
        .add("epoch", context.release.epoch.to_string())
        .add("signers", &signers)
        .step(&daemons.key)
        .step(&rootfs.key)
        .step(&tools.key);
    let key = layers::key(profile, key)?;
    let (daemons, rootfs) = (daemons.clone(), rootfs.clone());
    let (tools, kernel) = (tools.clone(), kernel.clone());
    Ok(
        recipe.add("initramfs", key.finish(), move |built, out, scratch| {
            let packer = layers::Packer {
                arch: context.arch(),
                tools: &Locked::new(built.dir(&tools)),
                kernel: built.dir(&kernel),
                scratch,
            };
            let parts = Initramfs {
                init: &built.dir(&daemons).join("init"),
                rootfs: &built.dir(&rootfs).join(ROOTFS),
                extensions: &packer.pack(profile)?,
                signers: &signers,
            };
            initramfs::build(&out.join(INITRAMFS), &context.release, &parts)
        }),
    )
}

/// Joins kernel, initramfs and command line into one EFI program.
fn uki<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    [kernel, initramfs, boot]: [&Handle; 3],
) -> Result<Handle> {
    let cmdline = command_line(context)?;
    let key = KeyBuilder::new("uki")
        .add("grub", context.arch().names().grub.unwrap_or_default())
        .add("cmdline", &cmdline)
        .add("version", &context.release.version)
        .add("epoch", context.release.epoch.to_string());
    let key = signed::signing(key, &context.options.key_set())?
        .step(&kernel.key)
        .step(&initramfs.key)
        .step(&boot.key)
        .finish();
    let (kernel, initramfs, boot) = (kernel.clone(), initramfs.clone(), boot.clone());
    Ok(recipe.add("uki", key, move |built, out, _| {
        let names = context.arch().names();
        let uname = fs::read_to_string(built.dir(&kernel).join(build::RELEASE))?;
        let grub = context.grub(built.dir(&boot));
        let parts = Uki {
            stub: &built
                .dir(&boot)
                .join("usr/lib/systemd/boot/efi")
                .join(names.sd_stub),
            // Unsigned, because a signed kernel starts with any initramfs and any command line.
            vmlinuz: &built.dir(&kernel).join(build::VMLINUZ),
            initramfs: &built.dir(&initramfs).join(INITRAMFS),
            cmdline: &cmdline,
            os_release: &tree::os_release(&context.release.version),
            uname: &uname,
            grub: grub.as_deref(),
            signer: &signed::signer(context)?,
        };
        uki::build(
            &out.join(context.file(Output::Uki)),
            &context.release,
            &parts,
        )
    }))
}

/// The image's kernel parameters, then the overlay's and the profile's; a parameter the image protects is refused.
pub fn command_line(context: &Context) -> Result<String> {
    let config = context.source(CONFIG_DIR);
    let mut parameters = parameters::command_line(&config, context.arch())?;
    let platform = context.options.profile.platform.unwrap_or(Platform::METAL);
    parameters.extend(platform.arguments(context.arch()));
    if let Some(commit) = &context.commit {
        parameters.push(format!("corten.commit={commit}"));
    }
    // The kernel treats a dash as an underscore and drops quotes.
    let name = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default();
        name.replace('-', "_").replace('"', "")
    };
    let protected: Vec<String> = parameters.iter().map(|p| name(p)).collect();
    let profile = context.options.profile.kernel_arguments.iter();
    for own in context.overlay.kernel_arguments.iter().chain(profile) {
        if own.contains(char::is_whitespace) || own.is_empty() {
            return Err(Failure::new(
                format!("kernel argument {own:?} is not one parameter"),
                "give one parameter at a time (--kernel-argument, or kernel-arguments of profile and overlay)",
            ));
        }
        if name(own) != "console" && protected.contains(&name(own)) {
            return Err(Failure::new(
                format!("kernel argument {own:?} would change a hardening parameter"),
                "remove it; kernel-config/cmdline explains each parameter",
            ));
        }
        parameters.push(own.clone());
    }
    Ok(parameters.join(" "))
}
