//! Promise: one command makes a cluster of virtual machines on this machine, and another one removes all of it.

use std::process::Command;

use tests::cluster::{self, CALL, CLUSTER, Cleanup, NAME, NETWORK, traces};
use tests::{client, images, workspace};

/// The control plane node and the worker.
const BOTH: &str = "10.213.7.2,10.213.7.3";

#[test]
#[ignore = "make test-vm"]
fn virtual_machines_take_their_configs_join_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image(".raw").display().to_string();
    let create = [
        "create",
        "--name",
        NAME,
        "--cidr",
        NETWORK,
        "--provisioner",
        "qemu",
        "--image",
        &image,
        "--memory-control-plane",
        "1024",
        "--memory-worker",
        "1024",
        "--disk-size",
        "4096",
        "--wait",
        "api",
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
    let config = state.join(NAME).join("cortenconfig");
    let call = |arguments: &[&str], limit| {
        let mut command = Command::new(workspace::cortenctl());
        command.arg("--cortenconfig").arg(&config).args(arguments);
        client::run(command, limit).unwrap_or_else(|error| panic!("{error}"))
    };
    // Whole machines: they have disks of their own, and keep their config there.
    let volumes = call(&["-n", BOTH, "get", "volumestatus", "STATE"], CALL);
    assert_eq!(volumes.matches("/dev/vda").count(), 2, "{volumes}");
    let reboot = ["-n", "10.213.7.3", "reboot", "--wait", "--drain=false"];
    call(&reboot, CLUSTER);
    let names = call(&["-n", BOTH, "get", "hostnamestatus"], CALL);
    assert!(names.contains("test-cluster-worker-1"), "{names}");

    cluster::destroy(state);
    assert_eq!(traces(state), before);
}
