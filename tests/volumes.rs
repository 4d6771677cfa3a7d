//! Promise: what a node must remember is on its disk, and no power cut costs it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use qemu::{Disk, DiskMode, Machine};
use tests::client::Table;
use tests::node::{Node, SOON};
use tests::{images, workspace};

/// From a reboot's reset to the next, or a power-off.
const ORDERLY: Duration = Duration::from_secs(120);

/// A disk that was given the image, `gib` large.
fn disk(name: &str, gib: u32) -> PathBuf {
    let path = workspace::target().join("vm").join(format!("{name}.qcow2"));
    let _ = std::fs::remove_file(&path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let image = std::fs::canonicalize(images::image(".raw")).unwrap();
    let base = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
    let mut command = Command::new("qemu-img");
    command.args(base).arg(image).arg(&path);
    command.arg(format!("{gib}G"));
    assert!(command.status().unwrap().success());
    path
}

fn on(disk: &Path) -> impl FnOnce(Machine) -> Machine {
    let disk = Disk::qcow2(disk).mode(DiskMode::Direct);
    move |machine| machine.disk(disk)
}

/// Size in GB of the file system mounted on `target`, which must be on the disk.
fn mounted(node: &Node, target: &str) -> f64 {
    let text = node.ask(&node.admin(), &["mounts"], SOON);
    let table = Table::parse(&text);
    let targets = table.column("MOUNTED ON");
    let at = targets
        .iter()
        // The one on top.
        .rposition(|other| *other == target)
        .unwrap_or_else(|| panic!("{target} is not mounted:\n{text}"));
    let device = table.column("FILESYSTEM")[at];
    assert!(device.starts_with("/dev/vda"), "{target} is on {device}");
    table.column("SIZE(GB)")[at].parse().unwrap()
}

#[test]
#[ignore = "make test-vm"]
fn volumes_are_made_kept_and_grown() {
    let path = disk("volumes", 4);
    let node = Node::start("volumes", on(&path));
    node.configure();
    assert!((0.2..0.4).contains(&mounted(&node, "/system/state")));
    let before = mounted(&node, "/var");
    assert!((2.5..4.0).contains(&before), "{before} GB");
    node.ask(&node.admin(), &["shutdown"], SOON);
    node.wait_off(ORDERLY);
    let configs = node.configs().to_owned();
    let admin = std::fs::read(configs.join("cortenconfig")).unwrap();
    drop(node);

    let resized = Command::new("qemu-img")
        .args(["resize", "-q"])
        .arg(&path)
        .arg("6G")
        .status();
    assert!(resized.unwrap().success());
    let node = Node::start("volumes", on(&path));
    std::fs::create_dir_all(node.configs()).unwrap();
    std::fs::write(node.configs().join("cortenconfig"), admin).unwrap();
    // It knows its owner without being told again.
    node.ask(&node.admin(), &["version"], tests::node::BOOT);
    let after = mounted(&node, "/var");
    assert!(
        (before + 1.5..6.0).contains(&after),
        "{before} -> {after} GB"
    );
}
