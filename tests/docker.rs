//! Promise: one command makes a cluster of Docker's containers, and another one removes all of it.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::process::Command;

use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, NETWORK};
use tests::{client, images, workspace};

/// The control plane node and the worker.
const BOTH: &str = "10.213.7.2,10.213.7.3";

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
fn containers_of_docker_take_their_configs_join_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = objects();
    let image = images::image("-container.tar").display().to_string();
    let create = [
        "create",
        "--name",
        NAME,
        "--cidr",
        NETWORK,
        "--provisioner",
        "docker",
        "--image",
        &image,
        "--wait",
        "api",
    ];
    let told = client::run(cluster::command(state, &create), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("cortenctl --cortenconfig "), "{told}");
    let again = client::run(cluster::command(state, &create), CALL).expect_err("its name is taken");
    assert!(again.contains("this machine has a cluster"), "{again}");

    let show = ["show", "--name", NAME];
    let shown = client::run(cluster::command(state, &show), CALL).expect("the nodes");
    assert_eq!(shown.matches("running").count(), 2, "{shown}");
    let logs = "docker logs test-cluster-controlplane-1";
    assert!(shown.contains(logs), "{shown}");

    // A reboot ends the container; Docker starts it again, with its state.
    let config = state.join(NAME).join("cortenconfig");
    let call = |arguments: &[&str], limit| {
        let mut command = Command::new(workspace::cortenctl());
        command.arg("--cortenconfig").arg(&config).args(arguments);
        client::run(command, limit).unwrap_or_else(|error| panic!("{error}"))
    };
    let reboot = ["-n", "10.213.7.3", "reboot", "--wait", "--drain=false"];
    call(&reboot, CLUSTER);
    let names = call(&["-n", BOTH, "get", "hostnamestatus"], CALL);
    for node in ["test-cluster-controlplane-1", "test-cluster-worker-1"] {
        assert!(names.contains(node), "{names}");
    }

    cluster::destroy(state);
    assert_eq!(objects(), before);
}
