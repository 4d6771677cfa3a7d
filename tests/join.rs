//! Promise: a worker gets its certificate from a control plane node with the cluster's token, and
//! never without it.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::path::Path;
use std::time::Duration;

use qemu::Wire;
use tests::client::{Client, Table, generate_config_with};
use tests::images;
use tests::node::{Node, SOON};

/// Timeout of a join. Without KVM two machines share the host's cores, and a refused worker waits
/// up to 15 s before its next attempt.
const JOIN: Duration = Duration::from_secs(300);

/// The patches for a node on the wire. QEMU's network has no time server, and trustd waits for the
/// time.
fn patch(mac: &str, address: &str, hostname: &str) -> String {
    format!(
        "machine: {{time: {{disabled: true}}, network: {{hostname: {hostname}, interfaces: [\
         {{deviceSelector: {{hardwareAddr: '{mac}'}}, addresses: [{address}/24], dhcp: false}}]}}}}"
    )
}

/// Lets the nodes give secrets to calls that the control plane node forwards. `rotate-ca` reads the keys of nodes that
/// this machine reaches through that node alone.
const FORWARDS_SECRETS: &str = "{apiVersion: v1alpha1, kind: ForwardingConfig, secrets: accept}";

/// One end of the wire.
fn wire(directory: &Path, own: &str, other: &str, mac: &str) -> Wire {
    Wire {
        local: directory.join(own),
        remote: directory.join(other),
        mac: mac.to_owned(),
    }
}

const CONTROL_PLANE: &str = "52:54:00:00:01:01";
const WORKER: &str = "52:54:00:00:01:02";
/// The control plane's NIC on the wire to the second worker, and that worker's.
const CONTROL_PLANE_2: &str = "52:54:00:00:02:01";
const WORKER_2: &str = "52:54:00:00:02:02";
/// A well-formed token of no cluster.
const WRONG: &str = "aaaaaa.aaaaaaaaaaaaaaaa";

/// A control plane node on two wires, with trustd running.
fn control_plane(ends: &Path) -> Node {
    let node = Node::start("join-controlplane", |m| {
        m.direct(images::direct())
            .wire(wire(ends, "a", "b", CONTROL_PLANE))
            .wire(wire(ends, "c", "d", CONTROL_PLANE_2))
    });
    generate_config_with(
        node.configs(),
        "https://10.99.0.1:6443",
        &[
            "--config-patch",
            FORWARDS_SECRETS,
            "--config-patch-control-plane",
            &patch(CONTROL_PLANE, "10.99.0.1", "cp-1"),
            "--config-patch-control-plane",
            &patch(CONTROL_PLANE_2, "10.98.0.1", "cp-1"),
            "--config-patch-worker",
            &patch(WORKER, "10.99.0.2", "worker-1"),
        ],
    );
    node.configure();
    let admin = node.admin();
    node.until("trustd", JOIN, || {
        let listed = admin.call(&["services"])?;
        let trustd = listed.lines().find(|line| line.contains("trustd"));
        match trustd {
            Some(line) if line.contains("Running") => Ok(()),
            _ => Err(listed),
        }
    });
    node
}

/// A node without a config on the other end of a wire.
fn newcomer(name: &str, wire: Wire, configs: &Path) -> Node {
    let node = Node::start(name, |m| m.direct(images::direct()).wire(wire))
        .with_configs(configs.to_owned());
    node.wait_maintenance();
    node
}

fn apply(node: &Node, file: &Path) {
    let file = file.to_str().expect("UTF-8 path");
    let applied = node.insecure().call(&["apply-config", "-f", file]);
    applied.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
#[ignore = "make test-vm"]
fn worker_joins_only_with_the_token() {
    let sockets = tempfile::tempdir().unwrap();
    let control_plane = control_plane(sockets.path());
    let (admin, configs) = (control_plane.admin(), control_plane.configs());
    let good = std::fs::read_to_string(configs.join("worker.yaml")).unwrap();
    let token = good
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .map(|token| token.trim_matches(['"', '\'']).to_owned())
        .unwrap();

    // A worker with another cluster's token is refused, and both sides report it.
    let first_wire = || wire(sockets.path(), "b", "a", WORKER);
    let worker = newcomer("join-worker", first_wire(), configs);
    let wrong = worker.vm.dir().join("wrong.yaml");
    std::fs::write(&wrong, good.replacen(&token, WRONG, 1)).unwrap();
    apply(&worker, &wrong);
    let refused = |logs: &str| logs.contains("10.99.0.2") && logs.contains("token is wrong");
    control_plane.until("a refused worker in trustd's log", JOIN, || {
        let logs = admin.call(&["logs", "trustd"])?;
        if refused(&logs) { Ok(()) } else { Err(logs) }
    });
    let console = worker.until("the reason on the worker's console", JOIN, || {
        let console = worker.vm.console().text();
        if console.contains("the token is wrong") {
            Ok(console)
        } else {
            Err("no message about a token".to_owned())
        }
    });
    assert!(!console.contains(WRONG), "the token is on the console");
    // A worker that waits for its certificate answers neither strangers nor its owner.
    worker.insecure().call(&["version"]).unwrap_err();
    worker.admin().call(&["version"]).unwrap_err();
    drop(worker);

    // A machine with the right token joins, and answers only the cluster's owner.
    let worker = newcomer("join-worker-again", first_wire(), configs);
    apply(&worker, &configs.join("worker.yaml"));
    worker.ask(&worker.admin(), &["version"], JOIN);
    let status = worker.ask(&worker.admin(), &["get", "certificatestatus"], SOON);
    assert!(status.contains("10.99.0.1"), "{status}");
    let logs = control_plane.ask(&admin, &["logs", "trustd"], SOON);
    assert!(logs.contains("certificate for \"worker-1\""), "{logs}");
    assert!(!logs.contains(token.as_str()), "the token is in the log");
    worker.insecure().call(&["version"]).unwrap_err();

    let third = second_worker(sockets.path(), configs);
    one_asks_for_all(&control_plane, third);
    another_ca(&control_plane);
}

/// A worker on the control plane's other wire.
fn second_worker(ends: &Path, configs: &Path) -> Node {
    let node = newcomer("join-worker-2", wire(ends, "d", "c", WORKER_2), configs);
    let worker = std::fs::read_to_string(configs.join("worker.yaml")).expect("worker.yaml");
    // The control plane node has another address on this wire.
    let config = [("10.99.0.1", "10.98.0.1"), ("10.99.0.2", "10.98.0.2")]
        .into_iter()
        .chain([(WORKER, WORKER_2), ("worker-1", "worker-2")])
        .fold(worker, |text, (from, to)| text.replace(from, to));
    let file = node.vm.dir().join("worker-2.yaml");
    std::fs::write(&file, config).expect("room for a config");
    apply(&node, &file);
    node.ask(&node.admin(), &["version"], JOIN);
    node
}

/// A control plane node proxies calls to the other nodes; a node that is down affects only its own
/// row.
fn one_asks_for_all(control_plane: &Node, third: Node) {
    let admin = control_plane.admin();
    let all = ["10.99.0.1", "10.99.0.2", "10.98.0.2"];
    let memory = ["-n", &all.join(","), "memory"];
    let table = Table::parse(&control_plane.ask(&admin, &memory, SOON));
    assert_eq!(
        table.headers,
        [
            "NODE",
            "TOTAL",
            "USED",
            "FREE",
            "SHARED",
            "BUFFERS",
            "CACHE",
            "AVAILABLE"
        ]
    );
    assert_eq!(table.column("NODE"), all);
    let health = [
        "health",
        "--wait-timeout=15s",
        "--control-plane-nodes=10.99.0.1",
        "--worker-nodes=10.99.0.2,10.98.0.2",
    ];
    let told = admin
        .call(&health)
        .expect_err("no cluster was bootstrapped");
    let waits = "waiting for etcd to be healthy: this node: it has no working etcd member";
    assert!(told.contains(waits), "{told}");
    drop(third);
    let failed = admin.call(&memory).expect_err("one of three nodes is down");
    let says = |node: &str| failed.lines().any(|line| line.contains(node));
    assert!(all.iter().all(|node| says(node)), "{failed}");
    assert!(failed.contains("exit status: 1"), "{failed}");
    let rows = |node: &str| failed.lines().filter(|line| line.starts_with(node)).count();
    assert_eq!((rows(all[0]), rows(all[1])), (1, 1), "{failed}");
}

/// Rotates the CA of the two remaining nodes: the new client config opens both, the old one
/// neither.
fn another_ca(control_plane: &Node) {
    let (admin, file) = (
        control_plane.admin(),
        control_plane.configs().join("rotated"),
    );
    let output = file.to_str().expect("UTF-8 path");
    let nodes = [
        "--control-plane-nodes=10.99.0.1",
        "--worker-nodes=10.99.0.2",
    ];
    let rotate = |more: &[&str]| {
        let arguments = [&["rotate-ca", "-o", output], &nodes[..], more].concat();
        admin
            .call_within(JOIN, &arguments)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    rotate(&[]);
    assert!(!file.exists(), "a dry run wrote {output}");
    rotate(&["--dry-run=false"]);
    let rotated = Client::with_config(control_plane.vm.api(), &file);
    let memory = ["-n", "10.99.0.1,10.99.0.2", "memory"];
    let table = Table::parse(&control_plane.ask(&rotated, &memory, SOON));
    assert_eq!(table.column("NODE"), ["10.99.0.1", "10.99.0.2"]);
    admin.call(&["version"]).expect_err("the CA before");
}
