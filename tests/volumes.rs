//! Promise: a node's persistent state is on its disk, and no power cut loses it.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use tests::client::{Table, generate_config_with};
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};

/// The magic number of an XFS and of each of its allocation groups.
const XFS: &[u8] = b"XFSB";
/// Offset of the superblock's checksum (`sb_crc`), in bytes.
const CHECKSUM: u64 = 224;
/// Bytes that a node reads to identify a partition's content; a partition where they are zero
/// counts as empty.
const HEAD: u64 = 4096;
const MIB: u64 = 1 << 20;
/// The size of STATE in MiB.
const STATE_MIB: usize = 320;

/// Size in GB of the file system mounted on `target`, which must be on the disk.
fn mounted(node: &Node, target: &str) -> f64 {
    let (device, size) = node.mount(target);
    assert!(device.starts_with("/dev/vda"), "{target} is on {device}");
    size
}

#[test]
#[ignore = "make test-vm"]
fn volumes_are_created_kept_and_grown() {
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
    // Made in this boot: the kernel knows the partitions without their names.
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
    // The node knows its owner without a new config.
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

fn switch_off(node: Node) {
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
}

/// Places in MiB of the superblocks of STATE and their copies, and of those of EPHEMERAL, which is the partition after it.
fn superblocks(disk: &NodeDisk) -> (Vec<usize>, Vec<usize>) {
    let starts = disk.starts();
    let parts = starts.iter().enumerate();
    let parts = parts.filter(|(_, start)| start.starts_with(XFS));
    let all: Vec<usize> = parts.map(|(mib, _)| mib).collect();
    let first = *all.first().expect("a file system");
    all.into_iter().partition(|mib| *mib < first + STATE_MIB)
}

#[test]
#[ignore = "make test-vm"]
fn a_damaged_state_is_repaired_or_named() {
    let disk = NodeDisk::new("damaged-state", 4);
    let node = disk.start(|machine| machine);
    node.configure();
    mounted(&node, "/system/state");
    switch_off(node);
    let (state, _) = superblocks(&disk);
    let (first, others) = state.split_first().expect("a file system");
    assert_eq!(others.len(), 3, "copies of the superblock: {others:?}");
    let place = |mib: &usize| *mib as u64 * MIB;

    // A copy repairs the superblock, however damaged it is, without data loss.
    for (at, length) in [(CHECKSUM, 4), (0, HEAD)] {
        disk.zero(place(first) + at, length);
        let node = disk.start(|machine| machine);
        node.ask(&node.admin(), &["version"], BOOT);
        mounted(&node, "/system/state");
        let said = node.ask(&node.admin(), &["logs", "machined"], SOON);
        let repaired =
            |line: &str| line.contains("STATE on /dev/vda") && line.contains("was repaired");
        assert!(said.lines().any(repaired), "{at}: {said}");
        switch_off(node);
    }

    // Only the magic number is left. The node is locked: it answers its owner, and reports the
    // problem and the remedy.
    for part in others.iter().chain([first]) {
        disk.zero(place(part) + 4, 508);
    }
    let node = disk.start(|machine| machine);
    let status = ["get", "machinestatus", "-o", "yaml"];
    let shown = node.ask(&node.owner(), &status, BOOT);
    assert!(
        shown.contains("name: owner") && shown.contains("corten.recover=maintenance"),
        "{shown}"
    );
    let refused = node.insecure().call(&["version"]).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    node.until("the failure of STATE", SOON, || {
        let status = ["get", "volumestatus", "STATE", "-o", "yaml"];
        let shown = node.owner().call(&status)?;
        let words: Vec<&str> = shown.split_whitespace().collect();
        let shown = words.join(" ");
        let says = |words| shown.contains(words);
        if says("is damaged and cannot be repaired") && says("wipe or reset it") {
            Ok(())
        } else {
            Err(shown)
        }
    });
    let config = node.configs().join("controlplane.yaml");
    let config = config.to_str().expect("UTF-8 path");
    node.owner().must(&["apply-config", "-f", config]);
    node.ask(&node.admin(), &["version"], SOON);
    node.expect_reset(ORDERLY, || {
        let reset = ["reset", "--graceful=false", "--reboot", "--wait=false"];
        let labels = ["--system-labels-to-wipe", "STATE"];
        let asked = node.admin().call(&[&reset[..], &labels].concat());
        asked.unwrap_or_else(|error| panic!("{error}"));
    });
    node.configure();
    mounted(&node, "/system/state");
    // STATE was not available to keep the record, META was.
    let last = node.ask(
        &node.admin(),
        &["get", "laststop", "last", "-o", "yaml"],
        SOON,
    );
    let words: Vec<&str> = last.split_whitespace().collect();
    let last = words.join(" ");
    assert!(
        last.contains("reason: reboot") && last.contains("is damaged and cannot be repaired"),
        "{last}"
    );
}

#[test]
#[ignore = "make test-vm"]
fn etcd_waits_while_its_volume_is_damaged() {
    let says = |node: &Node, part: &str| {
        node.until(part, SOON, || {
            let said = node.admin().call(&["logs", "machined"])?;
            said.contains(part).then_some(()).ok_or(said)
        });
    };
    let disk = NodeDisk::new("damaged-ephemeral", 4);
    let node = disk.start(|machine| machine);
    let kubernetes = ["--kubernetes-version", "1.37.2"];
    let clock = ["--config-patch", "machine: {time: {disabled: true}}"];
    let more = [kubernetes, clock].concat();
    generate_config_with(node.configs(), "https://10.0.2.15:6443", &more);
    node.configure();
    says(&node, "etcd: waiting: this node has no etcd data");
    switch_off(node);

    let (_, ephemeral) = superblocks(&disk);
    for part in ephemeral {
        disk.zero(part as u64 * MIB + 4, 508);
    }
    let node = disk.start(|machine| machine);
    node.ask(&node.admin(), &["version"], BOOT);
    let absent = "waiting: EPHEMERAL, which has the data of Kubernetes, is not mounted: ";
    says(&node, &format!("etcd: {absent}"));
    says(&node, &format!("kubelet: {absent}"));
}
