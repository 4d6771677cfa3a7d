//! Promises: one call upgrades all control plane nodes of a cluster, and the Kubernetes API takes writes meanwhile. A
//! version whose kubelet does not work is left.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::path::Path;
use std::thread;
use std::time::Duration;

use qemu::{Accel, Disk, Firmware};
use tests::chaos::{self, Agent};
use tests::client::generate_config_with;
use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, PATIENT, until};
use tests::kubectl::Kubectl;
use tests::node::{Node, SOON};
use tests::upgrades::{self, upgrade_by};
use tests::writer::Written;
use tests::{derived, images, workspace};

/// Size of a disk in MiB.
const DISK: u64 = 16384;
/// Number of the signal that stops a process.
const SIGSTOP: u8 = 19;
/// A trial time for a cluster on an emulated machine.
const TRIAL: &str = "apiVersion: v1alpha1\nkind: UpgradeConfig\ntrialTimeout: 8m\n";
/// The addresses of the control plane nodes.
const NODES: [&str; 3] = ["10.213.7.2", "10.213.7.3", "10.213.7.4"];
/// The address that they share, and the endpoint of the cluster.
const SHARED: &str = "10.213.7.13";
/// Timeout of the upgrade of a node, on a machine without hardware virtualisation.
const UPGRADE: Duration = Duration::from_secs(3600);

/// Config of the nodes: the shared address, and patience with slow processors.
fn patch() -> String {
    format!(
        "machine: {{network: {{interfaces: [{{deviceSelector: {{physical: true}}, vip: {{ip: {SHARED}}}}}]}}}}\n\
         cluster: {{controlPlane: {{endpoint: 'https://{SHARED}:6443'}}, controllerManager: {PATIENT}, scheduler: \
         {PATIENT}, etcd: {{extraArgs: {{heartbeat-interval: '1000', election-timeout: '10000'}}}}}}\n---\n\
         apiVersion: v1alpha1\nkind: UpgradeConfig\ntrialTimeout: 45m\n"
    )
}

/// Starts a cluster of virtual machines that are control plane nodes, and waits until each of them is Ready.
fn create(state: &Path) -> Kubectl {
    let patch = patch();
    let image = images::image(".raw").display().to_string();
    let kind = ["--provisioner", "qemu", "--image", &image];
    let nodes = ["--controlplanes", "3", "--workers", "0"];
    let more = [
        "--memory-control-plane",
        "3072",
        "--config-patch-control-plane",
        &patch,
        "--wait-timeout",
        "60m",
    ];
    let told = cluster::create(state, &[&kind[..], &nodes, &more].concat(), CLUSTER * 3);
    told.unwrap_or_else(|error| panic!("{error}"));
    let kubectl = Kubectl::new(state.join(NAME).join("kubeconfig"));
    until("nodes that are Ready", || kubectl.nodes_ready(NODES.len()));
    kubectl
}

/// Upgrades these nodes with one call of the owner.
fn upgrade(state: &Path, nodes: &str) -> Result<String, String> {
    let installer = upgrades::installer("next");
    let upgrade = [
        "-n",
        nodes,
        "upgrade",
        "--file",
        &installer,
        "--timeout",
        "90m",
    ];
    cluster::call(state, &upgrade, UPGRADE * 3)
}

fn versions(state: &Path, nodes: &str) -> String {
    let upgrades = ["-n", nodes, "get", "upgrades"];
    cluster::call(state, &upgrades, CALL).expect("the upgrades")
}

#[test]
#[ignore = "make test-kubernetes"]
fn one_call_upgrades_all_control_plane_nodes_while_the_api_takes_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let kubectl = create(state);
    let nodes = NODES.join(",");
    let written = Written::during(&kubectl, || {
        let upgraded = upgrade(state, &nodes);
        eprintln!("{}", upgraded.unwrap_or_else(|error| panic!("{error}")));
    });
    eprintln!("{written}");
    written.check(&kubectl);
    let upgrades = versions(state, &nodes);
    assert_eq!(upgrades.matches("good").count(), NODES.len(), "{upgrades}");
    assert_eq!(upgrades.matches("0.2.0").count(), NODES.len(), "{upgrades}");
    cluster::destroy(state);
}

/// A control plane node that starts from its disk and is Ready in a cluster of its own.
fn node_of_a_cluster(name: &str) -> Node {
    let disk = Disk::raw(images::image(".raw")).enlarged(DISK);
    let node = Node::start(name, |machine| {
        let parameters = Accel::probe_for(images::arch())
            .accel
            .kernel_parameters()
            .join(" ");
        let machine = machine.firmware(Firmware::Uefi).second_serial();
        machine
            .disk(disk)
            .memory_mib(4096)
            .kernel_parameters(parameters)
    });
    let patch = format!("@{}", workspace::root().join("qemu/cluster.yaml").display());
    let more = ["--kubernetes-images", "bundled", "--config-patch", &patch];
    let trial = ["--config-patch", TRIAL];
    let more = [&more[..], &trial].concat();
    generate_config_with(node.configs(), "https://10.0.2.15:6443", &more);
    node.configure();
    let admin = node.admin();
    node.ask(&admin, &["bootstrap"], SOON);
    let status = [
        "get",
        "machinestatus",
        "-o",
        "jsonpath={.spec.status.ready}",
    ];
    node.until("a node that is Ready", CLUSTER, || {
        let ready = admin.call(&status)?;
        (ready.trim() == "true").then_some(()).ok_or(ready)
    });
    node
}

#[test]
#[ignore = "make test-kubernetes"]
fn version_whose_kubelet_is_never_ready_is_left_after_a_timeout() {
    let node = node_of_a_cluster("unready");
    let installer = derived::installer("bundle", "0.3.0", node.vm.dir(), chaos::wrap_init);
    let file = installer.display().to_string();
    let admin = &node.admin();
    let outcome = thread::scope(|scope| {
        // This host does not reach the Kubernetes API, so nothing is drained.
        let from = ["--drain=false", "--file", &file];
        let upgrade = scope.spawn(move || upgrade_by(admin, &from, UPGRADE));
        let begun = node.vm.wait_console("version 0.3.0 is on trial", UPGRADE);
        begun.expect("a start of the new version");
        let mut agent = Agent::connect(&node.vm);
        let reverted = || node.vm.console().text().contains("0.3.0 fails its trial");
        while !upgrade.is_finished() && !reverted() {
            for kubelet in agent.named("kubelet") {
                if kubelet.state != 'T' {
                    agent.run(&format!("kill {SIGSTOP} {}", kubelet.pid));
                }
            }
            thread::sleep(Duration::from_secs(2));
        }
        upgrade.join().expect("the call of the upgrade")
    });
    let why = outcome.expect_err("the version does not stay");
    assert!(why.contains("kubelet"), "{why}");
    let upgrades = admin.must(&["get", "upgrades"]);
    assert!(upgrades.contains("reverted"), "{upgrades}");
}
