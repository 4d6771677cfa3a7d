//! Promise: one image boots by every method. Each machine must answer the API; console output is no
//! proof.
//!
//! All machines have 512 MiB (see [`tests::node::Node::start`]), the promised minimum of a worker.

use qemu::{Disk, Firmware};
use tests::images;
use tests::node::Node;

/// Checks the answers of a freshly booted node without a config.
fn answers(node: &Node) {
    let version = node.wait_maintenance();
    let tag = format!("+corten.{}", images::version());
    assert!(version.contains(&tag), "no {tag} in the answer:\n{version}");
}

#[test]
#[ignore = "make test-vm"]
fn raw_uefi() {
    let disk = Disk::raw(images::image(".raw"));
    answers(&Node::start("boot-raw-uefi", |m| {
        m.firmware(Firmware::Uefi).disk(disk)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn raw_bios() {
    let disk = Disk::raw(images::image(".raw"));
    answers(&Node::start("boot-raw-bios", |m| {
        m.firmware(Firmware::Bios).disk(disk)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn boots_without_a_source_of_random_numbers() {
    let disk = Disk::raw(images::image(".raw"));
    let shape = |m: qemu::Machine| m.firmware(Firmware::Uefi).disk(disk).randomless();
    answers(&Node::start("boot-randomless", shape));
}

#[test]
#[ignore = "make test-vm"]
fn iso_uefi() {
    let iso = images::image(".iso");
    answers(&Node::start("boot-iso-uefi", |m| {
        m.firmware(Firmware::Uefi).cdrom(iso)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn iso_bios() {
    let iso = images::image(".iso");
    answers(&Node::start("boot-iso-bios", |m| {
        m.firmware(Firmware::Bios).cdrom(iso)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn iso_as_usb_stick_uefi() {
    let iso = images::image(".iso");
    answers(&Node::start("boot-usb-uefi", |m| {
        m.firmware(Firmware::Uefi).usb(iso)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn iso_as_usb_stick_bios() {
    let iso = images::image(".iso");
    answers(&Node::start("boot-usb-bios", |m| {
        m.firmware(Firmware::Bios).usb(iso)
    }));
}

#[test]
#[ignore = "make test-vm"]
fn boots_from_the_network() {
    let (served, file) = images::network();
    answers(&Node::start("boot-pxe", |m| m.netboot(served, file)));
}

#[test]
#[ignore = "make test-vm"]
fn boots_the_kernel_directly() {
    let boot = images::direct();
    answers(&Node::start("boot-direct", |m| m.direct(boot)));
}

/// Size limit of kernel and initramfs in bytes: every machine loads them, every upgrade carries
/// them.
const LARGEST: u64 = 44_000_000;

#[test]
#[ignore = "make test-vm"]
fn kernel_and_initramfs_stay_within_the_size_limit() {
    let boot = images::direct();
    let files = std::iter::once(boot.kernel).chain(boot.initrd);
    let sizes: Vec<u64> = files
        .map(|file| std::fs::metadata(file).expect("built").len())
        .collect();
    assert_eq!(sizes.len(), 2);
    let all: u64 = sizes.iter().sum();
    assert!(
        all <= LARGEST,
        "kernel and initramfs: {all} bytes {sizes:?}"
    );
}
