//! Clusters of containers on this machine, made by `cortenctl cluster`.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kubectl::Kubectl;
use crate::{client, workspace};

/// Time for a whole cluster to start on a busy machine.
pub const CLUSTER: Duration = Duration::from_secs(1200);
/// Timeout of a command that makes no cluster.
pub const CALL: Duration = Duration::from_secs(120);
/// Name of the cluster.
pub const NAME: &str = "test-cluster";
/// Differs from the default network, which another cluster of this machine may use.
pub const NETWORK: &str = "10.213.7.0/28";
/// Address of a registry on this machine, for the nodes.
pub const REGISTRY: &str = "10.213.7.1:5000";
/// The first control plane node.
pub const CONTROL_PLANE: &str = "10.213.7.2";
/// Its node API.
pub const ENDPOINT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 213, 7, 2)), 50000);
/// The worker of a cluster with one control plane node.
pub const WORKER: &str = "10.213.7.3";
/// Both nodes of such a cluster.
pub const BOTH: &str = "10.213.7.2,10.213.7.3";
/// Settings of controller manager and scheduler on a machine whose processors are too slow for their leader elections.
pub const PATIENT: &str = "{extraArgs: {leader-elect-lease-duration: 180s, leader-elect-renew-deadline: 150s, \
                           leader-elect-retry-period: 10s}}";
/// Prefix of the link names of clusters (`cortenctl/provision/src/plan.rs`).
const LINKS: &str = "co";

/// A command about the clusters of a state directory.
#[must_use]
pub fn command(state: &Path, arguments: &[&str]) -> Command {
    // A background job ignores SIGINT, and the command would inherit that.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT")
        .arg(workspace::cortenctl())
        .arg("cluster")
        .args(arguments)
        .arg("--state")
        .arg(state)
        .env_remove("CORTENCONFIG")
        .env_remove("TALOSCONFIG");
    command
}

/// Makes the cluster; `more` are further flags. Returns what the command prints.
///
/// # Errors
/// The output of a command that failed or took longer than `limit`.
pub fn create(state: &Path, more: &[&str], limit: Duration) -> Result<String, String> {
    let create = ["create", "--name", NAME, "--cidr", NETWORK];
    client::run(command(state, &[&create[..], more].concat()), limit)
}

/// Calls the nodes of the cluster as their owner.
///
/// # Errors
/// As for [`create`].
pub fn call(state: &Path, arguments: &[&str], limit: Duration) -> Result<String, String> {
    let mut command = Command::new(workspace::cortenctl());
    let config = state.join(NAME).join("cortenconfig");
    command.arg("--cortenconfig").arg(config).args(arguments);
    client::run(command, limit)
}

/// Checks that both nodes of a cluster with one worker run; returns their names.
///
/// # Panics
/// One of them does not.
pub fn nodes_run(state: &Path) -> [String; 2] {
    let nodes = [format!("{NAME}-controlplane-1"), format!("{NAME}-worker-1")];
    let shown = client::run(command(state, &["show", "--name", NAME]), CALL).expect("the nodes");
    for node in &nodes {
        let line = shown.lines().find(|line| line.starts_with(node));
        let line = line.expect("a line of the node");
        assert!(line.contains("running"), "{shown}");
    }
    nodes
}

/// Checks that both nodes of a cluster with one worker run, and that the worker keeps its config over a reboot.
///
/// # Panics
/// One of them does not.
pub fn nodes_run_and_the_worker_reboots(state: &Path) {
    let nodes = nodes_run(state);
    let reboot = ["-n", WORKER, "reboot", "--wait", "--drain=false"];
    call(state, &reboot, CLUSTER).unwrap_or_else(|error| panic!("{error}"));
    let names = call(state, &["-n", BOTH, "get", "hostnamestatus"], CALL).expect("the names");
    assert!(nodes.iter().all(|node| names.contains(node)), "{names}");
    let log = call(state, &["-n", BOTH, "logs", "machined"], CALL).expect("machined's logs");
    no_service_was_killed(&log);
}

/// Checks the log of machined: no signal killed a service that machined then started again.
///
/// # Panics
/// One did, or the log is not machined's.
pub fn no_service_was_killed(log: &str) {
    assert!(log.contains("service apid: Service is ready"), "{log}");
    let is_killed =
        |line: &&str| line.contains("killed by signal") && line.contains("starting again");
    let killed: Vec<&str> = log.lines().filter(is_killed).collect();
    assert!(killed.is_empty(), "{}", killed.join("\n"));
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
            print_pods(self.0);
            let destroy = ["destroy", "--name", NAME, "--force"];
            let _removed = client::run(command(self.0, &destroy), CALL);
        }
    }
}

/// The last lines of the cluster's DNS.
const LOGS: [&str; 5] = [
    "logs",
    "--namespace=kube-system",
    "--selector=k8s-app=kube-dns",
    "--prefix",
    "--tail=20",
];

/// Prints the pods, the events and logs of the cluster of a test that fails, as far as one of its clients is accepted.
fn print_pods(state: &Path) {
    let places = [state.join(NAME), state.to_owned()];
    let files = places.iter().flat_map(fs::read_dir).flatten().flatten();
    let configs = files.map(|file| file.path()).filter(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("kubeconfig")
    });
    let clients: Vec<Kubectl> = match env::var_os("CORTEN_KUBECTL") {
        Some(_) => configs.map(Kubectl::new).collect(),
        None => Vec::new(),
    };
    for client in clients {
        let asked = [
            &["get", "nodes,pods", "--all-namespaces", "--output=wide"][..],
            &["describe", "pods", "--namespace=kube-system"],
            &["get", "events", "--all-namespaces"],
            &LOGS,
            &[&LOGS[..], &["--previous"]].concat(),
        ];
        let answers = asked.map(|asked| client.call(asked));
        if answers.iter().any(Result::is_ok) {
            for answer in answers {
                eprintln!("{}", answer.unwrap_or_else(|error| error));
            }
            return;
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
