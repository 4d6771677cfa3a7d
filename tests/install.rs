//! Promises: one machine config installs a machine that was started from the ISO; the machine then starts from its disk
//! with that config, and is not installed again. A disk with content is left alone.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use qemu::{Firmware, Machine};
use tests::client::generate_config_with;
use tests::disk::NodeDisk;
use tests::images;
use tests::node::{BOOT, Node, ORDERLY, SOON};

/// Size of the disk in GiB.
const DISK: u32 = 5;
/// Memory in MiB: the unpacked image is in memory during the installation.
const MEMORY: u32 = 1024;

fn from_iso(disk: &NodeDisk, firmware: Firmware) -> Node {
    let iso = images::image(".iso");
    disk.start(|machine: Machine| machine.firmware(firmware).memory_mib(MEMORY).cdrom(iso))
}

fn from_disk(disk: &NodeDisk, firmware: Firmware) -> Node {
    disk.start(|machine: Machine| machine.firmware(firmware).memory_mib(MEMORY))
}

fn switch_off(node: Node) {
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
}

/// Generates the configs of a cluster whose nodes are installed to this disk. Returns the config of its first node.
fn config(node: &Node, disk: &str) -> String {
    let more = ["--install-disk", disk, "--force"];
    generate_config_with(node.configs(), "https://127.0.0.1:6443", &more);
    let file = node.configs().join("controlplane.yaml");
    file.to_string_lossy().into_owned()
}

#[test]
#[ignore = "make test-vm"]
fn machine_is_installed_by_its_config_and_starts_from_its_disk() {
    is_installed("install", Firmware::Uefi);
}

#[test]
#[ignore = "make test-vm"]
fn machine_is_installed_by_its_config_and_starts_from_its_disk_by_bios() {
    is_installed("install-bios", Firmware::Bios);
}

fn is_installed(name: &str, firmware: Firmware) {
    let disk = NodeDisk::blank(name, DISK);
    let node = from_iso(&disk, firmware);
    node.wait_maintenance();
    let missing = config(&node, "/dev/vdz");
    let refused = node.insecure().call(&["apply-config", "-f", &missing]);
    let refused = refused.expect_err("there is no such disk");
    assert!(refused.contains("machine.install.disk"), "{refused}");
    assert!(refused.contains("/dev/vda"), "{refused}");
    let file = config(&node, "/dev/vda");
    node.expect_reset(BOOT, || {
        node.insecure().must(&["apply-config", "-f", &file]);
    });
    // Firmware that starts the ISO again: the node finds its owner on the disk.
    node.ask(&node.admin(), &["version"], BOOT);
    let (device, _) = node.mount("/system/state");
    assert!(device.starts_with("/dev/vda"), "STATE is on {device}");
    let before = node.ask(&node.admin(), &["get", "machineconfig", "-o", "yaml"], SOON);
    switch_off(node);

    let node = from_disk(&disk, firmware);
    node.ask(&node.admin(), &["version"], BOOT);
    let after = node.ask(&node.admin(), &["get", "machineconfig", "-o", "yaml"], SOON);
    let install = |text: &str| text.contains("disk: /dev/vda");
    assert!(install(&before) && install(&after), "{before}\n{after}");
    let system = node.ask(&node.admin(), &["get", "systemdisk", "system-disk"], SOON);
    assert!(system.contains("vda"), "{system}");
    // The boot loader counts the starts of the installed version, so the version can be upgraded.
    node.until("the verdict on the version of the disk", SOON, || {
        let refused = node.admin().call(&["rollback"]);
        let refused = refused.expect_err("there is no other version");
        let is_good = refused.contains("no other version");
        is_good.then_some(()).ok_or(refused)
    });
    switch_off(node);
}

#[test]
#[ignore = "make test-vm"]
fn disk_with_content_is_left_alone_without_wipe() {
    let disk = NodeDisk::blank("install-over", DISK);
    // The first superblock of an ext4, and some data of it.
    disk.fill(0xa5, 1024, 4096);
    let node = from_iso(&disk, Firmware::Uefi);
    node.wait_maintenance();
    let file = config(&node, "/dev/vda");
    let refused = node.insecure().call(&["apply-config", "-f", &file]);
    let refused = refused.expect_err("the disk is not empty");
    assert!(refused.contains("wipe: true"), "{refused}");
    let install = ["install", "--disk", "/dev/vda"];
    let refused = node.insecure().call(&install);
    let refused = refused.expect_err("the disk is not empty");
    assert!(refused.contains("is not empty"), "{refused}");
    node.wait_maintenance();
    // Without a config, the node waits for one, from its disk.
    node.expect_reset(BOOT, || {
        let wipe = [&install[..], &["--wipe"]].concat();
        let installed = node.insecure().call_within(BOOT, &wipe);
        assert!(installed.is_ok(), "{installed:?}");
    });
    node.wait_maintenance();
    node.insecure().must(&["apply-config", "-f", &file]);
    node.ask(&node.admin(), &["version"], SOON);
    switch_off(node);
    let node = from_disk(&disk, Firmware::Uefi);
    node.ask(&node.admin(), &["version"], BOOT);
    switch_off(node);
}
