//! The credentials of a cluster come to their end: its certificates expire, and its CAs are replaced.

use std::path::{Path, PathBuf};

use tests::client::Client;
use tests::clock;
use tests::cluster::{self, CLUSTER, CONTROL_PLANE, NAME, WORKER, until};
use tests::kubectl::Kubectl;

use super::client_with;

/// How far the clock moves: every certificate of the cluster has expired then.
const AFTER_EXPIRY: &str = "+400 days";

/// Nodes and cluster renew their certificates by themselves when the clock moves past the end of all of them. Returns
/// the owner's new clients, of Kubernetes and of the nodes.
pub fn cluster_outlives_its_certificates(
    kubectl: Kubectl,
    config: PathBuf,
    state: &Path,
) -> (Kubectl, PathBuf) {
    if !clock::is_ours() {
        eprintln!("the clock stays as it is: it is the machine's");
        return (kubectl, config);
    }
    clock::set(AFTER_EXPIRY);
    let now = clock::now();
    kubectl
        .call(&["get", "nodes"])
        .expect_err("the certificate has expired");
    let file = |name: &str| state.join(name).display().to_string();
    let (secrets, client) = (file("secrets.yaml"), file("cortenconfig.renewed"));
    let from = [
        "gen",
        "secrets",
        "--from-controlplane-config",
        &file(&format!("{NAME}/controlplane.yaml")),
        "--output-file",
        &secrets,
    ];
    let endpoint = format!("https://{CONTROL_PLANE}:6443");
    let make = [
        "gen",
        "config",
        NAME,
        &endpoint,
        "--with-secrets",
        &secrets,
        "--output-types",
        "cortenconfig",
        "--output",
        &client,
    ];
    for call in [&from[..], &make] {
        client_with(&config)
            .call(call)
            .expect("a new client config");
    }
    let renewed = client_with(Path::new(&client));
    let both = ["-n", cluster::BOTH, "version"];
    until("both nodes with new certificates", || renewed.call(&both));
    let kubectl = kubectl_of(&renewed, state.join("kubeconfig.renewed"));
    let renewals = "jsonpath={range .items[*]}{.spec.renewTime}{'\\n'}{end}";
    let leases = ["get", "leases", "-n", "kube-node-lease", "-o", renewals];
    until("two kubelets that report", || {
        kubectl.check(&leases, |times| {
            times.lines().filter(|time| *time > now.as_str()).count() == 2
        })
    });
    until("both nodes", || kubectl.nodes_ready(2));
    let deleted = kubectl.call(&["delete", "pods", "--all"]);
    deleted.expect("pods that their kubelets stop");
    for deployment in ["deploy/web", "deploy/relay"] {
        until("a new pod", || {
            kubectl.call(&["rollout", "status", deployment, "--timeout=60s"])
        });
    }
    (kubectl, PathBuf::from(client))
}

/// A client of Kubernetes with a new kubeconfig from the control plane node.
fn kubectl_of(client: &Client, kubeconfig: PathBuf) -> Kubectl {
    let path = kubeconfig.display().to_string();
    client.must(&["-n", CONTROL_PLANE, "kubeconfig", &path, "--merge=false"]);
    Kubectl::new(kubeconfig)
}

/// New CAs of the node API and of Kubernetes. The old clients are refused.
pub fn cas_are_replaced(kubectl: &Kubectl, config: &Path, directory: &Path) {
    let new = directory.join("cortenconfig.new");
    let output = new.display().to_string();
    let nodes = [
        "--control-plane-nodes",
        CONTROL_PLANE,
        "--worker-nodes",
        WORKER,
    ];
    let rotate = ["rotate-ca", "--dry-run=false", "--output", &output];
    let (old, new_client) = (client_with(config), client_with(&new));
    let rotated = old.call_within(CLUSTER, &[&rotate[..], &nodes].concat());
    rotated.expect("new CAs");
    let both = ["-n", cluster::BOTH, "version"];
    new_client.must(&both);
    old.call(&both).expect_err("the old client is a stranger");
    let refused = kubectl
        .call(&["get", "nodes"])
        .expect_err("the old kubeconfig");
    assert!(refused.contains("x509"), "{refused}");
    let kubectl = kubectl_of(&new_client, directory.join("kubeconfig.new"));
    until("both nodes", || kubectl.nodes_ready(2));
    let logs = until("a log of the worker", || {
        kubectl.call(&["logs", "deploy/web"])
    });
    assert!(logs.contains("CoreDNS-"), "{logs}");
}
