//! The recipe from the unified kernel image to every output format.

use std::path::Path;

use corten_image::fat::Content;
use corten_image::output::{checked, readable};
use corten_image::{gcp, installer, iso, ova, pxe, qcow2, raw, vhd, vmdk};
use corten_kernel::build::{DEVICE_TREES, VMLINUZ};
use corten_steps::cache::KeyBuilder;
use corten_steps::error::Result;
use corten_steps::file_name;
use corten_steps::recipe::{Handle, Recipe};
use corten_steps::toolchain::Locked;

use super::context::Context;
use super::images;
use super::rootfs::{self, ROOTFS};
use super::signed::SD_BOOT;
use super::steps::{Handles, INITRAMFS, command_line};
use crate::output::Output;
use crate::overlay::Overlay;

/// Must be raised when a change of a format's writer changes its output for the same inputs.
const REVISION: &str = "1";

/// Adds the requested outputs, and the disk that some of them wrap. Returns each output with its
/// step.
pub fn add<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    handles: &Handles,
) -> Result<Vec<(Output, Handle)>> {
    let asked = &context.options.profile.output;
    let with_images = context.options.profile.with_images;
    let layout = match context.options.profile.makes_images() {
        true => Some(images::layout(
            recipe,
            context,
            &handles.files.bill.steps.programs,
            &handles.files.bill.steps.go_tools,
        )?),
        false => None,
    };
    let cache = layout
        .as_ref()
        .filter(|_| with_images || asked.contains(&Output::ImageCache))
        .map(|layout| images::cache(recipe, layout, &handles.tools));
    let disk = match asked.iter().any(|output| output.holds_disk()) {
        true => {
            let inside = cache.clone().filter(|_| with_images);
            Some(disk(recipe, context, handles, inside)?)
        }
        false => None,
    };
    let mut outputs = Vec::new();
    for output in Output::ALL
        .into_iter()
        .filter(|output| asked.contains(output))
    {
        let handle = match (output, &disk) {
            (Output::Uki, _) => handles.uki.clone(),
            (Output::Raw, Some(disk)) => disk.clone(),
            (_, Some(disk)) if output.holds_disk() => wrapped(recipe, context, output, disk),
            (Output::Rootfs, _) => copied(recipe, context, output, (&handles.rootfs, ROOTFS)),
            (Output::Container, _) => rootfs::container(recipe, context, &handles.files)?,
            _ => match (output, &layout, &cache) {
                (Output::Images, Some(layout), _) => images::archive(recipe, context, layout),
                (Output::ImageCache, _, Some(cache)) => {
                    copied(recipe, context, output, (cache, images::CACHE))
                }
                _ => plain(recipe, context, output, handles)?,
            },
        };
        outputs.push((output, handle));
    }
    Ok(outputs)
}

/// A format that is a step's file without a change.
fn copied<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    output: Output,
    (step, file): (&Handle, &'static str),
) -> Handle {
    let key = key(context, output).step(&step.key).finish();
    let step = step.clone();
    recipe.add(output.name(), key, move |built, out, _| {
        let (from, to) = (built.dir(&step).join(file), out.join(context.file(output)));
        checked(&to, || {
            std::fs::copy(&from, &to)?;
            readable(&to)
        })
    })
}

/// The part of the key that all outputs share.
fn key(context: &Context, output: Output) -> KeyBuilder {
    KeyBuilder::new(output.name())
        .add("revision", REVISION)
        .add("version", &context.release.version)
        .add("arch", context.release.arch.to_string())
        .add("epoch", context.release.epoch.to_string())
}

/// The raw disk image.
fn disk<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    handles: &Handles,
    cache: Option<Handle>,
) -> Result<Handle> {
    let meta = context.options.profile.meta_values()?;
    let key = key(context, Output::Raw)
        .add("meta", format!("{meta:?}"))
        .step(&handles.uki.key)
        .step(&handles.signed.key);
    let key = match &cache {
        Some(cache) => key.step(&cache.key),
        None => key,
    };
    let key = context.overlay.key(key)?.finish();
    let uki = handles.uki.clone();
    let (kernel, signed) = (handles.kernel.clone(), handles.signed.clone());
    Ok(recipe.add("raw", key, move |built, out, _| {
        let overlay = &context.overlay;
        let trees = built.dir(&kernel).join(DEVICE_TREES);
        let board = board(overlay, &trees);
        let images = cache
            .as_ref()
            .map(|cache| built.dir(cache).join(images::CACHE));
        let disk = raw::Disk {
            uki: &built.dir(&uki).join(context.file(Output::Uki)),
            sd_boot: &built.dir(&signed).join(SD_BOOT),
            enrol: built.dir(&signed),
            bios: context.arch().names().grub.is_some(),
            meta: &meta,
            board: &board,
            images: images.as_deref(),
            size: None,
        };
        raw::build(
            &out.join(context.file(Output::Raw)),
            &context.release,
            &disk,
        )
    }))
}

/// The overlay's files and the kernel's device trees. A board's firmware finds device trees by
/// their file names.
fn board(overlay: &Overlay, trees: &Path) -> raw::Board {
    let trees = overlay.device_trees.iter().map(|tree| trees.join(tree));
    let trees = trees.map(|tree| (file_name(&tree), tree));
    let esp = overlay.esp.clone().into_iter().chain(trees);
    raw::Board {
        esp: esp
            .map(|(path, file)| (path, Content::File(file)))
            .collect(),
        raw: overlay.raw.clone(),
        start: overlay.partition_offset,
    }
}

/// A format that wraps the raw disk image. An OVA holds the VMDK, so that its step makes both.
fn wrapped<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    output: Output,
    disk: &Handle,
) -> Handle {
    let key = key(context, output).step(&disk.key).finish();
    let disk = disk.clone();
    recipe.add(output.name(), key, move |built, out, scratch| {
        let release = &context.release;
        let raw = built.dir(&disk).join(context.file(Output::Raw));
        let out = out.join(context.file(output));
        match output {
            Output::Qcow2 => qcow2::build(&out, &raw),
            Output::Vhd => vhd::build(&out, release, &raw),
            Output::Vmdk => vmdk::build(&out, release, &raw),
            Output::Gcp => gcp::build(&out, release, &raw),
            _ => {
                let vmdk = scratch.join(context.file(Output::Vmdk));
                vmdk::build(&vmdk, release, &raw)?;
                ova::build(&out, release, &raw, &vmdk)
            }
        }
    })
}

/// A format made from the unified kernel image or its parts.
fn plain<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    output: Output,
    handles: &Handles,
) -> Result<Handle> {
    let cmdline = command_line(context)?;
    let parts = [
        &handles.uki,
        &handles.boot,
        &handles.kernel,
        &handles.signed,
        &handles.initramfs,
        &handles.tools,
    ];
    let key = parts
        .into_iter()
        .fold(
            key(context, output).add("cmdline", &cmdline),
            |key, step| key.step(&step.key),
        )
        .finish();
    let parts = parts.map(Clone::clone);
    Ok(recipe.add(output.name(), key, move |built, out, scratch| {
        let release = &context.release;
        let [uki, boot, kernel, signed, initramfs, tools] =
            parts.each_ref().map(|step| built.dir(step));
        let (uki, out) = (
            uki.join(context.file(Output::Uki)),
            out.join(context.file(output)),
        );
        let sd_boot = signed.join(SD_BOOT);
        match output {
            Output::Iso => {
                let xorriso = Locked::new(tools).script("usr/bin/xorriso", scratch)?;
                let work = scratch.join("iso");
                std::fs::create_dir(&work)?;
                let (uki, sd_boot) = (&uki, &sd_boot);
                let grub = context.grub(boot);
                let iso = iso::Iso {
                    uki,
                    sd_boot,
                    enrol: signed,
                    grub: grub.as_deref(),
                    xorriso: &xorriso,
                    work: &work,
                };
                iso::build(&out, release, &iso)
            }
            Output::Pxe => {
                let vmlinuz = kernel.join(VMLINUZ);
                let initramfs = initramfs.join(INITRAMFS);
                let pxe = pxe::Pxe {
                    vmlinuz: &vmlinuz,
                    initramfs: &initramfs,
                    cmdline: &cmdline,
                };
                pxe::build(&out, release, &pxe)
            }
            _ => {
                let (uki, sd_boot) = (&uki, &sd_boot);
                let parts = installer::Installer { uki, sd_boot };
                installer::build(&out, release, &parts)
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use corten_image::testing::{Scratch, development, host, release, text};

    use super::*;
    use crate::overlay::tests::write_firmware;
    use crate::profile::Profile;

    /// Builds the disk of every board of the repository from stand-ins. It looks for the files
    /// where the board's loader looks: in the root of the EFI partition.
    #[test]
    fn every_boards_device_trees_and_firmware_are_on_its_efi_partition() {
        let scratch = Scratch::new();
        let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards");
        let entries = std::fs::read_dir(boards).unwrap();
        let profiles = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let mut on_some_board = Vec::new();
        for path in profiles {
            let profile = Profile::read(&path).unwrap();
            let arch = profile.arch;
            let trees = scratch.path("trees");
            for tree in arch.names().device_trees {
                scratch.file(&format!("trees/{tree}"), tree.as_bytes());
            }
            let (dir, firmware) = (profile.overlay.unwrap(), scratch.path("firmware"));
            write_firmware(&dir, &firmware);
            let overlay = Overlay::read(&dir, Some(&firmware), arch).unwrap();
            let board = board(&overlay, &trees);
            let any = scratch.file("any", b"any");
            let disk = raw::Disk {
                uki: &any,
                sd_boot: &any,
                enrol: &development(),
                bios: false,
                meta: &corten_meta::Values::new(),
                board: &board,
                images: None,
                size: None,
            };
            let image = scratch.path("board.raw");
            raw::build(&image, &corten_image::Release { arch, ..release() }, &disk).unwrap();
            let esp = format!("{}@@1M", text(&image));
            let read = |path: &str| host("mtype", &["-i", &esp, &format!("::{path}")]);
            assert!(!overlay.device_trees.is_empty());
            for tree in &overlay.device_trees {
                assert_eq!(read(&file_name(Path::new(tree))), *tree);
            }
            for (path, source) in &overlay.esp {
                assert_eq!(read(path), std::fs::read_to_string(source).unwrap());
            }
            on_some_board.extend(overlay.device_trees);
        }
        // Every device tree that the kernel's step compiles belongs to some board.
        let compiled = corten_steps::arch::Arch::ALL
            .map(|arch| arch.names().device_trees)
            .concat();
        for tree in compiled {
            assert!(on_some_board.iter().any(|used| used == tree), "{tree}");
        }
    }
}
