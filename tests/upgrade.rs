//! Promises: a single call upgrades a node, and another rolls it back, with its config and its data. They hold on a
//! node that the ISO installed, and under Secure Boot. A version whose kernel panics, and a version that boots but does
//! not work, are reverted automatically.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::thread;
use std::time::Duration;

use qemu::{Disk, Firmware, Machine};
use tests::chaos::{self, Agent};
use tests::client::generate_config_with;
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};
use tests::registry::Registry;
use tests::upgrades::{self, UPGRADE, expect, upgrade, upgrade_by};
use tests::{derived, images, secure_boot};

/// Time for a version that gets a node's full trial time before it is reverted.
const LEFT: Duration = Duration::from_secs(3600);
/// Size of the disk in MiB: the installer is stored as downloaded, and unpacked.
const DISK: u64 = 4096;

/// A config for a shorter time of a version's trial, without the time.
const TRIAL: &str = "apiVersion: v1alpha1\nkind: UpgradeConfig\ntrialTimeout: ";
/// Number of starts that the boot loader gives a version.
const TRIES: u32 = 3;

/// A configured node on a disk of its own.
fn node(name: &str, firmware: Firmware) -> Node {
    node_of(name, firmware, |machine| machine)
}

fn node_of(name: &str, firmware: Firmware, shape: impl FnOnce(Machine) -> Machine) -> Node {
    let disk = Disk::raw(images::image(".raw")).enlarged(DISK);
    let node = Node::start(name, |machine| {
        shape(machine.firmware(firmware).disk(disk).memory_mib(1024))
    });
    upgrades::prepare(&node);
    node
}

/// A configured node on a disk to which the ISO has installed it.
fn installed_node(name: &str, firmware: Firmware) -> Node {
    let gib = u32::try_from(DISK / 1024).expect("a small disk");
    let disk = NodeDisk::blank(name, gib);
    let node = disk.start(|machine| {
        let iso = images::image(".iso");
        machine.firmware(firmware).memory_mib(1024).cdrom(iso)
    });
    node.wait_maintenance();
    let more = ["--install-disk", "/dev/vda", "--force"];
    generate_config_with(node.configs(), "https://127.0.0.1:6443", &more);
    let config = node.configs().join("controlplane.yaml");
    node.expect_reset(BOOT, || {
        let config = config.display().to_string();
        node.insecure().must(&["apply-config", "-f", &config]);
    });
    // The firmware may start the ISO again.
    node.ask(&node.admin(), &["version"], BOOT);
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);
    let node = disk.start(|machine| machine.firmware(firmware).memory_mib(1024));
    node.ask(&node.admin(), &["version"], BOOT);
    upgrades::wait_until_good(&node);
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

#[test]
#[ignore = "make test-upgrade"]
fn node_installed_from_the_iso_upgrades_and_rolls_back() {
    upgrades_and_rolls_back(&installed_node("upgrade-iso", Firmware::Uefi));
}

#[test]
#[ignore = "make test-upgrade"]
fn node_installed_from_the_iso_upgrades_and_rolls_back_by_bios() {
    upgrades_and_rolls_back(&installed_node("upgrade-iso-bios", Firmware::Bios));
}

#[test]
#[ignore = "make test-upgrade"]
fn node_upgrades_and_rolls_back_under_secure_boot() {
    let disk = secure_boot::disk_that_enrols("upgrade-secure");
    let node = secure_boot::start("upgrade-secure", &disk);
    secure_boot::enrolled(&node);
    upgrades::prepare(&node);
    upgrades_and_rolls_back(&node);
    let get = ["get", "securitystate", "securitystate", "-o", "yaml"];
    let state = node.ask(&node.admin(), &get, SOON);
    assert!(state.contains("secureBoot: true"), "{state}");
}

#[test]
#[ignore = "make test-upgrade"]
fn installer_of_a_registry_upgrades_a_node() {
    let node = node("upgrade-registry", Firmware::Uefi);
    let archive = images::other("next", "-installer.tar");
    let directory = node.vm.dir().join("registry");
    let (registry, image) = Registry::of_installer(&directory, &archive, "0.2.0");
    node.apply_patch(&registry.mirror());
    upgrade_by(&node.admin(), &["--image", &image], UPGRADE).expect("an upgrade");
    expect(&node, "0.2.0", "good");
    let list = ["image", "list", "--namespace", "system"];
    let list = node.ask(&node.admin(), &list, SOON);
    assert!(!list.contains(&image), "the installer stays: {list}");
}

/// Upgrades the node to a version that does not stay, for a reason that the client reports.
fn leaves(node: &Node, installer: &str, limit: Duration, reason: &str) {
    let outcome = upgrade(&node.admin(), installer, limit);
    has_left(node, outcome, reason);
}

/// Checks that the node has left a version, for a reason that the client reported.
fn has_left(node: &Node, outcome: Result<String, String>, reason: &str) {
    let why = outcome.expect_err("the version does not stay");
    assert!(why.contains(reason), "{why}");
    expect(node, &images::version(), "reverted");
}

/// Why a version is left that never came so far as to report itself.
const RETURNED: &str = "returned to its previous version";

fn leaves_a_panicking_version(node: &Node) {
    leaves(node, "panics", UPGRADE, RETURNED);
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
fn version_whose_init_ends_is_left_after_its_tries() {
    let node = node("upgrade-exits", Firmware::Uefi);
    leaves(&node, "exits", UPGRADE, RETURNED);
}

#[test]
#[ignore = "make test-upgrade"]
fn version_whose_machined_hangs_is_left_after_its_tries() {
    let node = node_of("upgrade-hangs", Firmware::Uefi, Machine::second_serial);
    node.apply_patch(&format!("{TRIAL}1m\n"));
    let installer = derived::installer("bundle", "0.3.0", node.vm.dir(), chaos::wrap_init);
    let file = installer.display().to_string();
    let admin = node.admin();
    let outcome = thread::scope(|scope| {
        let upgrade = scope.spawn(|| upgrade_by(&admin, &["--file", &file], LEFT));
        for start in 1..=TRIES {
            let trial = format!("version 0.3.0 is on trial: start {start}");
            let is_left = node.until("a start of the new version, or the end", UPGRADE, || {
                let begun = node.vm.console().text().contains(&trial);
                let ended = upgrade.is_finished();
                (begun || ended)
                    .then_some(!begun)
                    .ok_or("neither".to_owned())
            });
            // The restart ends the agent before the node: threads may go on, and leave the version in time.
            if is_left {
                break;
            }
            node.expect_reset(UPGRADE, || {
                Agent::connect(&node.vm).run("freeze 1 trial");
            });
        }
        upgrade.join().expect("the call of the upgrade")
    });
    has_left(&node, outcome, RETURNED);
    let console = node.vm.console().text();
    assert!(console.contains("machined hangs"), "{console}");
}

#[test]
#[ignore = "make test-upgrade"]
fn version_that_cannot_read_the_volumes_is_left_after_a_timeout() {
    let node = node("upgrade-blind", Firmware::Uefi);
    leaves(&node, "blind", LEFT, "the node is not running");
}

#[test]
#[ignore = "make test-upgrade"]
fn version_without_a_driver_of_the_network_is_left_after_a_timeout() {
    let node = node("upgrade-deaf", Firmware::Uefi);
    node.apply_patch(&format!("{TRIAL}3m\n"));
    leaves(&node, "deaf", UPGRADE, "network: no address");
}
