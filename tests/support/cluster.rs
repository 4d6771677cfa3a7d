//! Clusters of containers on this machine, made by `cortenctl cluster`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{client, workspace};

/// Time for a whole cluster to start on a busy machine.
pub const CLUSTER: Duration = Duration::from_secs(1200);
/// Timeout of a command that makes no cluster.
pub const CALL: Duration = Duration::from_secs(120);
/// Name of the cluster.
pub const NAME: &str = "test-cluster";
/// Differs from the default network, which another cluster of this machine may use.
pub const NETWORK: &str = "10.213.7.0/28";
/// Prefix of the link names of clusters (`cortenctl/src/verbs/cluster/plan.rs`).
const LINKS: &str = "co";

/// A command about the clusters of a state directory.
#[must_use]
pub fn command(state: &Path, arguments: &[&str]) -> Command {
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
///
/// # Panics
/// This machine does not list them.
#[must_use]
pub fn traces(state: &Path) -> Vec<String> {
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
#[derive(Debug)]
pub struct Cleanup<'a>(&'a Path);

impl Cleanup<'_> {
    /// Removes the cluster of an earlier test that was killed; its directory was temporary.
    ///
    /// # Panics
    /// The removal fails.
    #[must_use]
    pub fn begin(state: &Path) -> Cleanup<'_> {
        let destroy = ["destroy", "--name", NAME, "--force"];
        client::run(command(state, &destroy), CALL).expect("no cluster of an earlier test");
        Cleanup(state)
    }
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed already.
            let destroy = ["destroy", "--name", NAME, "--force"];
            let _removed = client::run(command(self.0, &destroy), CALL);
        }
    }
}

/// Repeats `attempt` until it succeeds.
///
/// # Panics
/// It fails for as long as a whole cluster may take to start.
pub fn until<T>(what: &str, attempt: impl Fn() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(begun.elapsed() < CLUSTER, "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Removes the cluster.
///
/// # Panics
/// The removal fails, or leaves files.
pub fn destroy(state: &Path) {
    let gone = client::run(command(state, &["destroy", "--name", NAME]), CALL);
    gone.expect("the cluster is removed");
    assert!(!state.join(NAME).exists());
}
