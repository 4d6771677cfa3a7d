//! Promise: one command makes a cluster of Docker's containers, and another one removes all of it.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::process::Command;

use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, until};
use tests::kubectl::Kubectl;
use tests::{client, images};

/// Docker's objects of any kind: containers, networks, volumes.
fn objects() -> Vec<String> {
    let list = |arguments: &[&str]| {
        let mut command = Command::new("docker");
        command.args(arguments);
        let text = client::run(command, CALL).expect("Docker");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    [
        list(&["ps", "--all", "--format", "{{.Names}}"]),
        list(&["network", "ls", "--format", "{{.Name}}"]),
        list(&["volume", "ls", "--format", "{{.Name}}"]),
    ]
    .concat()
}

#[test]
#[ignore = "make test-cluster TESTS=docker"]
fn containers_of_docker_are_a_ready_cluster_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = objects();
    let image = images::image("-container.tar").display().to_string();
    // Docker takes a directory: only root could mount the file.
    let cache = state.join("image-cache");
    let mut unpack = Command::new("unsquashfs");
    unpack.arg("-dest").arg(&cache);
    unpack.arg(images::image("-image-cache.squashfs"));
    client::run(unpack, CALL).expect("the images of Kubernetes");
    let cache = cache.display().to_string();
    let kind = ["--provisioner", "docker", "--image", &image];
    let kind = [&kind[..], &["--image-cache", &cache]].concat();
    let told = cluster::create(state, &kind, CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("kubectl --kubeconfig "), "{told}");
    let kubectl = Kubectl::new(state.join(NAME).join("kubeconfig"));
    until("the cluster's DNS", || {
        kubectl.available("kube-system", "coredns")
    });
    let again = cluster::create(state, &kind, CALL).expect_err("its name is taken");
    assert!(again.contains("this machine has a cluster"), "{again}");

    let shown = client::run(cluster::command(state, &["show", "--name", NAME]), CALL);
    let shown = shown.expect("the nodes");
    let logs = "docker logs test-cluster-controlplane-1";
    assert!(shown.contains(logs), "{shown}");
    // A reboot ends the container; Docker starts it again, with its state.
    cluster::nodes_run_and_the_worker_reboots(state);
    until("both nodes", || kubectl.nodes_ready(2));

    cluster::destroy(state);
    assert_eq!(objects(), before);
}
