//! Promise: udevd parses the rule files of Debian's udev, device mapper, LVM and multipath
//! completely, and applies them to devices.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use corten_steps::cache::Cache;
use corten_steps::deb;
use corten_steps::fetch::Fetcher;
use corten_steps::lock::Lock;
use tests::workspace;

/// The directory of the packages' rule files, below the unpacked root.
const RULES: &str = "usr/lib/udev/rules.d";
/// Minimum number of rules; a smaller one means that some were skipped.
const LEAST_RULES: usize = 550;

/// The rule files are not in this repository: they are fetched by lock, like the packages of the
/// image.
fn unpacked() -> tempfile::TempDir {
    let cache = Cache::open(&workspace::cache(), Vec::new()).unwrap();
    let fetcher = Fetcher::new(cache, false, corten_steps::fetch::mirrors());
    let lock = Lock::read(&workspace::root().join("rootfs/packages.lock")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for package in lock.packages("udev-rules", "amd64") {
        let file = fetcher.package(package).unwrap();
        deb::unpack(&file, root.path(), |path| path.starts_with(RULES)).unwrap();
        names.push(package.name.as_str());
    }
    assert_eq!(names, ["udev", "dmsetup", "lvm2", "multipath-tools"]);
    root
}

fn udevd(arguments: &[&str], rules: &Path) -> Output {
    Command::new(workspace::program("udevd"))
        .args(arguments)
        .arg("--rules")
        .arg(rules)
        .output()
        .unwrap()
}

/// A device of a made-up sysfs.
fn device(sys: &Path, path: &str, subsystem: &str, files: &[(&str, &str)]) {
    let directory = sys.join(path);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("uevent"), "").unwrap();
    symlink(format!("/class/{subsystem}"), directory.join("subsystem")).unwrap();
    for (name, text) in files {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

#[test]
#[ignore = "make test-vm"]
fn every_key_of_the_debian_rule_files_is_read() {
    let root = unpacked();
    let output = udevd(&["--check"], &root.path().join(RULES));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let last = text.lines().last().unwrap();
    let rules = last.strip_suffix(" rules, 0 broken").unwrap();
    assert!(rules.parse::<usize>().unwrap() >= LEAST_RULES, "{last}");
}

#[test]
#[ignore = "make test-vm"]
fn debian_rule_files_create_their_links() {
    let root = unpacked();
    let sys = tempfile::tempdir().unwrap();
    let disk = "devices/pci0000:00/0000:00:05.0/virtio2/block/vda";
    device(sys.path(), "devices/pci0000:00/0000:00:05.0", "pci", &[]);
    device(
        sys.path(),
        "devices/pci0000:00/0000:00:05.0/virtio2",
        "virtio",
        &[],
    );
    let node = "MAJOR=254\nMINOR=0\nDEVNAME=vda\nDEVTYPE=disk\n";
    device(
        sys.path(),
        disk,
        "block",
        &[("uevent", node), ("serial", "a b\n")],
    );
    // As created by LVM: the cookie marks the event as LVM's own.
    let volume = "devices/virtual/block/dm-0";
    let node = "MAJOR=253\nMINOR=0\nDEVNAME=dm-0\nDEVTYPE=disk\nDM_COOKIE=6342525\n\
                DM_ACTIVATION=1\n";
    let files = [
        ("uevent", node),
        ("dm/name", "my--vg-data\n"),
        ("dm/uuid", "LVM-x\n"),
        ("dm/suspended", "0\n"),
    ];
    device(sys.path(), volume, "block", &files);
    let sys_path = sys.path().to_str().unwrap();
    for (path, wanted) in [
        (
            disk,
            &[
                "disk/by-id/virtio-a_b",
                "disk/by-path/virtio-pci-0000:00:05.0",
            ][..],
        ),
        (
            volume,
            &[
                "mapper/my--vg-data",
                "my-vg/data",
                "disk/by-id/dm-uuid-LVM-x",
            ],
        ),
    ] {
        let path = format!("/{path}");
        let arguments = [
            "--sys", sys_path, "--dev", "/x", "--run", "/x", "--plan", &path,
        ];
        let output = udevd(&arguments, &root.path().join(RULES));
        let text = String::from_utf8(output.stdout).unwrap();
        for link in wanted {
            let claim = format!("claim {link} -> ");
            assert!(
                text.lines().any(|line| line.starts_with(&claim)),
                "no {link}:\n{text}"
            );
        }
    }
}
