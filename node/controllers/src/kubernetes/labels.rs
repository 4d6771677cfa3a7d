//! Sets labels and taints of a control plane node, including those that a kubelet may not set on its own node. Removes
//! the cordon of the last shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_cluster::{Metadata, Taint};
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_kubernetes::{Node, Settings};
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes::Nodename;
use tokio::sync::watch;
use tokio::time::sleep;

use super::next;

/// Retry interval: the kubelet may register the node late.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Labels {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Labels {
    fn name(&self) -> &'static str {
        "k8s.NodeApplyController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let nodename = context.get::<Nodename>(Nodename::ID)?;
            let (Some(config), Some(nodename)) = (config, nodename) else {
                continue;
            };
            if Settings::of(&config).is_err() || nodename.skip_node_registration {
                continue;
            }
            // A node that is not registered yet is no reason to warn; the kubelet's log has the cause.
            while !self.config.has_changed().unwrap_or_default()
                && label(&config, &nodename.nodename).await.is_err()
            {
                sleep(PAUSE).await;
            }
        }
    }
}

async fn label(config: &Document, nodename: &str) -> Result<(), String> {
    let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
    let node = Node::of(config, &settings).map_err(|missing| missing.to_string())?;
    let cluster = of_node(config, &settings)?;
    let mut wanted = Metadata {
        labels: node.all_labels().into_iter().collect(),
        annotations: node.annotations.into_iter().collect(),
        taints: node.taints.into_iter().map(taint).collect(),
    };
    // A worker's kubelet registers the node with its labels and taints, and may not change all of them later.
    if !node.is_control_plane {
        wanted.labels = BTreeMap::new();
        wanted.taints = BTreeMap::new();
    }
    let applied = cluster.apply_node_metadata(nodename, &wanted).await;
    applied.map_err(|error| describe(&error))?;
    // The previous shutdown has cordoned the node.
    let uncordoned = cluster.uncordon(nodename).await;
    uncordoned.map_err(|error| describe(&error))
}

fn taint(taint: corten_kubernetes::Taint) -> (String, Taint) {
    let corten_kubernetes::Taint { key, value, effect } = taint;
    (key, Taint { value, effect })
}
