//! Promise: a node knows the reason why its last boot ended, even if that boot could not record it.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use qemu::Firmware;
use serde_json::{Value, json};
use tests::disk::NodeDisk;
use tests::images;
use tests::lockup;
use tests::node::{BOOT, Node, SOON};

/// Port of trustd, on this host and on the node.
const PORT: u16 = 15001;
const TRUST_PORT: u16 = 50001;
/// A panic waits 10 s before it restarts the machine; the rest is for a slow host.
const PANIC: Duration = Duration::from_secs(120);
/// The kernel detects a locked-up processor after 10 to 25 s, and panics; the rest is for a slow
/// host.
const LOCKED_UP: Duration = Duration::from_secs(180);
/// A node's logs reach its disk within 2 s, and are then available to the next boot.
const KEPT: Duration = Duration::from_secs(10);
/// Attempts to lock up a processor without interrupts. The kernel detects it after 12 to 24 s, but
/// a processor that waits for it is detected after 20.
const TRIES: u32 = 4;

/// The spec of the node's `LastStop`.
fn last_stop(node: &Node) -> Value {
    let get = ["get", "laststop", "last", "-o", "json"];
    let text = node.ask(&node.admin(), &get, BOOT);
    let resource: Value = serde_json::from_str(&text).unwrap();
    resource.pointer("/spec").unwrap().clone()
}

/// A field of the spec.
fn said<'a>(last: &'a Value, field: &str) -> &'a str {
    last.get(field).and_then(Value::as_str).unwrap()
}

#[test]
#[ignore = "make test-vm"]
fn end_of_a_boot_is_known_to_the_next_boot() {
    let disk = NodeDisk::new("last-stop", 4);
    // The kernel's last messages go to UEFI variables.
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi).forward(PORT, TRUST_PORT));
    node.configure();
    let none = node.admin().call(&["get", "laststop", "last"]);
    assert!(none.is_err(), "the first boot has one before it: {none:?}");

    // A service without memory is killed, and restarts when it has memory again. trustd waits for
    // the time, and QEMU's network has no time server.
    node.apply_patch("machine: {time: {disabled: true}}\n");
    node.until_running("trustd");
    node.apply_patch(
        "machine: {time: {disabled: true}, sysfs: {fs/cgroup/system/trustd/memory.max: '65536'}}\n",
    );
    // A connection starts trustd.
    let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).unwrap();
    let killed = node
        .vm
        .wait_console("of service trustd was killed at", SOON);
    killed.unwrap_or_else(|error| panic!("{error}"));
    node.apply_patch("machine: {time: {disabled: true}}\n");
    node.expect_reset(SOON, || {
        // The connection may end before the answer.
        let _maybe_answered = node.admin().call(&["reboot", "--wait=false"]);
    });
    let last = last_stop(&node);
    assert_eq!(last["reason"], "reboot", "{last}");
    assert_eq!(last["killed"][0]["service"], "trustd", "{last}");
    let asked = last["detail"].as_str().unwrap();
    let who = asked.strip_prefix("requested through the API by ").unwrap();
    assert!(who.starts_with("roles=os:admin serial="), "{who}");
    let audit = node.ask(&node.admin(), &["logs", "--previous", "audit"], SOON);
    let line = audit.lines().find(|line| line.contains("/Reboot "));
    assert!(
        line.is_some_and(|line| line.contains(who)),
        "{who}: {audit}"
    );
    let said = node.ask(&node.admin(), &["logs", "--previous", "machined"], SOON);
    assert!(said.contains("requested through the API"), "{said}");
    let kernel = node.ask(&node.admin(), &["dmesg", "--previous"], SOON);
    assert!(kernel.contains("[corten] "), "{kernel}");

    // An NMI, like the NMI button of a server.
    std::thread::sleep(KEPT);
    node.expect_reset(PANIC, || {
        let pressed = node.vm.qmp().execute("inject-nmi", &json!(null));
        pressed.unwrap_or_else(|error| panic!("{error}"));
    });
    panicked(&node);

    std::thread::sleep(KEPT);
    node.vm.kill();
    drop(node);
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi));
    was_cut_off(&node);
}

/// Checks a boot's record of the boot before it, which panicked; the one before that ended by a
/// reboot.
fn panicked(node: &Node) {
    let last = last_stop(node);
    assert_eq!(said(&last, "reason"), "panic", "{last}");
    let log = said(&last, "kernelLog");
    let panic = "Kernel panic - not syncing: NMI";
    assert!(log.contains(panic), "{log}");
    // syslogd was not stopped. Each boot's log is identified by its message about the previous
    // boot.
    let log = node.ask(&node.admin(), &["logs", "--previous", "machined"], SOON);
    assert!(log.contains("the previous boot ended by a reboot"), "{log}");
    let kernel = node.ask(&node.admin(), &["dmesg", "--previous"], SOON);
    let (kept, words) = kernel.split_once("[the kernel's last messages").unwrap();
    assert!(kept.contains("[corten] "), "{kernel}");
    assert!(words.contains(panic), "{kernel}");

    let get = ["get", "machinestatus", "machine", "-o", "json"];
    node.until("the end of the boot", BOOT, || {
        let text = node.admin().call(&get)?;
        let booted = text.contains("\"running\"");
        booted.then_some(()).ok_or(text)
    });
}

/// Checks a boot's record of the boot before it, which lost its power; the one before that
/// panicked.
fn was_cut_off(node: &Node) {
    let last = last_stop(node);
    assert_eq!(said(&last, "reason"), "cut-off", "{last}");
    // That boot reported the earlier panic, which must not count as its own.
    assert_eq!(said(&last, "kernelLog"), "", "{last}");
    let log = node.ask(&node.admin(), &["logs", "--previous", "machined"], SOON);
    assert!(log.contains("the previous boot ended by a panic"), "{log}");
    let kernel = node.ask(&node.admin(), &["dmesg", "--previous"], SOON);
    assert!(kernel.contains("[corten] "), "{kernel}");
    assert!(!kernel.contains("[the kernel's last messages"), "{kernel}");
}

#[test]
#[ignore = "make test-vm"]
fn boot_cut_off_before_its_last_phase_is_known_to_the_next_boot() {
    let disk = NodeDisk::new("last-stop-early", 4);
    // That address does not answer: the boot waits in its second phase of three, forever.
    let start = || {
        let mut boot = images::direct();
        boot.append.push_str(" corten.config=http://10.0.2.2:9/");
        let node = disk.start(|machine| machine.direct(boot));
        let waits = node.vm.wait_console("asking again in", BOOT);
        waits.unwrap_or_else(|error| panic!("{error}"));
        node
    };
    let node = start();
    let console = node.vm.console().text();
    assert!(!console.contains("the previous boot ended"), "{console}");
    node.vm.kill();
    drop(node);
    let node = start();
    let console = node.vm.console().text();
    assert!(!console.contains("boot 3/3"), "{console}");
    let cut_off = "the previous boot ended by the loss of power, or a reset from outside";
    assert!(console.contains(cut_off), "{console}");
}

#[test]
#[ignore = "make test-vm"]
fn soft_lockup_is_recorded() {
    let node = node_with_variables("soft-lockup");
    let log = words_of_a_lockup(&node, lockup::stays_in_the_kernel);
    assert!(log.contains("BUG: soft lockup - CPU#"), "{log}");
    let panic = "Kernel panic - not syncing: softlockup";
    assert!(log.contains(panic), "{log}");
}

#[test]
#[ignore = "make test-vm"]
fn hard_lockup_is_recorded() {
    let node = node_with_variables("hard-lockup");
    // Another processor may wait for the locked-up one, and be reported in its place.
    let recorded = (0..TRIES).any(|_| {
        let log = words_of_a_lockup(&node, lockup::takes_no_interrupts);
        log.contains("Kernel panic - not syncing: Hard LOCKUP")
    });
    assert!(recorded, "only processors that waited for it are recorded");
}

/// A node in a machine that keeps the kernel's last messages. Under a hypervisor a lockup panics
/// only if the config says so.
fn node_with_variables(name: &str) -> Node {
    let disk = NodeDisk::new(name, 4);
    let node = disk.start(|machine| machine.firmware(Firmware::Uefi));
    node.configure();
    let keys = ["kernel.softlockup_panic", "kernel.hardlockup_panic"];
    let is = |value: &str| {
        let shown = keys.map(|key| {
            let path = format!("/proc/sys/{}", key.replace('.', "/"));
            node.admin().call(&["read", &path])
        });
        let wrong = shown.into_iter().find(|one| {
            let read = one.as_ref().map(|text| text.trim());
            read != Ok(value)
        });
        wrong.map_or(Ok(()), |one| Err(format!("{one:?}")))
    };
    node.until("lockups reported only", SOON, || is("0"));
    let [soft, hard] = keys;
    node.apply_patch(&format!(
        "machine: {{sysctls: {{{soft}: '1', {hard}: '1'}}}}\n"
    ));
    node.until("lockups that are panics", SOON, || is("1"));
    node
}

/// The kernel's last messages from a boot with a locked-up processor.
fn words_of_a_lockup(node: &Node, lock_up: impl FnOnce(&Node)) -> String {
    node.expect_reset(LOCKED_UP, || lock_up(node));
    let last = last_stop(node);
    assert_eq!(said(&last, "reason"), "panic", "{last}");
    said(&last, "kernelLog").to_owned()
}
