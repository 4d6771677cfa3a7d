//! Shows the node's object in the cluster.

use std::time::Duration;

use corten_cluster::{NodeState, NodeWatch};
use corten_config::Document;
use corten_credentials::access::of_node_to_watch;
use corten_kubernetes::Settings;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_kubelet::{ID, KubeletKubeconfig};
use corten_types::kubernetes_node::NodeStatus;
use tokio::sync::watch;
use tokio::time::sleep;

/// Retry interval: an API server starts slowly, and a kubelet registers its node late.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct NodeStates {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for NodeStates {
    fn name(&self) -> &'static str {
        "k8s.NodeStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            // A new certificate or server needs a new connection.
            Input::of::<KubeletKubeconfig>(Dependency::Weak).with_id(ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut open: Option<(String, NodeWatch)> = None;
        loop {
            let changed = match &mut open {
                Some((_, node)) => tokio::select! {
                    () = context.event() => None,
                    Ok(()) = self.config.changed() => None,
                    state = node.next() => Some(state),
                },
                None => tokio::select! {
                    () = context.event() => None,
                    Ok(()) = self.config.changed() => None,
                    () = sleep(PAUSE) => None,
                },
            };
            match changed {
                Some(Ok(state)) => {
                    let name = open.as_ref().map(|(name, _)| name.clone());
                    shown(context, &name.unwrap_or_default(), state)?;
                }
                // The last state stays: a failed request proves nothing about the node.
                Some(Err(_)) => {
                    open = None;
                    sleep(PAUSE).await;
                }
                None => open = self.open(context)?,
            }
        }
    }
}

impl NodeStates {
    /// Begins to watch the node; `None` while it cannot be watched. A node that does not register has no status.
    fn open(&mut self, context: &mut Context) -> Result<Option<(String, NodeWatch)>, Failure> {
        let config = self.config.borrow_and_update().clone();
        let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
        let nodename = context.get::<Nodename>(Nodename::ID)?;
        let nodename = nodename.filter(|nodename| !nodename.skip_node_registration);
        let (Some(config), Some(settings), Some(nodename)) = (config, settings, nodename) else {
            context.start_outputs();
            context.remove_others::<NodeStatus>()?;
            return Ok(None);
        };
        let name = nodename.nodename.clone();
        let cluster = of_node_to_watch(&config, &settings).ok();
        let watch = cluster.and_then(|cluster| cluster.watch_node(&name).ok());
        Ok(watch.map(|watch| (name, watch)))
    }
}

/// Shows a state of the node; `None` if the cluster has no such node.
fn shown(context: &mut Context, name: &str, state: Option<NodeState>) -> Result<(), Failure> {
    context.start_outputs();
    if let Some(state) = state {
        let status = NodeStatus {
            nodename: name.to_owned(),
            node_ready: state.is_ready,
            unschedulable: state.is_cordoned,
            labels: state.labels,
            annotations: state.annotations,
            pod_cidrs: state.pod_subnets,
        };
        context.put(Draft::new(name, status))?;
    }
    context.remove_others::<NodeStatus>()?;
    Ok(())
}
