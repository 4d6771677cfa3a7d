//! Promises: one call upgrades all control plane nodes of a cluster, and the Kubernetes API takes writes meanwhile. A
//! version whose kubelet does not work is left.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::path::Path;
use std::time::Duration;

use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, PATIENT, until};
use tests::kubectl::Kubectl;
use tests::writer::Written;
use tests::{images, upgrades};

/// The addresses of the control plane nodes.
const NODES: [&str; 3] = ["10.213.7.2", "10.213.7.3", "10.213.7.4"];
/// The address that they share, and the endpoint of the cluster.
const SHARED: &str = "10.213.7.13";
/// Timeout of the upgrade of a node, on a machine without hardware virtualisation.
const UPGRADE: Duration = Duration::from_secs(3600);

/// Config of the nodes: patience with slow processors.
fn patch() -> String {
    format!(
        "cluster: {{controllerManager: {PATIENT}, scheduler: {PATIENT}, etcd: {{extraArgs: {{heartbeat-interval: \
         '1000', election-timeout: '10000'}}}}}}"
    )
}

/// Starts a cluster of virtual machines that are control plane nodes, and waits until each of them is Ready.
fn create(state: &Path, count: usize, patch: &str) -> Kubectl {
    let image = images::image(".raw").display().to_string();
    let kind = ["--provisioner", "qemu", "--image", &image];
    let count_text = count.to_string();
    let nodes = ["--controlplanes", &count_text, "--workers", "0"];
    let more = [
        "--memory-control-plane",
        "3072",
        "--config-patch-control-plane",
        patch,
        "--wait-timeout",
        "60m",
    ];
    let told = cluster::create(state, &[&kind[..], &nodes, &more].concat(), CLUSTER * 3);
    told.unwrap_or_else(|error| panic!("{error}"));
    let kubectl = Kubectl::new(state.join(NAME).join("kubeconfig"));
    until("nodes that are Ready", || kubectl.nodes_ready(count));
    kubectl
}

/// Upgrades these nodes with one call of the owner.
fn upgrade(state: &Path, nodes: &str, installer: &str, limit: Duration) -> Result<String, String> {
    let installer = upgrades::installer(installer);
    let upgrade = [
        "-n",
        nodes,
        "upgrade",
        "--file",
        &installer,
        "--timeout",
        "60m",
    ];
    cluster::call(state, &upgrade, limit)
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
    let shared = format!(
        "machine: {{network: {{interfaces: [{{deviceSelector: {{physical: true}}, vip: {{ip: {SHARED}}}}}]}}}}\n"
    );
    let endpoint =
        format!("---\ncluster: {{controlPlane: {{endpoint: 'https://{SHARED}:6443'}}}}\n---\n");
    let kubectl = create(state, NODES.len(), &(shared + &endpoint + &patch()));
    let nodes = NODES.join(",");
    let written = Written::during(&kubectl, || {
        let upgraded = upgrade(state, &nodes, "next", UPGRADE * 3);
        eprintln!("{}", upgraded.unwrap_or_else(|error| panic!("{error}")));
    });
    eprintln!("{written}");
    written.check(&kubectl);
    let upgrades = versions(state, &nodes);
    assert_eq!(upgrades.matches("good").count(), NODES.len(), "{upgrades}");
    assert_eq!(upgrades.matches("0.2.0").count(), NODES.len(), "{upgrades}");
    cluster::destroy(state);
}

#[test]
#[ignore = "make test-kubernetes"]
fn version_whose_kubelet_is_never_ready_is_left_after_a_timeout() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let patch = patch() + "\n---\napiVersion: v1alpha1\nkind: UpgradeConfig\ntrialTimeout: 5m\n";
    let kubectl = create(state, 1, &patch);
    let [node, ..] = NODES;
    let why = upgrade(state, node, "unready", UPGRADE);
    let why = why.expect_err("the version does not stay");
    assert!(why.contains("kubelet"), "{why}");
    let upgrades = versions(state, node);
    assert!(upgrades.contains("reverted"), "{upgrades}");
    until("a node that is Ready again", || kubectl.nodes_ready(1));
    cluster::destroy(state);
}
