//! Promises: a single call upgrades a node, another rolls it back, with its config and its data. A
//! version whose kernel panics, and a version that boots but does not work, are reverted
//! automatically.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::time::Duration;

use qemu::{Disk, Firmware};
use tests::images;
use tests::node::Node;
use tests::upgrades::{self, UPGRADE, expect, upgrade};

/// Time for a version that gets a node's full trial time before it is reverted.
const LEFT: Duration = Duration::from_secs(3600);
/// Size of the disk in MiB: the installer is stored as downloaded, and unpacked.
const DISK: u64 = 4096;

/// A configured node on a disk of its own.
fn node(name: &str, firmware: Firmware) -> Node {
    let disk = Disk::raw(images::image(".raw")).enlarged(DISK);
    let node = Node::start(name, |machine| {
        machine.firmware(firmware).disk(disk).memory_mib(1024)
    });
    upgrades::prepare(&node);
    node
}

fn upgrades_and_rolls_back(node: &Node) {
    let admin = node.admin();
    upgrade(&admin, "next", UPGRADE).expect("an upgrade");
    expect(node, "0.2.0", "good");
    admin.must(&["rollback"]);
    upgrades::wait_for_version(node, &images::version());
    expect(node, &images::version(), "good");
}

#[test]
#[ignore = "make test-upgrade"]
fn node_upgrades_and_rolls_back_with_one_call_each() {
    upgrades_and_rolls_back(&node("upgrade", Firmware::Uefi));
}

#[test]
#[ignore = "make test-upgrade"]
fn node_upgrades_and_rolls_back_by_bios() {
    upgrades_and_rolls_back(&node("upgrade-bios", Firmware::Bios));
}

fn leaves_a_panicking_version(node: &Node) {
    let admin = node.admin();
    let why = upgrade(&admin, "panics", UPGRADE).expect_err("the version does not stay");
    assert!(why.contains("returned to its previous version"), "{why}");
    expect(node, &images::version(), "reverted");
}

#[test]
#[ignore = "make test-upgrade"]
fn version_with_a_panicking_kernel_is_left_after_its_tries() {
    leaves_a_panicking_version(&node("upgrade-panics", Firmware::Uefi));
}

#[test]
#[ignore = "make test-upgrade"]
fn version_with_a_panicking_kernel_is_left_after_its_tries_by_bios() {
    leaves_a_panicking_version(&node("upgrade-panics-bios", Firmware::Bios));
}

#[test]
#[ignore = "make test-upgrade"]
fn version_that_cannot_read_the_volumes_is_left_after_a_timeout() {
    let node = node("upgrade-blind", Firmware::Uefi);
    let admin = node.admin();
    let why = upgrade(&admin, "blind", LEFT).expect_err("the version does not stay");
    assert!(why.contains("the node is not running"), "{why}");
    expect(&node, &images::version(), "reverted");
}
