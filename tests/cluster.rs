//! Promise: one command makes a cluster of containers on this machine, and another one removes all of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tests::cluster::{self, BOTH, CALL, CLUSTER, Cleanup, NAME, NETWORK, traces};
use tests::{client, images};

#[test]
#[ignore = "make test-cluster"]
fn container_nodes_take_their_configs_join_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image("-rootfs.squashfs").display().to_string();
    let create = ["--image", &image, "--wait", "api"];
    let told = cluster::create(state, &create, CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("cortenctl --cortenconfig "), "{told}");

    // The worker gets its certificate from the control plane, which also forwards the calls.
    let call = |arguments: &[&str]| cluster::call(state, arguments, CALL);
    let both = call(&["-n", BOTH, "get", "platformmetadatas", "--output", "json"]);
    let both = both.expect("both answer");
    assert_eq!(
        both.matches("\"platform\": \"container\"").count(),
        2,
        "{both}"
    );
    // Calls for abilities that a container lacks are refused with the reason.
    for refused in [
        &["upgrade", "--image", "installer:1", "--drain=false"][..],
        &[
            "reset",
            "--graceful=false",
            "--system-labels-to-wipe",
            "META",
        ],
    ] {
        let why = call(refused).expect_err("it is not a container's");
        assert!(why.contains("this node runs in a container"), "{why}");
    }

    // The groups of the node's services outlive its first process.
    cluster::nodes_run_and_the_worker_reboots(state);

    let again = cluster::create(state, &create, CALL).expect_err("its name is taken");
    assert!(again.contains("this machine has a cluster"), "{again}");
    let other = ["create", "--name", "test-other", "--cidr", NETWORK];
    let other = [&other[..], &create].concat();
    let other =
        client::run(cluster::command(state, &other), CALL).expect_err("its network is taken");
    assert!(other.contains("overlaps"), "{other}");

    // Without its directory, the cluster is found by the names of its parts.
    // A plan of the same name elsewhere, as of a cluster before the last start of this machine.
    let other = state.join("other");
    fs::create_dir_all(other.join(NAME)).expect("another state directory");
    let plan = |state: &Path| state.join(NAME).join("cluster.json");
    fs::copy(plan(state), plan(&other)).expect("a plan");
    let destroy = cluster::command(&other, &["destroy", "--name", NAME]);
    client::run(destroy, CALL).expect("its directory is removed");
    assert!(!other.join(NAME).exists());
    cluster::nodes_run(state);
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
    let create = ["--image", &empty, "--wait", "api"];
    let failed = cluster::create(state, &create, CALL).expect_err("an image without a system");
    assert!(failed.contains("has ended"), "{failed}");
    assert_eq!(traces(state), before);
    assert!(!state.join(NAME).exists());
}

#[test]
#[ignore = "make test-cluster"]
fn interrupted_cluster_creation_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image("-rootfs.squashfs").display().to_string();
    let create = ["create", "--name", NAME, "--cidr", NETWORK, "--wait", "api"];
    let create = [&create[..], &["--image", &image]].concat();
    let mut command = cluster::command(state, &create);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let running = command.stderr(Stdio::piped()).spawn().expect("cortenctl");
    // The container of the first node runs.
    let console = state.join(NAME).join("nodes");
    let console = console.join(format!("{NAME}-controlplane-1/console.log"));
    let end = Instant::now() + CALL;
    while fs::metadata(&console).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < end, "the first node does not start");
        sleep(Duration::from_millis(10));
    }
    let kill = format!("kill -INT {}", running.id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.expect("a shell").success());
    let ended = running.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.ends_with("error: interrupted\n"), "{told}");
    assert_eq!(traces(state), before, "{told}");
    assert!(!state.join(NAME).exists());
}
