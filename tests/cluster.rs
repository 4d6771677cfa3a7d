//! Promise: one command makes a cluster of containers on this machine, and another one removes all of it.

use std::fs;
use std::process::Command;

use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, NETWORK, traces};
use tests::{client, images, workspace};

#[test]
#[ignore = "make test-cluster"]
fn container_nodes_take_their_configs_join_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image("-rootfs.squashfs").display().to_string();
    let create = [
        "create", "--name", NAME, "--cidr", NETWORK, "--image", &image, "--wait", "api",
    ];
    let told = client::run(cluster::command(state, &create), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("cortenctl --cortenconfig "), "{told}");

    let show = ["show", "--name", NAME];
    let shown = client::run(cluster::command(state, &show), CALL).expect("the nodes");
    for node in ["test-cluster-controlplane-1", "test-cluster-worker-1"] {
        let line = shown.lines().find(|line| line.starts_with(node));
        assert!(
            line.expect("a line of the node").contains("running"),
            "{shown}"
        );
    }
    // The worker gets its certificate from the control plane, which also forwards the calls.
    let config = state.join(NAME).join("cortenconfig");
    let call = |arguments: &[&str]| {
        let mut command = Command::new(workspace::cortenctl());
        command.arg("--cortenconfig").arg(&config).args(arguments);
        client::run(command, CALL)
    };
    let both = [
        "-n",
        "10.213.7.2,10.213.7.3",
        "get",
        "platformmetadatas",
        "--output",
        "json",
    ];
    let both = call(&both).expect("both answer");
    assert_eq!(
        both.matches("\"platform\": \"container\"").count(),
        2,
        "{both}"
    );
    // Calls for abilities that a container lacks are refused with the reason.
    for refused in [
        &["upgrade", "--image", "installer:1", "--drain=false"][..],
        &["reset", "--graceful=false"],
    ] {
        let why = call(refused).expect_err("it is not a container's");
        assert!(why.contains("this node runs in a container"), "{why}");
    }

    // The groups of the node's services outlive its first process.
    call(&["-n", "10.213.7.3", "reboot", "--drain=false"]).expect("a node that answers again");

    let again = client::run(cluster::command(state, &create), CALL).expect_err("its name is taken");
    assert!(again.contains("this machine has a cluster"), "{again}");
    let other = create.map(|word| if word == NAME { "test-other" } else { word });
    let other =
        client::run(cluster::command(state, &other), CALL).expect_err("its network is taken");
    assert!(other.contains("overlaps"), "{other}");

    // Without its directory, the cluster is found by the names of its parts.
    fs::rename(state.join(NAME), state.join("lost")).expect("another place");
    let lost = client::run(cluster::command(state, &["destroy", "--name", NAME]), CALL);
    let lost = lost.expect_err("there is no plan");
    assert!(lost.contains("--force"), "{lost}");
    let forced = ["destroy", "--name", NAME, "--force"];
    client::run(cluster::command(state, &forced), CALL).expect("the cluster is removed");
    assert_eq!(traces(state), before);
}

#[test]
#[ignore = "make test-cluster"]
fn failed_cluster_creation_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let empty = state.join("empty");
    fs::create_dir(&empty).expect("a directory");
    let empty = empty.display().to_string();
    let create = [
        "create", "--name", NAME, "--cidr", NETWORK, "--image", &empty, "--wait", "api",
    ];
    let failed =
        client::run(cluster::command(state, &create), CALL).expect_err("an image without a system");
    assert!(failed.contains("has ended"), "{failed}");
    assert_eq!(traces(state), before);
    assert!(!state.join(NAME).exists());
}
