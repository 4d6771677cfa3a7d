//! The only control plane node loses its data, and a snapshot restores them. The worker runs on meanwhile.

use std::path::Path;

use tests::cluster::{CALL, CLUSTER, CONTROL_PLANE, until};
use tests::kubectl::Kubectl;

use super::client_with;

/// A reset empties EPHEMERAL of the control plane node. `bootstrap --recover-from` then brings back what the snapshot has,
/// and programs on the worker learn what it has not.
pub fn snapshot_restores_the_cluster(kubectl: &Kubectl, config: &Path, directory: &Path) {
    let owner = client_with(config);
    let make = |name: &str| kubectl.call(&["create", "configmap", name]);
    make("kept").expect("an object of the snapshot");
    let snapshot = directory.join("etcd.snapshot").display().to_string();
    owner.must(&["-n", CONTROL_PLANE, "etcd", "snapshot", &snapshot]);
    make("lost").expect("an object after the snapshot");
    // It ends once the kubelet of the worker has stopped its pods.
    let delete = ["delete", "deployment", "web", "--cascade=foreground"];
    let deleted = kubectl.call(&delete);
    deleted.expect("a deployment that the snapshot has");

    let reset = [
        "-n",
        CONTROL_PLANE,
        "reset",
        "--system-labels-to-wipe",
        "EPHEMERAL",
        "--reboot",
        "--graceful=false",
        "--wait",
    ];
    let done = owner.call_within(CLUSTER, &reset);
    done.expect("a node without its data");
    let recover = [
        "-n",
        CONTROL_PLANE,
        "bootstrap",
        "--recover-from",
        &snapshot,
    ];
    until("a node that waits for a cluster", || {
        owner.call_within(CALL, &recover)
    });
    until("both nodes", || kubectl.nodes_ready(2));
    let names = ["get", "configmaps", "-o", "name"];
    let names = kubectl.call(&names).expect("the objects");
    assert!(names.contains("configmap/kept"), "{names}");
    assert!(!names.contains("configmap/lost"), "{names}");
    // The kubelet of the worker has stopped these pods, and knows revisions that never were.
    for deployment in ["web", "relay"] {
        until(deployment, || kubectl.available("default", deployment));
    }
    until("a log of the worker", || {
        let logs = kubectl.call(&["logs", "deploy/web"])?;
        logs.contains("CoreDNS-").then_some(()).ok_or(logs)
    });
}
