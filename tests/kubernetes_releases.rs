//! Promise: a cluster runs the older releases of Kubernetes that a node supports, from images with their upstream names. The
//! verb `upgrade-k8s` brings it from one release to the next while its pods run.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use corten_config::images::{COREDNS, ETCD, FLANNEL, PAUSE, bundled, kubernetes_version, upstream};
use tests::client::Client;
use tests::cluster::{self, CLUSTER, Cleanup, ENDPOINT, NAME, REGISTRY, traces, until};
use tests::images;
use tests::kubectl::Kubectl;
use tests::registry::{Images, Registry};

/// The programs that have the version of Kubernetes.
const PROGRAMS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
];
/// The older releases that a node runs, each a directory of `tests/kubernetes-releases`.
const OLDER: [&str; 2] = ["1.35", "1.36"];
/// The nodes take the upstream images from the registry of the test.
const CONFIG: &str = "
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: registry.k8s.io
endpoints: [{url: 'http://REGISTRY'}]
skipFallback: true
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: ghcr.io
endpoints: [{url: 'http://REGISTRY'}]
skipFallback: true
";
/// A pod on each node.
const PODS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: lasting}
spec:
  selector: {matchLabels: {app: lasting}}
  template:
    metadata: {labels: {app: lasting}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: lasting, image: IMAGE}]
";

/// The directory in an environment variable, which `tests/clusters` sets.
fn directory(variable: &str) -> PathBuf {
    let directory = env::var_os(variable).map(PathBuf::from);
    directory.expect("make test-cluster TESTS=kubernetes_releases")
}

/// The version of a release, such as 1.36.3 for 1.36.
fn version(release: &str) -> String {
    let file = directory("CORTEN_RELEASES").join(release).join("version");
    let text = fs::read_to_string(file).expect("a version");
    text.trim().trim_start_matches('v').to_owned()
}

/// A registry with the images of all releases. The older ones are the bundled images with another program.
fn fill(registry: &Path) {
    let registry = Images::create(registry);
    let layout = directory("CORTEN_IMAGES");
    let add = |program: &str, name: String, layer| {
        let image = bundled(program).expect("a bundled image");
        registry.add_from(&layout, &image, name, layer);
    };
    let named = |program, version: &str| upstream(program, version).expect("an upstream name");
    for program in PROGRAMS {
        for release in OLDER {
            let directory = directory("CORTEN_RELEASES").join(release);
            let layer = Some(directory.join(format!("{program}.tar")));
            add(program, named(program, &version(release)), layer);
        }
        add(program, named(program, kubernetes_version()), None);
    }
    let others = [
        ("etcd", ETCD),
        ("coredns", COREDNS),
        ("flannel", FLANNEL),
        ("pause", PAUSE),
    ];
    for (program, upstream) in others {
        add(program, upstream.to_string(), None);
    }
}

/// Every program of Kubernetes in the cluster has this version.
fn all_have(kubectl: &Kubectl, version: &str) {
    let server = kubectl.call(&["version"]).expect("the versions");
    assert!(
        server.contains(&format!("Server Version: v{version}\n")),
        "{server}"
    );
    let kubelets = "jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{'\\n'}{end}";
    until("two kubelets of the version", || {
        kubectl.check(&["get", "nodes", "-o", kubelets], |told| {
            told.lines().collect::<Vec<_>>() == [&format!("v{version}"); 2]
        })
    });
    // Three static pods of the control plane, and a proxy on each of the two nodes.
    let images = "jsonpath={range .items[*]}{.status.containerStatuses[*].image}{'\\n'}{end}";
    until("five pods of the version", || {
        kubectl.check(
            &["get", "pods", "-n", "kube-system", "-o", images],
            |told| {
                let all: Vec<&str> = told
                    .lines()
                    .filter(|line| line.contains("/kube-"))
                    .collect();
                all.len() == 5
                    && all
                        .iter()
                        .all(|image| image.ends_with(&format!(":v{version}")))
            },
        )
    });
}

/// The pods of the test: their UIDs, and how often their containers restarted.
fn lasting(kubectl: &Kubectl) -> String {
    let each = "{.metadata.uid} {.status.containerStatuses[0].restartCount}";
    let each = format!("jsonpath={{range .items[*]}}{each}{{'\\n'}}{{end}}");
    let pods = kubectl.call(&["get", "pods", "-l", "app=lasting", "-o", &each]);
    pods.expect("the pods")
}

#[test]
#[ignore = "make test-cluster TESTS=kubernetes_releases"]
fn cluster_is_upgraded_over_each_supported_release_while_its_pods_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let registry = state.join("registry");
    fill(&registry);
    // The network of the nodes comes with them.
    let address: SocketAddr = REGISTRY.parse().expect("an address");
    let served = Registry::serve(&registry, (Ipv4Addr::UNSPECIFIED, address.port()).into());

    let image = images::image("-rootfs.squashfs").display().to_string();
    let config = CONFIG.replace("REGISTRY", REGISTRY);
    let [oldest, next] = OLDER.map(version);
    let create = [
        "--image",
        &image,
        "--config-patch",
        &config,
        "--kubernetes-version",
        &oldest,
    ];
    let told = cluster::create(state, &create, CLUSTER);
    told.unwrap_or_else(|error| panic!("{error}"));
    let place = state.join(NAME);
    let kubectl = Kubectl::new(place.join("kubeconfig"));
    all_have(&kubectl, &oldest);
    let pods = PODS.replace("IMAGE", &PAUSE.to_string());
    until("the pods", || {
        kubectl.apply(&state.join("pods.yaml"), &pods)
    });
    until("the pods", || {
        kubectl.call(&["rollout", "status", "daemonset/lasting", "--timeout=60s"])
    });
    let pods = lasting(&kubectl);
    assert_eq!(pods.lines().count(), 2, "{pods}");

    let owner = Client::with_config(ENDPOINT, &place.join("cortenconfig"));
    for to in [&next, kubernetes_version()] {
        let told = owner.call_within(CLUSTER, &["upgrade-k8s", "--to", to]);
        told.unwrap_or_else(|error| panic!("{error}"));
        all_have(&kubectl, to);
        assert_eq!(lasting(&kubectl), pods, "after the upgrade to {to}");
    }
    drop(served);
    cluster::destroy(state);
    assert_eq!(traces(state), before);
}
