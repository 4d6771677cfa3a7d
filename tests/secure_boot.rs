//! Promise: firmware in setup mode gets the keys from the disk, and from then on starts only the
//! signed image. It refuses a changed image and the image's kernel alone, and ignores every file
//! beside the image on the EFI partition.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use corten_image::{Release, inspect, uki};
use serde_json::Value;
use tests::node::{BOOT, Node, SOON};
use tests::secure_boot::{disk_that_enrols, enrolled, on_esp, put, start};
use tests::{images, initramfs, workspace};

/// systemd-boot's message about a program that the firmware refuses.
const REFUSED: &str = ": Access denied";

/// The kernel in the image on `disk`.
fn kernel(disk: &Path) -> Vec<u8> {
    let found = inspect::inspect(disk).unwrap();
    let program = &found.images.first().unwrap().data;
    uki::section(&uki::sections(program).unwrap(), ".linux")
        .and_then(|section| uki::content(program, section))
        .unwrap()
        .to_vec()
}

#[test]
#[ignore = "make test-vm"]
fn machine_without_keys_enrols_those_of_the_disk_and_boots_the_signed_image() {
    let node = start("secure-boot", &disk_that_enrols("secure-boot"));
    enrolled(&node);
    node.configure();
    let get = ["get", "securitystate", "securitystate", "-o", "json"];
    let text = node.ask(&node.admin(), &get, SOON);
    let state: Value = serde_json::from_str(&text).unwrap();
    let secure = state.pointer("/spec/secureBoot");
    assert_eq!(secure, Some(&Value::Bool(true)), "{text}");
}

#[test]
#[ignore = "make test-vm"]
fn a_changed_image_is_not_started() {
    let changed = disk_that_enrols("secure-boot-changed");
    change(&changed);
    not_started(&start("secure-boot-changed", &changed));
}

/// An attacker with write access to the EFI partition extracts the kernel from the signed image.
/// The attacker adds a loader entry that starts it with another initramfs and command line.
#[test]
#[ignore = "make test-vm"]
fn the_kernel_of_the_image_is_not_started_by_a_foreign_loader_entry() {
    let disk = disk_that_enrols("secure-boot-foreign");
    let dir = workspace::target().join("vm/secure-boot-foreign");
    std::fs::create_dir_all(&dir).unwrap();
    let entry = "title Foreign\nlinux /foreign.efi\ninitrd /foreign.img\noptions console=ttyS0 init=/bin/sh\n";
    let files: [(&str, &[u8]); 4] = [
        ("foreign.efi", &kernel(&disk)),
        ("foreign.img", b"an initramfs"),
        ("loader/entries/foreign.conf", entry.as_bytes()),
        (
            "loader/loader.conf",
            b"default foreign.conf\ntimeout 0\nsecure-boot-enroll if-safe\n",
        ),
    ];
    on_esp(&disk, "mmd", &["::loader/entries"]);
    for (target, content) in files {
        let file = dir.join("file");
        std::fs::write(&file, content).unwrap();
        put(&disk, &file, target);
    }
    not_started(&start("secure-boot-foreign", &disk));
}

/// An attacker with write access to the EFI partition adds a loader entry. It starts the signed
/// image with an initramfs in front of its own. That initramfs has a layer for the root file
/// system, and a list with its name.
#[test]
#[ignore = "make test-vm"]
fn the_image_is_not_started_with_the_initramfs_of_a_foreign_loader_entry() {
    let disk = disk_that_enrols("secure-boot-initrd");
    let dir = workspace::target().join("vm/secure-boot-initrd");
    std::fs::create_dir_all(&dir).unwrap();
    let foreign = dir.join("foreign.img");
    let file = |name: &str, data: &[u8]| initramfs::Entry {
        name: name.to_owned(),
        mode: 0o100_644,
        device: (0, 0),
        data: data.to_vec(),
    };
    let directory = initramfs::Entry {
        mode: 0o040_755,
        ..file("extensions", b"")
    };
    let layer = file("extensions/99-foreign.squashfs", b"hsqs");
    let list = file("extensions.list", b"99-foreign.squashfs\n");
    initramfs::write(&foreign, &[directory, layer, list]);
    on_esp(&disk, "mmd", &["::loader/entries"]);
    put(&disk, &foreign, "foreign.img");
    // A copy under a fixed name, which the boot counter does not change.
    let image = dir.join("image.efi");
    std::fs::write(
        &image,
        &inspect::inspect(&disk)
            .unwrap()
            .images
            .first()
            .unwrap()
            .data,
    )
    .unwrap();
    put(&disk, &image, "image.efi");
    let entry = "title Foreign\nlinux /image.efi\ninitrd /foreign.img\n";
    put_text(&disk, &dir, entry, "loader/entries/foreign.conf");
    let loader = "default foreign.conf\ntimeout 0\nsecure-boot-enroll if-safe\n";
    put_text(&disk, &dir, loader, "loader/loader.conf");
    not_started_for(
        &start("secure-boot-initrd", &disk),
        "Error registering initrd",
    );
}

/// An attacker with write access to the EFI partition adds every file that systemd-stub reads from
/// beside an image.
#[test]
#[ignore = "make test-vm"]
fn files_beside_the_image_change_nothing() {
    const ADDED: &str = "corten.foreign=yes";
    let disk = disk_that_enrols("secure-boot-beside");
    let dir = workspace::target().join("vm/secure-boot-beside");
    std::fs::create_dir_all(&dir).unwrap();
    let beside = format!("EFI/Linux/corten-{}.efi.extra.d", images::version());
    let directories = ["loader/credentials", "loader/addons", &beside];
    for directory in directories {
        on_esp(&disk, "mmd", &[&format!("::{directory}")]);
    }
    let files = [
        (
            "loader/credentials/foreign.cred",
            "global_credentials/foreign.cred",
        ),
        (&format!("{beside}/own.cred"), "credentials/own.cred"),
        (
            &format!("{beside}/more.sysext.raw"),
            "sysext/more.sysext.raw",
        ),
        (
            &format!("{beside}/more.confext.raw"),
            "confext/more.confext.raw",
        ),
    ];
    for (target, _) in files {
        put_text(&disk, &dir, "foreign", target);
    }
    let addon = dir.join("foreign.addon.efi");
    std::fs::write(&addon, unsigned_addon(ADDED)).unwrap();
    put(&disk, &addon, "loader/addons/foreign.addon.efi");
    put(&disk, &addon, &format!("{beside}/foreign.addon.efi"));

    let node = start("secure-boot-beside", &disk);
    enrolled(&node);
    node.configure();
    let console = node.vm.console().text();
    for (_, name) in files {
        let line = format!("{name} is not used: files beside the image are not signed");
        assert!(console.contains(&line), "no {line:?}: {console}");
    }
    let get = ["get", "kernelcmdline", "-o", "json"];
    let parameters = node.ask(&node.admin(), &get, SOON);
    assert!(!parameters.contains(ADDED), "{parameters}");
}

/// An unsigned addon of systemd-stub that adds a kernel parameter.
fn unsigned_addon(parameter: &str) -> Vec<u8> {
    let boot = workspace::step_output("boot").unwrap();
    let arch = images::builder_arch();
    // Named like the stub of a whole image, `linuxx64.efi.stub`.
    let name = arch.names().sd_stub.replace("linux", "addon");
    let stub = std::fs::read(boot.join("usr/lib/systemd/boot/efi").join(name)).unwrap();
    let release = Release {
        version: images::version(),
        arch,
        epoch: 0,
    };
    let parameters = parameter.as_bytes().to_vec();
    uki::append(stub, &release, &[(".cmdline", parameters)]).unwrap()
}

/// Writes a text file to the EFI partition, through a file in `dir`.
fn put_text(disk: &Path, dir: &Path, text: &str, target: &str) {
    let file = dir.join("file");
    std::fs::write(&file, text).unwrap();
    put(disk, &file, target);
}

/// Checks that the firmware accepts the keys and then refuses the loader's program.
fn not_started(node: &Node) {
    not_started_for(node, REFUSED);
}

/// Checks that the machine accepts the keys and then starts nothing, with this reason on its
/// console.
fn not_started_for(node: &Node, reason: &str) {
    enrolled(node);
    node.vm.wait_console(reason, BOOT).unwrap();
    let console = node.vm.console().text();
    assert!(!console.contains("Linux version"), "{console}");
}

/// Flips a bit in the middle of the kernel on the disk.
fn change(disk: &Path) {
    let kernel = kernel(disk);
    // Sections and files begin at a sector.
    let mark = kernel.chunks_exact(512).nth(kernel.len() / 1024).unwrap();
    let content = std::fs::read(disk).unwrap();
    let mut places = content.chunks(512).enumerate();
    let (sector, _) = places.find(|(_, sector)| *sector == mark).unwrap();
    assert!(places.all(|(_, sector)| sector != mark), "two kernels");
    let file = File::options().write(true).open(disk).unwrap();
    let at = sector as u64 * 512;
    file.write_all_at(&[mark.first().unwrap() ^ 1], at).unwrap();
}
