//! Promise: the power button, ctrl-alt-del, SIGTERM, and the API's reboot and shutdown end a node
//! cleanly and in time.

use serde_json::json;
use tests::chaos::{self, Agent};
use tests::node::{Node, ORDERLY, SOON};
use tests::{images, workspace};

#[test]
#[ignore = "make test-vm"]
fn power_button_shuts_down_a_node_without_a_config() {
    let boot = images::direct();
    let node = Node::start("power-button", |m| m.direct(boot));
    node.wait_maintenance();
    node.vm
        .qmp()
        .powerdown()
        .unwrap_or_else(|error| panic!("{error}"));
    node.wait_off(ORDERLY);
}

#[test]
#[ignore = "make test-vm"]
fn ctrl_alt_del_reboots_a_node_without_a_config() {
    let boot = images::direct();
    let node = Node::start("ctrl-alt-del", |m| m.direct(boot));
    node.wait_maintenance();
    let key = |name: &str| json!({"type": "qcode", "data": name});
    let keys = json!({"keys": [key("ctrl"), key("alt"), key("delete")]});
    node.expect_reset(ORDERLY, || {
        let sent = node.vm.qmp().execute("send-key", &keys);
        sent.unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
#[ignore = "make test-vm"]
fn sigterm_to_process_one_shuts_the_node_down() {
    const SIGTERM: u8 = 15;
    let dir = workspace::target().join("vm/sigterm-initramfs");
    let node = Node::start("sigterm", |m| chaos::add(m, &dir));
    node.wait_maintenance();
    Agent::connect(&node.vm).run(&format!("kill {SIGTERM} 1"));
    node.wait_off(ORDERLY);
}

#[test]
#[ignore = "make test-vm"]
fn reboot_then_shutdown_by_api() {
    let boot = images::direct();
    let node = Node::start("reboot-shutdown", |m| m.direct(boot));
    node.configure();
    node.expect_reset(ORDERLY, || {
        // The connection may end before the answer.
        let _maybe_answered = node.admin().call(&["reboot", "--wait=false"]);
    });
    // The config is not on a disk here, so that the node boots without one.
    node.wait_maintenance();
    node.configure();
    let refused = node.admin().call(&["reset", "--wait=false"]);
    let refused = refused.expect_err("no disk can be wiped");
    assert!(
        refused.contains("was started from a CD or the network"),
        "{refused}"
    );
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
}
