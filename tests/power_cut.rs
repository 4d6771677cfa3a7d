//! Promise: after a power cut at any moment the node comes back with its old config or the new one.
#![expect(clippy::panic, reason = "a failing step is a failing test")]

use std::time::{Duration, Instant};

use qemu::Machine;
use serde_json::Value;
use tests::disk::NodeDisk;
use tests::images;
use tests::moments::Moments;
use tests::node::{BOOT, Node, SOON};

/// Power cuts in each of the two tests.
const CUTS: u32 = 15;

fn direct(machine: Machine) -> Machine {
    machine.direct(images::direct())
}

/// Checks that the node reports both volumes.
fn volumes_are_mounted(node: &Node) {
    let console = node.vm.console().text();
    assert!(
        console.contains("volumes: STATE and EPHEMERAL"),
        "the volumes are not mounted"
    );
}

#[test]
#[ignore = "make test-vm"]
fn node_survives_a_power_cut_during_the_first_boot() {
    let mut moments = Moments::new();
    for _ in 0..CUTS {
        let disk = NodeDisk::new("power-cut", 4);
        let node = disk.start(direct);
        node.vm
            .wait_console("boot 1/3", BOOT)
            .unwrap_or_else(|error| panic!("{error}"));
        // The node makes the volumes within a second or two from here.
        std::thread::sleep(moments.next(Duration::from_secs(3)));
        node.vm.kill();
        drop(node);
        let node = disk.start(direct);
        node.wait_maintenance();
        volumes_are_mounted(&node);
    }
}

#[test]
#[ignore = "make test-vm"]
fn node_survives_a_power_cut_while_a_config_is_written() {
    let mut moments = Moments::new();
    let disk = NodeDisk::new("power-cut-config", 4);
    let mut node = disk.start(direct);
    node.configure();
    let file = node.configs().join("controlplane.yaml");
    // The config sets the hostname: without a UUID of the machine, an unnamed node has another name
    // at each boot.
    let mut before = "before".to_owned();
    let begun = Instant::now();
    node.apply_patch(&named(&before));
    // Half of the cuts come before this moment, half after it; it converges to the moment when the
    // config is written.
    let mut middle = begun.elapsed();
    let (mut old, mut written) = (0, 0);
    node.until("its name", SOON, || match hostname(&node) {
        name if name == before => Ok(()),
        name => Err(name),
    });
    for cut in 0..CUTS {
        let new = format!("cut-{cut}");
        let patch = named(&new);
        let file = file.display().to_string();
        std::thread::scope(|scope| {
            let client = node.admin();
            // The outcome of the call depends on the moment.
            scope.spawn(move || {
                client.call(&["apply-config", "-f", &file, "--config-patch", &patch])
            });
            std::thread::sleep(moments.next(middle * 2));
            node.vm.kill();
        });
        drop(node);
        node = disk.start(direct);
        // The node still belongs to its owner, so that it has one of the two configs, complete.
        node.ask(&node.admin(), &["version"], BOOT);
        volumes_are_mounted(&node);
        let now = hostname(&node);
        assert!(
            now == before || now == new,
            "{now} is neither {before} nor {new}"
        );
        if now == new {
            written += 1;
            middle = middle * 3 / 4;
        } else {
            old += 1;
            middle = middle * 4 / 3;
        }
        before = now;
    }
    // Otherwise no cut was near the moment of the write.
    assert!(
        old > 0 && written > 0,
        "{old} cuts came before the config was written, {written} behind it"
    );
}

/// A patch with a hostname for the node.
fn named(name: &str) -> String {
    format!("machine: {{network: {{hostname: {name}}}}}")
}

fn hostname(node: &Node) -> String {
    let text = node.ask(&node.admin(), &["get", "hostname", "-o", "json"], SOON);
    let resource: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let name = resource.pointer("/spec/hostname").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}
