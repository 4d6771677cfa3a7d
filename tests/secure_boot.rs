//! Promise: a machine whose firmware waits for keys is given those of the image, and from then on starts
//! that image and nothing that was changed.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use mkimage::image::{inspect, uki};
use qemu::{Disk, Firmware};
use serde_json::Value;
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, SOON};
use tests::{images, workspace};

/// What systemd-boot says of a program that the firmware does not take.
const REFUSED: &str = ": Access denied";

/// Waits until systemd-boot has given the firmware its keys, after which it restarts the machine.
fn enrolled(node: &Node) {
    node.expect_reset(BOOT, || ());
}

#[test]
#[ignore = "make test-vm"]
fn a_machine_without_keys_gets_ours_and_starts_what_they_signed() {
    let disk = NodeDisk::new("secure-boot", 4);
    let node = disk.start(|machine| machine.firmware(Firmware::SecureBoot));
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
    let changed = workspace::target().join("vm/secure-boot-changed.raw");
    std::fs::create_dir_all(changed.parent().unwrap()).unwrap();
    std::fs::copy(images::image(".raw"), &changed).unwrap();
    change(&changed);
    let disk = Disk::raw(&changed);
    let node = Node::start("secure-boot-changed", |machine| {
        machine.firmware(Firmware::SecureBoot).disk(disk)
    });
    enrolled(&node);
    node.vm.wait_console(REFUSED, BOOT).unwrap();
    let console = node.vm.console().text();
    assert!(!console.contains("Linux version"), "{console}");
}

/// Flips a bit in the middle of the kernel on the disk.
fn change(disk: &Path) {
    let found = inspect::inspect(disk).unwrap();
    let program = &found.images.first().unwrap().data;
    let kernel = uki::section(&uki::sections(program).unwrap(), ".linux")
        .and_then(|section| uki::content(program, section))
        .unwrap()
        .to_vec();
    // Sections and files begin on a sector.
    let mark = kernel.chunks_exact(512).nth(kernel.len() / 1024).unwrap();
    let content = std::fs::read(disk).unwrap();
    let mut places = content.chunks(512).enumerate();
    let (sector, _) = places.find(|(_, sector)| *sector == mark).unwrap();
    assert!(places.all(|(_, sector)| sector != mark), "two kernels");
    let file = File::options().write(true).open(disk).unwrap();
    let at = sector as u64 * 512;
    file.write_all_at(&[mark.first().unwrap() ^ 1], at).unwrap();
}
