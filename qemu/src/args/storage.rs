//! The part of the QEMU command line that makes the machine's drives.

use std::path::{Path, PathBuf};

use super::{Args, Layout, option_path};
use crate::disk::{Bus, Disk, DiskFormat, DiskMode, log_of};
use crate::machine::{Media, Volume};
use crate::{Machine, VmError};

/// The drives of a machine. Media come before disks, as an operator who inserts one expects. The network has index 0 and
/// comes before both.
pub(super) fn arguments(
    args: &mut Args,
    machine: &Machine,
    layout: &Layout,
) -> Result<(), VmError> {
    let mut overlays = layout.overlays.iter();
    for (number, media) in machine.media.iter().enumerate() {
        medium(args, machine, media, number)?;
    }
    for (number, disk) in machine.disks.iter().enumerate() {
        let overlay = if disk.mode == DiskMode::Overlay {
            overlays.next()
        } else {
            None
        };
        let id = format!("disk{number}");
        args.push("-drive", &drive(disk, overlay, &id)?);
        device(args, disk, &id, machine.media.len() + number + 1);
    }
    volume(args, machine)
}

fn medium(args: &mut Args, machine: &Machine, media: &Media, number: usize) -> Result<(), VmError> {
    let path = option_path(media.path())?;
    let id = format!("media{number}");
    let bootindex = number + 1;
    match media {
        Media::Cdrom(_) => {
            args.push(
                "-drive",
                &format!("if=none,id={id},media=cdrom,readonly=on,format=raw,file={path}"),
            );
            let row = machine.arch.row();
            if let Some(controller) = row.cd_controller {
                args.push("-device", controller);
            }
            args.push(
                "-device",
                &format!("{},drive={id},bootindex={bootindex}", row.cd_drive),
            );
        }
        Media::Usb(_) => {
            args.push(
                "-drive",
                &format!("if=none,id={id},snapshot=on,format=raw,file={path}"),
            );
            args.push("-device", &format!("qemu-xhci,id=usb{number}"));
            args.push(
                "-device",
                &format!(
                    "usb-storage,id=stick{number},bus=usb{number}.0,drive={id},removable=on,bootindex={bootindex}"
                ),
            );
        }
    }
    Ok(())
}

/// The disk's overlay if it has one, else the image itself, with its format.
fn source<'a>(disk: &'a Disk, overlay: Option<&'a PathBuf>) -> (&'a Path, &'static str) {
    match (disk.mode, overlay, disk.format) {
        (DiskMode::Overlay, Some(overlay), _) => (overlay, "qcow2"),
        (_, _, DiskFormat::Qcow2) => (&disk.path, "qcow2"),
        (_, _, DiskFormat::Raw) => (&disk.path, "raw"),
    }
}

/// The host's side of a disk.
fn drive(disk: &Disk, overlay: Option<&PathBuf>, id: &str) -> Result<String, VmError> {
    let (path, format) = source(disk, overlay);
    let path = option_path(path)?;
    if disk.mode == DiskMode::Logged {
        let log = log_of(&disk.path);
        let log = option_path(&log)?;
        return Ok(format!(
            "if=none,id={id},driver=blklogwrites,file.driver={format},file.file.driver=file,\
             file.file.filename={path},log.driver=file,log.filename={log},log-sector-size=512"
        ));
    }
    let snapshot = if disk.mode == DiskMode::Snapshot {
        "on"
    } else {
        "off"
    };
    // An overlay is gone with its machine: a flush to the host's disk would only delay the guest.
    let cache = match disk.mode {
        DiskMode::Overlay => ",cache=unsafe",
        _ => "",
    };
    Ok(format!(
        "if=none,id={id},snapshot={snapshot}{cache},format={format},file={path}"
    ))
}

/// The guest's side of a disk. A disk behind a controller has an identifier, for tests that unplug it.
fn device(args: &mut Args, disk: &Disk, id: &str, bootindex: usize) {
    // The log puts a header before a request: of as many parts as requests may have, it makes one too many. QEMU 7.2
    // counts a logged request to write zeros wrongly.
    let limits = match disk.mode {
        DiskMode::Logged => ",request-merging=off,write-zeroes=off,discard=off",
        _ => "",
    };
    let named = format!("drive={id},serial=corten-{id}");
    let controlled = |controller: &str, device: &str| {
        (
            Some(format!("{controller},id=bus-{id}")),
            format!("{device},id=device-{id},bus=bus-{id}.0,{named},bootindex={bootindex}"),
        )
    };
    let (controller, device) = match disk.bus {
        Bus::Virtio => (
            None,
            format!("virtio-blk-pci,{named},bootindex={bootindex}{limits}"),
        ),
        Bus::Nvme => (None, format!("nvme,{named},bootindex={bootindex}")),
        Bus::Sata => controlled("ich9-ahci", "ide-hd"),
        Bus::Usb => controlled("qemu-xhci", "usb-storage"),
        Bus::Sd => (Some("sdhci-pci".to_owned()), format!("sd-card,drive={id}")),
    };
    for device in controller.into_iter().chain([device]) {
        args.push("-device", &device);
    }
}

/// The disk with the files of a directory.
fn volume(args: &mut Args, machine: &Machine) -> Result<(), VmError> {
    if let Some(Volume { directory, label }) = &machine.volume {
        let directory = option_path(directory)?;
        let drive =
            format!("if=none,id=volume,readonly=on,driver=vvfat,dir={directory},label={label}");
        args.push("-drive", &drive);
        args.push(
            "-device",
            "virtio-blk-pci,drive=volume,serial=corten-volume",
        );
    }
    Ok(())
}
