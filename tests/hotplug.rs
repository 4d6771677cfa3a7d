//! Promise: a node finds and names a disk and a network card that are plugged in at run time. It forgets unplugged
//! ones. A disk with the partitions of another node changes nothing. A disk that does not answer delays no other
//! device.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use qemu::Firmware;
use serde_json::json;
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};
use tests::workspace;

const SERIAL: &str = "corten-plugged";
const MAC: &str = "52:54:00:c0:37:e2";
/// The link udevd makes for a disk with a serial number.
const LINK: &str = "virtio-corten-plugged";

/// Mode, owner and group of the first serial port, which is for the group dialout. The kernel gives it to root alone.
const PORT: [&str; 3] = ["Dcrw-rw----", "0", "20"];

/// A file on EPHEMERAL, written by the config.
const LEFT: &str = "/var/left";
const WRITTEN: &str = "machine: {files: [{path: /var/left, content: of before, op: create}]}\n";

/// The serial number of the node's system disk, which holds STATE.
fn system_disk(node: &Node) -> String {
    let (admin, of) = (node.admin(), "jsonpath={.spec.diskID}");
    let id = node.ask(
        &admin,
        &["get", "systemdisk", "system-disk", "-o", of],
        SOON,
    );
    let id = id.trim();
    let (state, _) = node.mount("/system/state");
    let disk = format!("/dev/{id}");
    assert!(state.starts_with(&disk), "STATE is on {state}, not on {id}");
    let serial = ["get", "disks", id, "-o", "jsonpath={.spec.serial}"];
    node.ask(&admin, &serial, SOON).trim().to_owned()
}

/// Waits until the node's answer contains the text, or no longer contains it.
fn until(node: &Node, call: &[&str], text: &str, is_there: bool) -> String {
    let admin = node.admin();
    let what = if is_there { "in" } else { "gone from" };
    node.until(&format!("{text} {what} {call:?}"), SOON, || {
        let answer = admin.call(call)?;
        if answer.contains(text) == is_there {
            Ok(answer)
        } else {
            Err(answer)
        }
    })
}

#[test]
#[ignore = "make test-vm"]
fn hotplugged_disk_and_network_card_appear_and_disappear() {
    let node =
        NodeDisk::new("hotplug", 4).start(|machine| machine.firmware(Firmware::Uefi).sockets(2));
    node.configure();
    let devices = node.ask(&node.admin(), &["list", "-l", "/dev"], SOON);
    let port = devices.lines().find(|line| line.ends_with(" ttyS0"));
    let port: Vec<&str> = port.unwrap_or_default().split_whitespace().collect();
    assert_eq!(port.get(1..4), Some(&PORT[..]), "{devices}");
    let log = node.ask(&node.admin(), &["logs", "udevd"], SOON);
    assert!(!log.contains("WARN"), "{log}");
    let (disks, links) = (
        ["get", "disks", "-o", "yaml"],
        ["get", "links", "-o", "yaml"],
    );
    let by_id = ["list", "/dev/disk/by-id"];
    for round in 1..=2 {
        let qmp = node.vm.qmp();
        // An empty disk that discards writes.
        let disk = json!({"driver": "null-co", "node-name": "plugged", "size": 1 << 30, "read-zeroes": true});
        qmp.execute("blockdev-add", &disk).unwrap();
        let device = json!({"driver": "virtio-blk-pci", "id": "disk", "bus": "socket1", "drive": "plugged", "serial": SERIAL});
        qmp.device_add(&device).unwrap();
        let wire = json!({"type": "hubport", "id": "wire", "hubid": 7});
        qmp.execute("netdev_add", &wire).unwrap();
        let device = json!({"driver": "virtio-net-pci", "id": "card", "bus": "socket2", "netdev": "wire", "mac": MAC});
        qmp.device_add(&device).unwrap();

        until(&node, &disks, SERIAL, true);
        until(&node, &by_id, LINK, true);
        let text = until(&node, &links, MAC, true);
        // The card is named by its place on the bus, like cards present at boot.
        assert!(!text.contains("id: eth"), "round {round}: {text}");

        qmp.device_del("disk", SOON).unwrap();
        qmp.device_del("card", SOON).unwrap();
        qmp.execute("blockdev-del", &json!({"node-name": "plugged"}))
            .unwrap();
        qmp.execute("netdev_del", &json!({"id": "wire"})).unwrap();
        until(&node, &disks, SERIAL, false);
        until(&node, &by_id, LINK, false);
        until(&node, &links, MAC, false);
    }
    node.ask(&node.admin(), &["version"], SOON);
}

#[test]
#[ignore = "make test-vm"]
fn disk_of_another_node_is_not_used() {
    let disk = NodeDisk::new("stranger", 4);
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi).sockets(1));
    node.configure();
    let own = system_disk(&node);
    assert!(!own.is_empty());

    let stick = workspace::target().join("vm").join("stranger.raw");
    File::create(&stick).unwrap().set_len(64 << 20).unwrap();
    let mut sfdisk = Command::new("/sbin/sfdisk");
    sfdisk.args(["--quiet", "--label", "gpt"]).arg(&stick);
    let mut sfdisk = sfdisk.stdin(Stdio::piped()).spawn().unwrap();
    let table = "size=1MiB, name=META\nname=STATE\n";
    std::io::Write::write_all(&mut sfdisk.stdin.take().unwrap(), table.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let strangers = fs::read(&stick).unwrap();
    let qmp = node.vm.qmp();
    let file = json!({"driver": "file", "filename": stick});
    let plugged = json!({"driver": "raw", "node-name": "plugged", "file": file});
    qmp.execute("blockdev-add", &plugged).unwrap();
    let device = json!({"driver": "virtio-blk-pci", "id": "disk", "bus": "socket1", "drive": "plugged", "serial": SERIAL});
    qmp.device_add(&device).unwrap();
    until(&node, &["get", "discoveredvolumes"], "vdb1", true);
    assert_eq!(system_disk(&node), own);
    node.ask(&node.admin(), &["meta", "write", "0x4d", "kept"], SOON);

    // The firmware identifies the boot disk, and the node still knows its owner.
    let staged = ["--mode", "staged"];
    node.apply_patch_as(&node.admin(), WRITTEN, &staged);
    node.expect_reset(ORDERLY, || {
        let asked = node.admin().call(&["reboot", "--wait=false"]);
        asked.unwrap_or_else(|error| panic!("{error}"));
    });
    node.ask(&node.admin(), &["version"], BOOT);
    until(&node, &["get", "disks", "-o", "yaml"], SERIAL, true);
    assert_eq!(system_disk(&node), own);
    let left = node.ask(&node.admin(), &["read", LEFT], SOON);
    assert_eq!(left.trim_end(), "of before");
    let values = ["get", "meta", "-o", "jsonpath={.spec.value}"];
    until(&node, &values, "kept", true);
    // A reset wipes the right disk. A file that the config no longer has stays otherwise.
    node.apply_patch_as(&node.admin(), "machine: {}\n", &staged);
    node.expect_reset(ORDERLY, || {
        let reset = ["reset", "--graceful=false", "--reboot", "--wait=false"];
        let labels = ["--system-labels-to-wipe", "EPHEMERAL"];
        let asked = node.admin().call(&[&reset[..], &labels].concat());
        asked.unwrap_or_else(|error| panic!("{error}"));
    });
    node.ask(&node.admin(), &["version"], BOOT);
    until(&node, &["get", "disks", "-o", "yaml"], SERIAL, true);
    assert_eq!(system_disk(&node), own);
    // containerd starts only after EPHEMERAL is mounted.
    node.until_running("containerd");
    node.mount("/var");
    let gone = node.admin().call(&["read", LEFT]).unwrap_err();
    assert!(gone.contains("(NotFound)"), "{gone}");
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);
    let now = fs::read(&stick).unwrap();
    assert!(now == strangers, "the other node's disk was written to");
}

/// Length in bytes of the disk that does not answer.
const LENGTH: u64 = 64 << 20;

#[test]
#[ignore = "make test-vm"]
fn unresponsive_disk_does_not_block_other_disks() {
    let disk = NodeDisk::new("slow-disk", 4);
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi).sockets(2));
    node.configure();
    let admin = node.admin();
    let qmp = node.vm.qmp();
    let path = workspace::target().join("vm").join("slow.raw");
    File::create(&path).unwrap().set_len(LENGTH).unwrap();
    let file = json!({"driver": "file", "filename": path});
    let slow = json!({"driver": "raw", "node-name": "slow", "file": file});
    qmp.execute("blockdev-add", &slow).unwrap();
    let device = json!({"driver": "virtio-blk-pci", "id": "slow", "bus": "socket1", "drive": "slow", "serial": "corten-slow"});
    qmp.device_add(&device).unwrap();
    let disks = ["get", "disks", "-o", "yaml"];
    until(&node, &disks, "corten-slow", true);

    // One byte a second. The kernel reports the new length, and udevd probes the disk.
    let throttle = |bytes: u64| {
        let device = "/machine/peripheral/slow/virtio-backend";
        let limit = json!({"id": device, "bps": bytes, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0});
        qmp.execute("block_set_io_throttle", &limit).unwrap();
    };
    throttle(1);
    // Only once: QEMU completes pending requests at every change of the length.
    let longer = json!({"node-name": "slow", "size": LENGTH + (1 << 20)});
    qmp.execute("block_resize", &longer).unwrap();
    node.until("udevd names the disk", SOON, || {
        let said = admin.call(&["logs", "udevd"])?;
        if said.contains("vdb: it does not answer") {
            Ok(())
        } else {
            Err(said)
        }
    });

    let other =
        json!({"driver": "null-co", "node-name": "plugged", "size": 1 << 30, "read-zeroes": true});
    qmp.execute("blockdev-add", &other).unwrap();
    let device = json!({"driver": "virtio-blk-pci", "id": "disk", "bus": "socket2", "drive": "plugged", "serial": SERIAL});
    qmp.device_add(&device).unwrap();
    until(&node, &disks, SERIAL, true);
    until(&node, &["list", "/dev/disk/by-id"], LINK, true);
    node.until_running("udevd");
    throttle(0);
    node.ask(&admin, &["version"], SOON);
}
