//! The steps of tests that upgrade a node.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use crate::client::Client;
use crate::node::{BOOT, Node, SOON};
use crate::{images, workspace};

/// Time for a version to be written, booted and judged, on a machine without hardware
/// virtualisation.
pub const UPGRADE: Duration = Duration::from_secs(900);
/// Size of the disk in bytes: the node stores the installer, and unpacks it.
const DISK: u64 = 4 << 30;
/// A META value of the operator.
pub const KEPT: &str = "kept by the operator";

/// Path of a file of a machine.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    workspace::target().join("vm").join(name)
}

/// A copy of the disk image at [`path`], on a disk with room for an upgrade.
///
/// # Panics
/// The image has not been built, or this machine's disk is full.
#[must_use]
pub fn disk(name: &str) -> PathBuf {
    let disk = path(name);
    fs::create_dir_all(path("")).expect("a directory for the disks");
    fs::copy(images::image(".raw"), &disk).expect("a copy of the image");
    let file = File::options().write(true).open(&disk);
    let extended = file.and_then(|file| file.set_len(DISK));
    extended.expect("a sparse disk");
    disk
}

/// The installer that `make test-upgrade` built in the directory of this name.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn installer(name: &str) -> String {
    let installer = images::other(name, "-installer.tar");
    installer.display().to_string()
}

/// Configures a node that is to be upgraded, and waits until its version has passed its trial.
///
/// # Panics
/// A step fails.
pub fn prepare(node: &Node) {
    node.configure();
    wait_until_good(node);
}

/// Waits until the version of a configured node's disk has passed its trial, and sets a META value.
///
/// # Panics
/// A step fails.
pub fn wait_until_good(node: &Node) {
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
}

/// Checks the running version, the verdict on the tried version, and that the node's META value and
/// config have survived.
///
/// # Panics
/// One of them is another.
pub fn expect(node: &Node, version: &str, verdict: &str) {
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

/// Upgrades the node to the installer in the directory of this name.
///
/// # Errors
/// The output of a client that reports a failure.
pub fn upgrade(admin: &Client, name: &str, limit: Duration) -> Result<String, String> {
    upgrade_by(admin, &["--file", &installer(name)], limit)
}

/// Upgrades the node to an installer that these arguments name.
///
/// # Errors
/// The output of a client that reports a failure.
pub fn upgrade_by(admin: &Client, installer: &[&str], limit: Duration) -> Result<String, String> {
    admin.call_within(
        limit,
        &[&["upgrade"], installer, &["--timeout", "1h"]].concat(),
    )
}

/// Waits until the node runs this version.
///
/// # Panics
/// It does not within [`UPGRADE`].
pub fn wait_for_version(node: &Node, version: &str) {
    let admin = node.admin();
    node.until(version, UPGRADE, || {
        let release = admin.call(&["read", "/etc/os-release"])?;
        let is_running = release.contains(&format!("IMAGE_VERSION=\"{version}\""));
        is_running.then_some(()).ok_or(release)
    });
}
