//! Promise: a worker gets its certificate from a control plane node by the
//! cluster's token, and without the token from nobody.

use std::path::Path;
use std::time::Duration;

use qemu::Wire;
use tests::client::{Client, generate_config_with};
use tests::images;
use tests::node::{Node, SOON};

/// Without KVM two machines share the host's cores, and a refused worker waits
/// up to 15 s before it asks again.
const JOIN: Duration = Duration::from_secs(300);

/// The patches that put a node on the wire. QEMU's own network has no time
/// server, and trustd waits for the time.
fn patch(mac: &str, address: &str, hostname: &str) -> String {
    format!(
        "machine: {{time: {{disabled: true}}, network: {{hostname: {hostname}, interfaces: [\
         {{deviceSelector: {{hardwareAddr: '{mac}'}}, addresses: [{address}/24], dhcp: false}}]}}}}"
    )
}

/// One end of the wire.
fn wire(directory: &Path, own: &str, other: &str, mac: &str) -> Wire {
    Wire {
        local: directory.join(own),
        remote: directory.join(other),
        mac: mac.to_owned(),
    }
}

#[test]
#[ignore = "make test-vm"]
fn a_worker_joins_by_the_token_and_not_without() {
    const CONTROL_PLANE: &str = "52:54:00:00:01:01";
    const WORKER: &str = "52:54:00:00:01:02";
    let sockets = tempfile::tempdir().unwrap();
    let (boot, ends) = (images::direct(), sockets.path());
    let control_plane = Node::start("join-controlplane", |m| {
        m.direct(boot.clone())
            .wire(wire(ends, "a", "b", CONTROL_PLANE))
    });
    let configs = control_plane.vm.dir().join("config");
    generate_config_with(
        &configs,
        "https://10.99.0.1:6443",
        &[
            "--config-patch-control-plane",
            &patch(CONTROL_PLANE, "10.99.0.1", "cp-1"),
            "--config-patch-worker",
            &patch(WORKER, "10.99.0.2", "worker-1"),
        ],
    );
    control_plane.configure();
    let admin = control_plane.admin();
    control_plane.until("trustd", JOIN, || {
        let listed = admin.call(&["services"])?;
        let trustd = listed.lines().find(|line| line.contains("trustd"));
        match trustd {
            Some(line) if line.contains("Running") => Ok(()),
            _ => Err(listed),
        }
    });

    let worker = Node::start("join-worker", |m| {
        m.direct(boot).wire(wire(ends, "b", "a", WORKER))
    })
    .with_configs(configs.clone());
    worker.wait_maintenance();
    // With another cluster's token it is refused, and both sides say so.
    let good = std::fs::read_to_string(configs.join("worker.yaml")).unwrap();
    let token = good
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .map(|token| token.trim_matches(['"', '\'']).to_owned())
        .unwrap();
    let wrong = worker.vm.dir().join("wrong.yaml");
    std::fs::write(&wrong, good.replacen(&token, "aaaaaa.aaaaaaaaaaaaaaaa", 1)).unwrap();
    worker
        .insecure()
        .call(&["apply-config", "-f", wrong.to_str().unwrap()])
        .unwrap();
    let refused = |logs: &str| logs.contains("10.99.0.2") && logs.contains("token is wrong");
    control_plane.until("a refused worker in trustd's log", JOIN, || {
        let logs = admin.call(&["logs", "trustd"])?;
        if refused(&logs) { Ok(logs) } else { Err(logs) }
    });
    let console = worker.until("the reason on the worker's console", JOIN, || {
        let console = worker.vm.console().text();
        if console.contains("the token is wrong") {
            Ok(console)
        } else {
            Err("nothing about a token".to_owned())
        }
    });
    assert!(
        !console.contains("aaaaaa.aaaa"),
        "the token is on the console"
    );
    // Nobody gets in meanwhile: neither strangers nor the owner.
    worker.insecure().call(&["version"]).unwrap_err();
    worker.admin().call(&["version"]).unwrap_err();
    drop(worker);

    // A machine with the right one joins.
    let worker = Node::start("join-worker-2", |m| {
        m.direct(images::direct())
            .wire(wire(ends, "b", "a", WORKER))
    })
    .with_configs(configs.clone());
    worker.wait_maintenance();
    let file = configs.join("worker.yaml");
    worker
        .insecure()
        .call(&["apply-config", "-f", file.to_str().unwrap()])
        .unwrap();
    worker.ask(&worker.admin(), &["version"], JOIN);
    let status = worker.ask(&worker.admin(), &["get", "certificatestatus"], SOON);
    assert!(status.contains("10.99.0.1"), "{status}");
    let logs = control_plane.ask(&admin, &["logs", "trustd"], SOON);
    assert!(logs.contains("certificate for \"worker-1\""), "{logs}");
    assert!(!logs.contains(token.as_str()), "the token is in the log");
    // Its owner is the cluster's, and nobody else's.
    let stranger = Client::insecure(worker.vm.api());
    stranger.call(&["version"]).unwrap_err();
}
