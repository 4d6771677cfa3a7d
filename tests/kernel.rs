//! Promise: the config's kernel parameters apply as long as the config has them, and the watchdog
//! resets a machine whose kernel hangs.

use std::time::Duration;

use serde_json::json;
use tests::chaos::{self, Agent};
use tests::node::{BOOT, Node, SOON};
use tests::{images, workspace};

/// The shortest watchdog timeout, plus time for a slow host.
const HUNG: Duration = Duration::from_secs(120);

#[test]
#[ignore = "make test-vm"]
fn kernel_parameters_are_set_and_restored() {
    let dir = workspace::target().join("vm/kernel-initramfs");
    let node = Node::start("kernel", |m| chaos::add(m, &dir));
    node.configure();
    let mut agent = Agent::connect(&node.vm);
    let mut swappiness = || agent.run("cat /proc/sys/vm/swappiness").trim().to_owned();
    let before = swappiness();
    assert_ne!(before, "17");
    node.apply_patch("machine: {sysctls: {vm.swappiness: '17'}}\n");
    let mut becomes = |value: &str| {
        node.until("swappiness", SOON, || match swappiness() {
            now if now == value => Ok(()),
            now => Err(now),
        });
    };
    becomes("17");
    let shown = node.ask(&node.admin(), &["get", "sysctls"], SOON);
    assert!(shown.contains("proc.sys.vm.swappiness"), "{shown}");
    node.apply_patch("machine: {sysctls: {}}\n");
    becomes(&before);
}

#[test]
#[ignore = "make test-vm"]
fn a_hung_kernel_is_reset() {
    let boot = images::direct();
    let node = Node::start("watchdog", |m| m.watchdog().direct(boot));
    node.configure();
    // Without a timeout, a panic halts the machine until the watchdog resets it.
    node.apply_patch(
        "machine: {sysctls: {kernel.panic: '0'}}\n---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 30s\n",
    );
    node.until("a watchdog that is fed", SOON, || {
        let shown = node.admin().call(&["get", "watchdogtimerstatus"])?;
        if shown.contains("/dev/watchdog0") {
            Ok(())
        } else {
            Err(shown)
        }
    });
    let before = node.vm.qmp().events().len();
    let pressed = node.vm.qmp().execute("inject-nmi", &json!(null));
    pressed.unwrap_or_else(|error| panic!("{error}"));
    let reset = node
        .vm
        .qmp()
        .wait_event("reset by the watchdog", before, HUNG, |event| {
            event.name == "WATCHDOG"
        });
    reset.unwrap_or_else(|error| panic!("{error}"));
    // The watchdog device itself reports the reset; the node needs no state for that.
    let known = "the previous boot ended by a reset by the watchdog";
    let told = node.vm.wait_console(known, BOOT);
    told.unwrap_or_else(|error| panic!("{error}"));
}
