//! Moves a node's pods to other nodes before the node goes down, and lets new pods on the node after it is back.
//!
//! Owns: the cordon of one node while a verb works on the node.
//! Never: restarts the node itself.

use std::time::Duration;

use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::flags::Global;
use corten_client::resources::find;
use corten_client::stream::{Failed, Node, Trouble, each};
use corten_client::table::printable;
use corten_cluster::{Cluster, Drained};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::args::Move;
use crate::kubernetes;

/// Interval between two checks whether a node is Ready.
const LOOK: Duration = Duration::from_secs(2);
/// The alternative without a drain.
const REMEDY: &str = "--drain=false restarts the node under its pods";
/// Maximum number of pods named in an error, which gives the number of the others.
const NAMED: usize = 5;

/// A cordoned and drained node.
#[derive(Debug)]
pub(crate) struct Cordon {
    cluster: Cluster,
    /// The operator's name of the node.
    node: String,
    /// The name of the node in Kubernetes.
    nodename: String,
}

/// Cordons the node and evicts its pods. `None` if it runs no pods of a cluster.
///
/// # Errors
/// The Kubernetes API cannot be reached, or pods are left at the timeout. The node is then
/// uncordoned.
pub(crate) async fn leave(
    global: &Global,
    node: &Node,
    args: Move,
) -> Result<Option<Cordon>, Trouble> {
    let Some(nodename) = name_in_kubernetes(node).await? else {
        return Ok(None);
    };
    let cluster = cluster(global).await?;
    let cordon = Cordon {
        cluster,
        node: node.name.clone(),
        nodename,
    };
    cordon.say("its pods move to other nodes");
    let why = match cordon.drain(args.drain_timeout).await {
        Ok(moved) => {
            cordon.say(&format!("{moved} pods have moved"));
            return Ok(Some(cordon));
        }
        Err(why) => why,
    };
    let lifted = cordon.cluster.uncordon(&cordon.nodename).await;
    let still = lifted.err().map_or_else(String::new, |error| {
        format!("; the node stays cordoned: {error}")
    });
    Err(Trouble::Said(format!(
        "the node was not restarted: {why}{still}; --drain-timeout gives the pods more time, {REMEDY}"
    )))
}

impl Cordon {
    async fn drain(&self, timeout: Duration) -> Result<usize, String> {
        let text = |error| format!("node {} cannot be drained: {error}", self.nodename);
        self.cluster.cordon(&self.nodename).await.map_err(text)?;
        let drained = self.cluster.drain(&self.nodename, timeout).await;
        moved(&drained.map_err(text)?, timeout)
    }

    /// Waits until the kubelet reports Ready, and uncordons the node.
    ///
    /// # Errors
    /// The node is not Ready in time, or cannot be uncordoned: node and error.
    pub(crate) async fn lift(self, limit: Duration) -> Failed {
        let until = Instant::now() + limit;
        let why = loop {
            let last = match self.is_ready().await {
                Ok(()) => break self.cluster.uncordon(&self.nodename).await.err(),
                Err(why) => why,
            };
            if Instant::now() >= until {
                let why = format!(
                    "it stays cordoned, because it is not Ready after {} s: {last}; uncordon it later",
                    limit.as_secs()
                );
                return vec![(self.node, why)];
            }
            sleep(LOOK).await;
        };
        let why = why.map(|error| format!("it stays cordoned: {error}"));
        why.map(|why| (self.node, why)).into_iter().collect()
    }

    async fn is_ready(&self) -> Result<(), String> {
        let ready = self.cluster.node_ready(&self.nodename).await;
        ready.map_err(|error| error.to_string())?
    }

    fn say(&self, what: &str) {
        eprintln!("{}: {what}", printable(&self.node));
    }
}

/// The number of evicted pods; the error names the remaining ones.
fn moved(drained: &Drained, timeout: Duration) -> Result<usize, String> {
    if drained.left.is_empty() {
        return Ok(drained.gone.len());
    }
    let names = drained.left.iter().take(NAMED);
    let names: Vec<_> = names
        .map(|left| format!("{}: {}", left.pod, left.reason))
        .collect();
    let others = match drained.left.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!("; and {others} others"),
    };
    Err(format!(
        "{} pods are left after {} s: {}{others}",
        drained.left.len(),
        timeout.as_secs(),
        names.join("; ")
    ))
}

/// The node's name in Kubernetes, if its kubelet has registered it.
pub(crate) async fn name_in_kubernetes(node: &Node) -> Result<Option<String>, Trouble> {
    let kubelet = find(node, "runtime", "Services.v1alpha1.talos.dev", "kubelet").await?;
    let kubelet = kubelet.unwrap_or_default();
    if kubelet.get("running") != Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let name = find(node, "k8s", "Nodenames.kubernetes.talos.dev", "nodename").await?;
    let name = name.unwrap_or_default();
    if name.get("skipNodeRegistration") == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let name = name.get("nodename").and_then(Value::as_str);
    Ok(name.map(str::to_owned))
}

async fn cluster(global: &Global) -> Result<Cluster, Trouble> {
    kubernetes::connect(global, None).await?.map_err(|why| {
        Trouble::Said(format!(
            "the node was not restarted, because its pods cannot be moved: {why}; {REMEDY}"
        ))
    })
}

/// Uncordons the nodes; returns those that stay cordoned.
pub(crate) async fn lift(cordons: Vec<Cordon>, limit: Duration) -> Failed {
    let mut failed = Failed::new();
    for cordon in cordons {
        failed.extend(cordon.lift(limit).await);
    }
    failed
}

/// Cordons and drains every node of the routes. If one cannot be drained, all are uncordoned.
///
/// # Errors
/// Those of [`leave`].
pub(crate) async fn leave_all(
    global: &Global,
    routes: Vec<Route>,
    args: Move,
    limit: Duration,
) -> Result<Vec<Cordon>, Failure> {
    let mut cordons = Vec::new();
    let mut failed = each(routes, async |node| {
        cordons.extend(leave(global, node, args).await?);
        Ok(())
    })
    .await?;
    if !failed.is_empty() {
        failed.extend(lift(cordons, limit).await);
        finish(&failed)?;
        return Ok(Vec::new());
    }
    Ok(cordons)
}

#[cfg(test)]
mod tests {
    use corten_cluster::Left;

    use super::*;

    #[test]
    fn pods_that_stay_are_named_with_the_reason() {
        let gone = vec!["default/web".to_owned()];
        let left = |number: usize| {
            let one = |at| Left {
                pod: format!("default/db-{at}"),
                reason: "its budget forbids it".to_owned(),
            };
            let left = (0..number).map(one).collect();
            let drained = Drained {
                gone: gone.clone(),
                left,
            };
            moved(&drained, Duration::from_secs(300))
        };
        assert_eq!(left(0), Ok(1));
        let one = left(1).unwrap_err();
        assert_eq!(
            one,
            "1 pods are left after 300 s: default/db-0: its budget forbids it"
        );
        let many = left(7).unwrap_err();
        assert!(many.ends_with("; and 2 others"), "{many}");
        assert!(many.starts_with("7 pods"), "{many}");
    }
}
