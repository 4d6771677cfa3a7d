//! Shows the state of the kubelet, its static pods the node's object in the cluster, and the
//! nodes of the cluster.

mod kubelet;
mod members;
mod node;

use corten_resources::controller::{GraphError, Runtime};

use crate::Sources;

/// Adds the controllers of this module.
pub(super) fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(kubelet::KubeletState {
        config: sources.config.clone(),
    })?;
    runtime.add(node::NodeStates {
        config: sources.config.clone(),
    })?;
    runtime.add(members::Members {
        config: sources.config.clone(),
    })
}
