//! Promise: an upgrade changes the extensions and the kernel parameters of a node's image, and a rollback restores them.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::path::Path;
use std::process::Command;

use qemu::Firmware;
use tests::client::Table;
use tests::disk::NodeDisk;
use tests::node::{BOOT, SOON};
use tests::upgrades::{self, UPGRADE, upgrade_by};
use tests::{extension, images, workspace};

/// Size of the disk in GiB: the node stores the installer, and unpacks it.
const DISK: u32 = 4;
/// Version of the upgrade.
const VERSION: &str = "0.4.0";
/// Kernel parameter of the upgrade.
const PARAMETER: &str = "corten.environment=PLACE=lab";

/// Builds the installer of [`VERSION`] with [`PARAMETER`] and this extension.
fn installer(directory: &Path, extension: &Path) -> String {
    let arch = images::arch().name();
    let built = Command::new(workspace::mkimage())
        .args(["build", "--arch", arch, "--output", "installer", "--out"])
        .arg(directory)
        .arg("--extension")
        .arg(extension)
        .args(["--kernel-argument", PARAMETER])
        .envs([("CORTEN_VERSION", VERSION), ("SOURCE_DATE_EPOCH", "0")])
        .current_dir(workspace::root())
        .output()
        .expect("mkimage runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let file = format!("corten-{VERSION}-{arch}-installer.tar");
    directory.join(file).display().to_string()
}

#[test]
#[ignore = "make test-vm"]
fn upgrade_changes_extensions_and_kernel_parameters_and_rollback_restores_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let tool = directory.path().join("tool.tar");
    extension::archive(&tool, "tool", None);
    let installer = installer(directory.path(), &tool);
    let disk = NodeDisk::new("image-extensions", DISK);
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi).memory_mib(1024));
    upgrades::prepare(&node);
    let admin = node.admin();
    let extensions = || {
        let listed = node.ask(&admin, &["get", "extensions"], SOON);
        Table::parse(&listed).column("NAME").join(" ")
    };
    let has_parameter = || {
        let line = node.ask(&admin, &["read", "/proc/cmdline"], SOON);
        line.contains(PARAMETER)
    };
    assert!(!has_parameter());

    let upgraded = upgrade_by(&admin, &["--file", &installer], UPGRADE);
    assert!(upgraded.is_ok(), "{upgraded:?}");
    upgrades::expect(&node, VERSION, "good");
    assert_eq!(extensions(), "tool");
    let file = node.ask(&admin, &["read", "/usr/local/share/tool"], BOOT);
    assert_eq!(file, "tool");
    assert!(has_parameter());

    admin.must(&["rollback"]);
    upgrades::wait_for_version(&node, &images::version());
    let listed = node.ask(&admin, &["get", "extensions"], SOON);
    assert!(!listed.contains("tool"), "{listed}");
    assert!(!has_parameter());
}
