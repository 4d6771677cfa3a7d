//! Promises: a single call upgrades a node, another rolls it back, with its config and its data. A
//! version whose kernel panics, and a version that boots but does not work, are reverted
//! automatically.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::path::PathBuf;
use std::time::Duration;

use qemu::{Disk, Firmware};
use tests::client::Client;
use tests::images;
use tests::node::{BOOT, Node, SOON};

/// Time for a version to be written, booted and judged, on a machine without hardware
/// virtualisation.
const UPGRADE: Duration = Duration::from_secs(900);
/// The same for a version that gets a node's full trial time before it is reverted.
const LEFT: Duration = Duration::from_secs(3600);
/// Size of the disk in MiB: the installer is stored as downloaded, and unpacked.
const DISK: u64 = 4096;
/// A META value of the operator.
const KEPT: &str = "kept by the operator";

/// The installer that `make test-upgrade` built in the directory of this name.
fn installer(name: &str) -> String {
    let directory = images::directory().join(name);
    let found = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten();
    let mut files = found.map(|entry| entry.path());
    let installer: Option<PathBuf> =
        files.find(|path| path.to_string_lossy().ends_with("-installer.tar"));
    let installer = installer.expect("an installer; `make test-upgrade` builds it");
    installer.display().to_string()
}

/// A configured node on a disk of its own.
fn node(name: &str, firmware: Firmware) -> Node {
    let disk = Disk::raw(images::image(".raw")).enlarged(DISK);
    let node = Node::start(name, |machine| {
        machine.firmware(firmware).disk(disk).memory_mib(1024)
    });
    node.configure();
    for service in ["apid", "containerd"] {
        node.until_running(service);
    }
    let admin = node.admin();
    node.ask(&admin, &["meta", "write", "0x4d", KEPT], SOON);
    // The version on the disk has passed its trial; otherwise there would be no version to roll
    // back to.
    node.until("the verdict on the version of the disk", SOON, || {
        let refused = admin
            .call(&["rollback"])
            .expect_err("there is no other version");
        let is_good = refused.contains("no other version");
        is_good.then_some(()).ok_or(refused)
    });
    node
}

/// Checks the running version, the verdict on the tried version, and that the node's META value and
/// config have survived.
fn expect(node: &Node, version: &str, verdict: &str) {
    let admin = node.admin();
    let release = node.ask(&admin, &["read", "/etc/os-release"], BOOT);
    assert!(
        release.contains(&format!("IMAGE_VERSION=\"{version}\"")),
        "{release}"
    );
    let upgrades = ["get", "upgrades", "-o", "jsonpath={.spec.verdict}"];
    node.until("the verdict", UPGRADE, || {
        let found = admin.call(&upgrades)?;
        (found.trim() == verdict).then_some(()).ok_or(found)
    });
    let meta = node.ask(&admin, &["get", "meta", "-o", "yaml"], SOON);
    assert!(meta.contains(KEPT), "{meta}");
}

fn upgrade(admin: &Client, name: &str, limit: Duration) -> Result<String, String> {
    admin.call_within(
        limit,
        &["upgrade", "--file", &installer(name), "--timeout", "1h"],
    )
}

fn upgrades_and_rolls_back(node: &Node) {
    let admin = node.admin();
    upgrade(&admin, "next", UPGRADE).expect("an upgrade");
    expect(node, "0.2.0", "good");
    admin.must(&["rollback"]);
    node.until("the version before", UPGRADE, || {
        let release = admin.call(&["read", "/etc/os-release"])?;
        let is_back = !release.contains("0.2.0");
        is_back.then_some(()).ok_or(release)
    });
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
