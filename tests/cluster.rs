//! Promise: one command makes a cluster of containers on this machine, and another one removes all of it.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::{client, images, workspace};

/// Time for a whole cluster to start on a busy machine.
const CLUSTER: Duration = Duration::from_secs(1200);
/// Timeout of a command that makes no cluster.
const CALL: Duration = Duration::from_secs(120);
const NAME: &str = "test-cluster";
/// Differs from the default network, which another cluster of this machine may use.
const NETWORK: &str = "10.213.7.0/28";
/// Prefix of the link names of clusters (`cortenctl/src/verbs/cluster/plan.rs`).
const LINKS: &str = "co";

fn cluster(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace::cortenctl());
    command
        .args(["cluster"])
        .args(arguments)
        .arg("--state")
        .arg(state)
        .env_remove("CORTENCONFIG")
        .env_remove("TALOSCONFIG");
    command
}

/// Leftovers of a cluster: links, mounts, cgroups.
fn traces(state: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let links = fs::read_dir("/sys/class/net").expect("links");
    for link in links.flatten() {
        let name = link.file_name().to_string_lossy().into_owned();
        // A tag of ten characters and the suffix of a host.
        if name.starts_with(LINKS) && name.len() >= 10 {
            found.push(format!("link {name}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let state = state.display().to_string();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&state))
            .map(str::to_owned),
    );
    for line in mounts.lines().filter(|line| line.contains(" cgroup2 ")) {
        let root = line.split(' ').nth(1).expect("a mount point");
        let group = Path::new(root).join(format!("corten-{NAME}"));
        if group.exists() {
            found.push(group.display().to_string());
        }
    }
    found
}

/// Removes the cluster of a test that fails; the directory with its plan goes with the test.
struct Cleanup<'a>(&'a Path);

impl Cleanup<'_> {
    /// Removes the cluster of an earlier test that was killed; its directory was temporary.
    fn begin(state: &Path) -> Cleanup<'_> {
        let destroy = ["destroy", "--name", NAME, "--force"];
        client::run(cluster(state, &destroy), CALL).expect("no cluster of an earlier test");
        Cleanup(state)
    }
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed already.
            let destroy = ["destroy", "--name", NAME, "--force"];
            let _removed = client::run(cluster(self.0, &destroy), CALL);
        }
    }
}

fn destroy(state: &Path) {
    let gone = client::run(cluster(state, &["destroy", "--name", NAME]), CALL);
    gone.expect("the cluster is removed");
    assert!(!state.join(NAME).exists());
}

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
    let told = client::run(cluster(state, &create), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("cortenctl --cortenconfig "), "{told}");

    let show = ["show", "--name", NAME];
    let shown = client::run(cluster(state, &show), CALL).expect("the nodes");
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

    let again = client::run(cluster(state, &create), CALL).expect_err("its name is taken");
    assert!(again.contains("this machine has a cluster"), "{again}");
    let other = create.map(|word| if word == NAME { "test-other" } else { word });
    let other = client::run(cluster(state, &other), CALL).expect_err("its network is taken");
    assert!(other.contains("overlaps"), "{other}");

    // Without its directory, the cluster is found by the names of its parts.
    fs::rename(state.join(NAME), state.join("lost")).expect("another place");
    let lost = client::run(cluster(state, &["destroy", "--name", NAME]), CALL);
    let lost = lost.expect_err("there is no plan");
    assert!(lost.contains("--force"), "{lost}");
    let forced = ["destroy", "--name", NAME, "--force"];
    client::run(cluster(state, &forced), CALL).expect("the cluster is removed");
    assert_eq!(traces(state), before);
}

#[test]
#[ignore = "make test-cluster"]
fn container_cluster_becomes_ready_from_bundled_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image("-rootfs.squashfs").display().to_string();
    let cache = images::image("-image-cache.squashfs").display().to_string();
    let create = [
        "create",
        "--name",
        NAME,
        "--cidr",
        NETWORK,
        "--image",
        &image,
        "--image-cache",
        &cache,
    ];
    let told = client::run(cluster(state, &create), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("kubectl --kubeconfig "), "{told}");
    destroy(state);
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
    let failed = client::run(cluster(state, &create), CALL).expect_err("an image without a system");
    assert!(failed.contains("has ended"), "{failed}");
    assert_eq!(traces(state), before);
    assert!(!state.join(NAME).exists());
}
