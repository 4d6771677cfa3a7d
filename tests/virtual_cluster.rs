//! Promise: one command makes a cluster of virtual machines on this machine, and another one removes all of it.

use tests::cluster::{self, BOTH, CALL, CLUSTER, Cleanup, traces};
use tests::images;

#[test]
#[ignore = "make test-vm"]
fn virtual_machines_take_their_configs_join_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image(".raw").display().to_string();
    let kind = ["--provisioner", "qemu", "--image", &image, "--wait", "api"];
    let memory = [
        "--memory-control-plane",
        "1024",
        "--memory-worker",
        "1024",
        "--disk-size",
        "4096",
    ];
    let told = cluster::create(state, &[&kind[..], &memory].concat(), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("cortenctl --cortenconfig "), "{told}");

    // Whole machines: they have disks of their own, and keep their config there.
    let volumes = ["-n", BOTH, "get", "volumestatus", "STATE"];
    let volumes = cluster::call(state, &volumes, CALL).expect("the volumes");
    assert_eq!(volumes.matches("/dev/vda").count(), 2, "{volumes}");
    cluster::nodes_run_and_the_worker_reboots(state);

    cluster::destroy(state);
    assert_eq!(traces(state), before);
}
