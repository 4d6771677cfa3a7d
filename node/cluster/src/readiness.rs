//! Readiness of a cluster's nodes.

use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::kinds::{CONTROL_PLANE, check_part, core};
use crate::{Cluster, ClusterError, within};

/// Limit of listed nodes; of a larger cluster, the first ones by name.
pub(crate) const MOST_NODES: u32 = 5000;

/// Reason of an unregistered node.
const UNKNOWN: &str = "it is not registered with Kubernetes yet";

/// Readiness of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReadiness {
    /// Name.
    pub name: String,
    /// Whether the kubelet reports that pods can run; otherwise the reason.
    pub ready: Result<(), String>,
    /// Whether new pods may be scheduled on the node.
    pub is_schedulable: bool,
    /// Whether it has the label of a control plane node.
    pub is_control_plane: bool,
}

impl Cluster {
    /// All registered nodes, sorted by name.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn nodes(&self) -> Result<Vec<NodeReadiness>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        let params = ListParams::default().limit(MOST_NODES);
        let list = within("list", &"the nodes", api.list(&params)).await?;
        let mut nodes: Vec<NodeReadiness> = list.items.iter().map(readiness).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// Whether the kubelet of a node reports that pods can run; otherwise the reason. Reads this node alone.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn node_ready(&self, name: &str) -> Result<Result<(), String>, ClusterError> {
        let node = self.read_node(name).await?;
        Ok(node.map_or_else(|| Err(UNKNOWN.to_owned()), |node| readiness(&node).ready))
    }

    /// The node; `None` if it is not registered.
    pub(crate) async fn read_node(
        &self,
        name: &str,
    ) -> Result<Option<DynamicObject>, ClusterError> {
        let object = format!("Node {name}");
        check_part(&object, "its name", name)?;
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        within("read", &object, api.get_opt(name)).await
    }
}

pub(crate) fn readiness(node: &DynamicObject) -> NodeReadiness {
    let conditions = node.data.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let text = |condition: &Value, field: &str| {
        let text = condition.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let ready = conditions.find(|one| one.get("type") == Some(&Value::from("Ready")));
    let ready = match ready {
        Some(condition) if text(condition, "status") == "True" => Ok(()),
        Some(condition) => Err(text(condition, "message")),
        None => Err("its kubelet has not reported its readiness yet".to_owned()),
    };
    let labels = node.metadata.labels.as_ref();
    NodeReadiness {
        name: node.metadata.name.clone().unwrap_or_default(),
        is_control_plane: labels.is_some_and(|labels| labels.contains_key(CONTROL_PLANE)),
        ready,
        is_schedulable: node.data.pointer("/spec/unschedulable") != Some(&Value::Bool(true)),
    }
}
