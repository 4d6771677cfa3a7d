//! Promise: a disk and a network card that are plugged into a node that runs are found and named, and forgotten when
//! they are pulled out.

use qemu::Firmware;
use serde_json::json;
use tests::disk::NodeDisk;
use tests::node::{Node, SOON};

const SERIAL: &str = "corten-plugged";
const MAC: &str = "52:54:00:c0:37:e2";
/// The link udevd makes for a disk with a serial number.
const LINK: &str = "virtio-corten-plugged";

/// Waits until the node's answer has the text, or has it no more.
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
fn a_disk_and_a_card_come_and_go() {
    let node =
        NodeDisk::new("hotplug", 4).start(|machine| machine.firmware(Firmware::Uefi).sockets(2));
    node.configure();
    let (disks, links) = (
        ["get", "disks", "-o", "yaml"],
        ["get", "links", "-o", "yaml"],
    );
    let by_id = ["list", "/dev/disk/by-id"];
    for round in 1..=2 {
        let qmp = node.vm.qmp();
        // An empty disk that keeps nothing.
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
        // Named by its place on the bus, as cards are that were there from the start.
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
