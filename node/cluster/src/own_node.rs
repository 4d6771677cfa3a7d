//! Watches the object of one node.

use std::collections::BTreeMap;

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::changes::{Change, Changes};
use crate::kinds::{check_part, core};
use crate::readiness::readiness;
use crate::{Cluster, ClusterError};

/// The cluster's record of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Whether its kubelet reports that pods can run.
    pub is_ready: bool,
    /// Whether new pods are kept away.
    pub is_cordoned: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Subnets of its pods.
    pub pod_subnets: Vec<String>,
}

/// The state of one node as it changes.
pub struct NodeWatch {
    changes: Changes,
}

impl std::fmt::Debug for NodeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeWatch")
    }
}

impl Cluster {
    /// Watches a node; [`Cluster::connect_to_watch`] makes the connection for it. A kubelet may watch its own node.
    ///
    /// # Errors
    /// [`ClusterError::Name`].
    pub fn watch_node(&self, name: &str) -> Result<NodeWatch, ClusterError> {
        check_part(&format!("Node {name}"), "its name", name)?;
        let api = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        Ok(NodeWatch {
            changes: Changes::of_one(api, name, "this node"),
        })
    }
}

impl NodeWatch {
    /// Waits for the next state; `None` while there is no such node. The first state is that of now. Dropping the future
    /// loses none.
    ///
    /// # Errors
    /// [`ClusterError::Request`]; the next call asks again.
    pub async fn next(&mut self) -> Result<Option<NodeState>, ClusterError> {
        Ok(match self.changes.next().await? {
            Change::Is(node) => Some(state(&node)),
            Change::Gone(_) => None,
        })
    }
}

fn state(node: &DynamicObject) -> NodeState {
    let found = readiness(node);
    let subnets = node.data.pointer("/spec/podCIDRs");
    let subnets = subnets.and_then(Value::as_array).into_iter().flatten();
    NodeState {
        is_ready: found.ready.is_ok(),
        is_cordoned: !found.is_schedulable,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
        pod_subnets: subnets
            .filter_map(|subnet| Some(subnet.as_str()?.to_owned()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_of_a_node_comes_from_its_object() {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "n1", "labels": { "a": "b" } },
            "spec": { "unschedulable": true, "podCIDRs": ["10.244.1.0/24", 7] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let node: DynamicObject = serde_json::from_value(node).unwrap();
        let expected = NodeState {
            is_ready: true,
            is_cordoned: true,
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            annotations: BTreeMap::new(),
            pod_subnets: vec!["10.244.1.0/24".to_owned()],
        };
        assert_eq!(state(&node), expected);
        let bare = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
        let bare: DynamicObject = serde_json::from_value(bare).unwrap();
        assert_eq!(state(&bare), NodeState::default());
    }
}
