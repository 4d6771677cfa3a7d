//! Promise: a node with a config answers only its owner, however late its disk appears.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use qemu::Firmware;
use serde_json::json;
use tests::client::Client;
use tests::disk::NodeDisk;
use tests::images;
use tests::node::{BOOT, Node, ORDERLY, SOON};

/// Interval between two calls without a certificate.
const ASK: Duration = Duration::from_millis(100);
/// Delay of the disk after the kernel's start: the firmware has recorded the boot disk by then.
const AWAY: Duration = Duration::from_secs(30);

/// A disk with a node that has an owner.
fn owned(name: &str) -> NodeDisk {
    let disk = NodeDisk::new(name, 4);
    let node = disk.start(|machine| machine);
    node.configure();
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    disk
}

/// A client without a certificate that calls repeatedly.
struct Stranger {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<Vec<String>>,
}

impl Stranger {
    fn begin(client: Client) -> Stranger {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let asking = thread::spawn(move || {
            let mut answers = Vec::new();
            while !stopped.load(Ordering::Acquire) {
                answers.extend(client.call(&["version"]));
                thread::sleep(ASK);
            }
            answers
        });
        Stranger { stop, asking }
    }

    /// Stops the client; returns the answers it got.
    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        self.asking.join().expect("the thread")
    }
}

fn serves_its_owner_alone(node: &Node, stranger: Stranger) {
    node.ask(&node.admin(), &["version"], BOOT);
    let (device, _) = node.mount("/system/state");
    assert!(device.starts_with("/dev/sd"), "STATE is on {device}");
    assert_eq!(stranger.end(), Vec::<String>::new());
}

#[test]
#[ignore = "make test-vm"]
fn disk_behind_a_driver_module_is_mounted_before_any_anonymous_answer() {
    let disk = owned("late-module");
    let node = Node::start("late-module", |machine| {
        machine.direct(images::direct()).sockets(1)
    });
    let node = node.with_configs(disk.configs());
    let stranger = Stranger::begin(node.insecure());
    let qmp = node.vm.qmp();
    // Before the kernel scans its buses.
    let file = json!({"driver": "file", "filename": disk.path()});
    let drive = json!({"driver": "qcow2", "node-name": "late", "file": file});
    qmp.execute("blockdev-add", &drive).unwrap();
    let controller = json!({"driver": "megasas-gen2", "id": "raid", "bus": "socket1"});
    qmp.device_add(&controller).unwrap();
    let device = json!({"driver": "scsi-hd", "id": "disk", "bus": "raid.0", "drive": "late"});
    qmp.device_add(&device).unwrap();
    serves_its_owner_alone(&node, stranger);
}

#[test]
#[ignore = "make test-vm"]
fn disk_that_returns_after_the_boot_is_waited_for() {
    let disk = owned("late-stick");
    let raw = disk.to_raw();
    let node = Node::start("late-stick", |machine| {
        machine.firmware(Firmware::Uefi).usb(&raw)
    });
    let node = node.with_configs(disk.configs());
    let stranger = Stranger::begin(node.insecure());
    node.vm.wait_console("Linux version", BOOT).unwrap();
    let qmp = node.vm.qmp();
    qmp.device_del("stick0", SOON).unwrap();
    thread::sleep(AWAY);
    let file = json!({"driver": "file", "filename": raw});
    let drive = json!({"driver": "raw", "node-name": "late", "file": file});
    qmp.execute("blockdev-add", &drive).unwrap();
    let device = json!({"driver": "usb-storage", "id": "stick1", "bus": "usb0.0", "drive": "late"});
    qmp.device_add(&device).unwrap();
    serves_its_owner_alone(&node, stranger);
    std::fs::remove_file(raw).expect("the copy to go");
}
