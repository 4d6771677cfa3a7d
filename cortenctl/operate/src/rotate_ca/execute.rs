//! Executes the steps of a rotation of the Kubernetes CA: one node after the other, each step on every node before the
//! next step begins.

use std::time::Duration;

use corten_cluster::Workload;
use tokio::time::{Instant, sleep};

use super::Step;
use super::plan::Member;

/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(2);
/// What to do after a failure. No step is undone: the cluster works in each of them.
const AGAIN: &str = "the cluster works with both CAs; repair the node, and run `rotate-ca` again: it continues here";

/// Workload in the namespace of the system, by its name.
pub(super) type Addon = (Workload, &'static str);

/// Workloads of the bootstrap manifests whose pods call the Kubernetes API: the network first.
const ADDONS: [Addon; 3] = [
    (Workload::DaemonSet, "kube-flannel"),
    (Workload::DaemonSet, "kube-proxy"),
    (Workload::Deployment, "coredns"),
];

/// The credentials for a check of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    /// The client certificate of the kubeconfig.
    Kubeconfig,
    /// A client certificate of the new CA; both CAs may have signed the server's certificate.
    Both,
    /// A client certificate of the new CA, which also signed the server's certificate.
    New,
}

/// What ran on a node before its config changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// PID of the kubelet.
    pub(super) kubelet: Option<u64>,
    /// Digest of the secrets of kube-controller-manager, which reads them at its start only.
    pub(super) manager: Option<String>,
}

/// The operations of a rotation on a cluster. Every error is a sentence.
pub(super) trait Fleet {
    /// Changes a node's config for a step. Returns what ran before; `None` if the config was changed by an earlier run.
    async fn change(&mut self, member: &Member, step: Step) -> Result<Option<Mark>, String>;
    /// Checks that the kubelet and the static pods of a node have restarted with the changed config, and are healthy.
    async fn settled(
        &mut self,
        member: &Member,
        mark: Option<&Mark>,
        with: With,
    ) -> Result<(), String>;
    /// Checks that every API server accepts these credentials, and that all nodes are ready.
    async fn ready(&mut self, with: With) -> Result<(), String>;
    /// Checks that pods get the new CA.
    async fn published(&mut self) -> Result<(), String>;
    /// Restarts an add-on. Returns whether the cluster has it.
    async fn restart(&mut self, addon: Addon) -> Result<bool, String>;
    /// Checks that the pods of a restarted add-on run.
    async fn runs(&mut self, addon: Addon) -> Result<(), String>;
    /// Prints a line for the operator.
    fn say(&mut self, line: &str);
}

/// Executes a rotation; stops at the first failure.
///
/// # Errors
/// The failed part, and what to do.
pub(super) async fn execute(
    fleet: &mut impl Fleet,
    members: &[Member],
    limit: Duration,
) -> Result<(), String> {
    let first = until(limit, async || fleet.ready(With::Kubeconfig).await).await;
    first.map_err(|why| format!("the cluster is not ready: {why}; nothing was changed"))?;
    steps(fleet, members, limit)
        .await
        .map_err(|why| format!("{why}; {AGAIN}"))
}

async fn steps(fleet: &mut impl Fleet, members: &[Member], limit: Duration) -> Result<(), String> {
    let (control, workers): (Vec<&Member>, Vec<&Member>) =
        members.iter().partition(|member| member.is_control_plane);
    let control_first = [&*control, &*workers].concat();
    // A worker's kubelet requests a certificate of the new CA while API servers accept its old one.
    let workers_first = [&*workers, &*control].concat();

    fleet.say(Step::Accept.line());
    for member in &control_first {
        node(fleet, member, Step::Accept, With::Kubeconfig, limit).await?;
    }
    until(limit, async || fleet.ready(With::Both).await).await?;
    fleet.say("pods accept the new CA");
    until(limit, async || fleet.published().await).await?;
    // One after the other: a new pod needs the network of its node, and the network restarts there, too.
    for addon in ADDONS {
        if fleet.restart(addon).await? {
            until(limit, async || fleet.runs(addon).await).await?;
        }
    }

    fleet.say(Step::Issue.line());
    for member in &control_first {
        node(fleet, member, Step::Issue, With::Both, limit).await?;
    }
    until(limit, async || fleet.ready(With::New).await).await?;

    fleet.say(Step::Forget.line());
    for member in &workers_first {
        node(fleet, member, Step::Forget, With::New, limit).await?;
    }
    until(limit, async || fleet.ready(With::New).await).await
}

/// Does a step on one node.
async fn node(
    fleet: &mut impl Fleet,
    member: &Member,
    step: Step,
    with: With,
    limit: Duration,
) -> Result<(), String> {
    let name = &member.name;
    let changed = fleet.change(member, step).await;
    let mark = changed.map_err(|why| format!("node {name}: {why}"))?;
    let settled = until(limit, async || {
        fleet.settled(member, mark.as_ref(), with).await
    });
    settled.await.map_err(|why| format!("node {name}: {why}"))?;
    let line = match mark {
        Some(_) => format!("{name}: done"),
        None => format!("{name}: was done before"),
    };
    fleet.say(&line);
    Ok(())
}

async fn until(
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<(), String>,
) -> Result<(), String> {
    let end = Instant::now() + limit;
    while let Err(why) = look().await {
        if Instant::now() >= end {
            return Err(format!("timeout after {} s: {why}", limit.as_secs()));
        }
        sleep(LOOK).await;
    }
    Ok(())
}
