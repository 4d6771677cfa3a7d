//! Promise: a reset or wiped disk is empty, and a disk in use is never wiped.
#![expect(clippy::panic, reason = "a failing step is a failing test")]

use std::time::Duration;

use qemu::{Disk, DiskMode};
use tests::disk::NodeDisk;
use tests::node::{Node, SOON};
use tests::workspace;

/// Timeout of a reset: stop all services, unmount, wipe. The rest is for a slow host.
const ORDERLY: Duration = Duration::from_secs(300);
const OTHER_MIB: usize = 64;

fn refused(node: &Node, arguments: &[&str], why: &str) {
    match node.admin().call(arguments) {
        Ok(answer) => panic!("{arguments:?} is not refused: {answer}"),
        Err(error) => assert!(error.contains(why), "{arguments:?}: {error}"),
    }
}

#[test]
#[ignore = "make test-vm"]
fn reset_leaves_no_node_data() {
    let other = workspace::target().join("vm").join("reset-other.raw");
    let full = vec![0xa5; OTHER_MIB << 20];
    std::fs::create_dir_all(other.parent().expect("a directory")).expect("a directory");
    std::fs::write(&other, &full).expect("another disk");
    let disk = NodeDisk::new("reset", 4);
    let node = disk.start(|machine| machine.disk(Disk::raw(&other).mode(DiskMode::Direct)));
    node.configure();
    let (ephemeral, _) = node.mount("/var");
    // Before udevd has probed the disks, the error only says that they are in use.
    node.ask(&node.admin(), &["get", "systemdisk", "system-disk"], SOON);

    refused(&node, &["wipe", "disk", "vda"], "vda carries the node");
    refused(&node, &["wipe", "disk", &ephemeral], "volume EPHEMERAL");
    let unchecked = ["wipe", "disk", &ephemeral, "--skip-volume-check"];
    refused(&node, &unchecked, "mounted");
    refused(&node, &["wipe", "disk", "vdx"], "no disk or partition");
    let system_disk = ["--user-disks-to-wipe", "/dev/vda"];
    let user_disks = ["reset", "--wait=false", "--wipe-mode", "user-disks"];
    refused(
        &node,
        &[&user_disks[..], &system_disk].concat(),
        "carries the node",
    );
    node.ask(&node.admin(), &["wipe", "disk", "vdb"], SOON);

    let reset = [
        "reset",
        "--wait=false",
        "--graceful=false",
        "--user-disks-to-wipe",
        "/dev/vdb",
    ];
    let asked = node.admin().call(&reset);
    asked.unwrap_or_else(|error| panic!("{error}"));
    node.wait_off(ORDERLY);
    let console = node.vm.console().text();
    for done in ["vdb is wiped", "the system disk is wiped"] {
        assert!(console.contains(done), "the console does not say: {done}");
    }
    drop(node);

    // This disk supports discard, so that even data that need not be overwritten is gone: both
    // partition tables, the boot partitions, META, STATE, EPHEMERAL.
    let left = disk.written();
    assert!(left.is_empty(), "data is left in the MiB {left:?}");
    let left = std::fs::read(&other).expect("the other disk");
    std::fs::remove_file(&other).expect("the other disk to go");
    assert_eq!(left.len(), full.len());
    assert!(left.iter().all(|byte| *byte == 0), "the other disk");
}
