//! Promise: what a node must remember is on its disk, and no power cut costs it.

use std::time::Duration;

use tests::client::Table;
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, SOON};

/// From a reboot's reset to the next, or a power-off.
const ORDERLY: Duration = Duration::from_secs(120);

/// Size in GB of the file system mounted on `target`, which must be on the disk.
fn mounted(node: &Node, target: &str) -> f64 {
    let (device, size) = node.mount(target);
    assert!(device.starts_with("/dev/vda"), "{target} is on {device}");
    size
}

#[test]
#[ignore = "make test-vm"]
fn volumes_are_made_kept_and_grown() {
    let disk = NodeDisk::new("volumes", 4);
    let node = disk.start(|machine| machine);
    node.configure();
    assert!((0.2..0.4).contains(&mounted(&node, "/system/state")));
    let before = mounted(&node, "/var");
    assert!((2.5..4.0).contains(&before), "{before} GB");
    let disks = node.ask(&node.admin(), &["get", "disks"], SOON);
    assert!(disks.contains("vda"), "{disks}");
    let system = node.ask(&node.admin(), &["get", "systemdisk", "system-disk"], SOON);
    assert!(system.contains("vda"), "{system}");
    // Made in this boot: the kernel knows the partitions, and not their names.
    node.until("every volume ready", SOON, || {
        let shown = node.ask(&node.admin(), &["get", "volumestatus"], SOON);
        let mut lines = shown.lines();
        let mut ready = |name| lines.any(|line| line.contains(name) && line.contains("ready"));
        if ["EPHEMERAL", "META", "STATE"]
            .iter()
            .all(|name| ready(*name))
        {
            Ok(())
        } else {
            Err(shown)
        }
    });
    let full = node.ask(&node.admin(), &["df", "-b", "EPHEMERAL"], SOON);
    let table = Table::parse(&full);
    assert_eq!(table.column("MOUNT POINT"), ["/var"], "{full}");
    let bytes: f64 = table.column("SIZE").concat().parse().expect("bytes");
    assert!((bytes * 1e-9 - before).abs() < 0.01, "{full}");
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);

    disk.grow(6);
    let node = disk.start(|machine| machine);
    // It knows its owner without being told again.
    node.ask(&node.admin(), &["version"], BOOT);
    node.until("EPHEMERAL grown", SOON, || {
        let after = mounted(&node, "/var");
        if (before + 1.5..6.0).contains(&after) {
            Ok(())
        } else {
            Err(format!("{before} -> {after} GB"))
        }
    });
}
