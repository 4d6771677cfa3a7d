//! Stops the pods that no kubelet has stopped: it restarts, fails at its start, has no certificate yet, or hangs. Their
//! containers get their stop signals and up to 30 s, as in the reference.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_containerd::client::{Container, Containerd, Kind, PODS};
use corten_supervisor::CONTAINERD_SOCKET;
use corten_supervisor::kubernetes::KUBELET;
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::view::Control;
use corten_sys::cgroup;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use crate::boot::cgroups;

/// Time for the containers (the reference's value).
const LIMIT: Duration = Duration::from_secs(30);
/// Time within [`LIMIT`] for the pods with a network of their own, before those on the node's network get their signals
/// as well. The kubelet leaves its critical pods as much of its own grace period.
const FIRST: Duration = Duration::from_secs(20);
/// Timeout of an answer of containerd, which may be the reason why the kubelet does not work.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for the kubelet to end. It ends within a second, unless it hangs.
const KUBELET_END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(250);
/// Limit of the containers in a line of the console.
const NAMES: usize = 5;

/// What runs the pods.
pub(super) trait Runtime {
    /// Whether a process of a pod is left.
    fn has_pods(&self) -> bool;
    /// All containers of pods.
    async fn containers(&self) -> Result<Vec<Container>, Status>;
    /// Sends a container its stop signal.
    async fn stop(&self, container: &Container) -> Result<(), Status>;
    /// Ends the kubelet, which would start containers again.
    async fn end_kubelet(&self);
}

/// containerd and the kubelet of this node.
#[derive(Debug)]
pub(super) struct Real<'a> {
    containerd: Containerd,
    supervisor: &'a Supervisor,
}

impl Real<'_> {
    pub(super) fn new(supervisor: &Supervisor) -> Real<'_> {
        Real {
            containerd: Containerd::new(Path::new(CONTAINERD_SOCKET)),
            supervisor,
        }
    }
}

impl Runtime for Real<'_> {
    fn has_pods(&self) -> bool {
        cgroup::is_populated(Path::new(cgroups::ROOT), cgroups::PODS)
    }

    async fn containers(&self) -> Result<Vec<Container>, Status> {
        self.containerd.containers(PODS).await
    }

    async fn stop(&self, container: &Container) -> Result<(), Status> {
        self.containerd.stop(PODS, container).await
    }

    async fn end_kubelet(&self) {
        let ended = self.supervisor.control(KUBELET, Control::Stop);
        let _ = timeout(KUBELET_END, ended).await;
    }
}

/// Stops the containers that still run after `patience`, the time for those that the kubelet stops already.
pub(super) async fn stop(runtime: &impl Runtime, patience: Duration) {
    if !runtime.has_pods() {
        return;
    }
    let Ok(left) = timeout(patience + ANSWER, left_after(patience, runtime)).await else {
        return console::warn(&format!(
            "containerd does not answer within {} s, so the pods that are left are killed without their grace periods; \
             `cortenctl logs --previous containerd` shows why after the next start",
            ANSWER.as_secs()
        ));
    };
    if left.is_empty() {
        return;
    }
    console::warn(&format!(
        "pods without a kubelet that stops them: {}; the node stops their containers, for at most {} s; \
         `cortenctl logs --previous kubelet` shows why after the next start",
        pods(&left),
        LIMIT.as_secs()
    ));
    runtime.end_kubelet().await;
    let mut stopping = Stopping {
        runtime,
        told: HashSet::new(),
        left: Vec::new(),
    };
    match timeout(LIMIT, stopping.all()).await {
        Ok(()) => console::say("the containers of the pods have ended"),
        Err(_) => console::warn(&format!(
            "containers that still run after {} s are killed: {}; their programs need longer, or ignore the stop \
             signal of their images",
            LIMIT.as_secs(),
            shown(&stopping.left)
        )),
    }
}

/// The containers that run, as soon as there are none, or else after `patience`.
async fn left_after(patience: Duration, runtime: &impl Runtime) -> Vec<Running> {
    let begun = Instant::now();
    loop {
        if let Ok(all) = runtime.containers().await {
            let left = running(all);
            if left.is_empty() || begun.elapsed() >= patience {
                return left;
            }
        }
        sleep(POLL).await;
    }
}

/// A container to stop.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    container: Container,
    /// Whether its pod is on the node's network, such as the agent of the pod network, which the other pods need.
    on_node_network: bool,
}

/// The containers that run, without sandboxes. Only the sandbox of a pod tells its network.
fn running(all: Vec<Container>) -> Vec<Running> {
    let (sandboxes, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|container| container.kind == Kind::Sandbox);
    let on_node_network = |container: &Container| {
        let mut own = sandboxes
            .iter()
            .filter(|sandbox| sandbox.pod == container.pod && sandbox.uid == container.uid)
            .peekable();
        own.peek().is_some() && own.all(|sandbox| sandbox.network_namespace.is_empty())
    };
    others
        .into_iter()
        .filter(Container::is_running)
        .map(|container| Running {
            on_node_network: on_node_network(&container),
            container,
        })
        .collect()
}

/// Number of the containers' pods.
fn pods(left: &[Running]) -> usize {
    let pod = |running: &Running| (running.container.pod.clone(), running.container.uid.clone());
    left.iter().map(pod).collect::<BTreeSet<_>>().len()
}

fn shown(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES);
    let named: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}

struct Stopping<'a, R> {
    runtime: &'a R,
    /// Containers that got their signal. Some programs end at once at a second one.
    told: HashSet<String>,
    /// Names of the containers that ran at the last look.
    left: Vec<String>,
}

impl<R: Runtime> Stopping<'_, R> {
    /// Stops the pods with a network of their own first, as in the reference.
    async fn all(&mut self) {
        let first = self.until_ended(|running| !running.on_node_network);
        let _ = timeout(FIRST, first).await;
        self.until_ended(|_| true).await;
    }

    /// Stops the containers that are meant, also those that start meanwhile.
    async fn until_ended(&mut self, is_meant: impl Fn(&Running) -> bool) {
        loop {
            if let Ok(Ok(all)) = timeout(ANSWER, self.runtime.containers()).await {
                let running = running(all);
                let name = |running: &Running| running.container.id.clone();
                self.left = running.iter().map(name).collect();
                let meant: Vec<_> = running.into_iter().filter(&is_meant).collect();
                if meant.is_empty() {
                    return;
                }
                self.tell(&meant).await;
            }
            sleep(POLL).await;
        }
    }

    async fn tell(&mut self, meant: &[Running]) {
        let (runtime, told) = (self.runtime, &self.told);
        let untold = meant
            .iter()
            .map(|running| &running.container)
            .filter(|container| !told.contains(&container.internal_id));
        let newly = join_all(untold.map(|container| async move {
            let stopped = timeout(ANSWER, runtime.stop(container)).await;
            matches!(stopped, Ok(Ok(()))).then(|| container.internal_id.clone())
        }));
        let newly = newly.await;
        self.told.extend(newly.into_iter().flatten());
    }
}

#[cfg(test)]
#[path = "leftover_tests.rs"]
mod tests;
