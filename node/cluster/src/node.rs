//! One node: reading it, its metadata, its cordon.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kinds::{check_part, core};
use crate::{Cluster, ClusterError, MANAGER, Metadata, ownership, within};

/// Tells a cordon of machined from one of a user.
const CORDONED: &str = "talos.dev/cordoned";
/// So long a change is tried again that another change overtook.
const RETRY: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

impl Cluster {
    /// The node, or `None` if the cluster has none of that name.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn node(&self, name: &str) -> Result<Option<Value>, ClusterError> {
        let (api, object) = self.place_of_node(name)?;
        let node = within("read", &object, api.get_opt(name)).await?;
        let node = node.map(serde_json::to_value).transpose();
        node.map_err(|error| ClusterError::request("read", &object, error))
    }

    /// Gives the node the labels, annotations and taints that machined wants, and takes back those that it gave and
    /// wants no longer. What another gave stays as it is. A change of another meanwhile is taken into account.
    ///
    /// # Errors
    /// The node is not there or cannot be changed, or [`ClusterError::Ownership`].
    pub async fn apply_node_metadata(
        &self,
        name: &str,
        wanted: &Metadata,
    ) -> Result<(), ClusterError> {
        self.change_node("change the metadata of", name, |node| {
            ownership::patch(name, node, wanted)
        })
        .await
    }

    /// Lets no new pod on the node. A cordon of a user stays a user's.
    ///
    /// # Errors
    /// The node is not there or cannot be changed.
    pub async fn cordon(&self, name: &str) -> Result<(), ClusterError> {
        self.change_node("cordon", name, |node| {
            let patch = (!is_cordoned(node)).then(|| cordon(node, true, Value::from("true")));
            Ok(patch)
        })
        .await
    }

    /// Undoes [`Cluster::cordon`]. A cordon of a user stays.
    ///
    /// # Errors
    /// The node is not there or cannot be changed.
    pub async fn uncordon(&self, name: &str) -> Result<(), ClusterError> {
        self.change_node("uncordon", name, |node| {
            let annotations = node.pointer("/metadata/annotations");
            let ours = annotations.is_some_and(|all| all.get(CORDONED).is_some());
            Ok(ours.then(|| cordon(node, false, Value::Null)))
        })
        .await
    }

    /// Sends the patch that `change` makes of the node as it is, if it makes one.
    async fn change_node(
        &self,
        action: &'static str,
        name: &str,
        change: impl Fn(&Value) -> Result<Option<Value>, ClusterError>,
    ) -> Result<(), ClusterError> {
        let (api, object) = self.place_of_node(name)?;
        let until = Instant::now() + RETRY;
        loop {
            let node = within(action, &object, api.get(name)).await?;
            let node = serde_json::to_value(node);
            let node = node.map_err(|error| ClusterError::request(action, &object, error))?;
            let Some(patch) = change(&node)? else {
                return Ok(());
            };
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(&patch);
            match within(action, &object, api.patch(name, &params, &patch)).await {
                Err(error) if error.code() == Some(409) && Instant::now() < until => {
                    sleep(PAUSE).await;
                }
                done => return done.map(drop),
            }
        }
    }

    fn place_of_node(&self, name: &str) -> Result<(Api<DynamicObject>, String), ClusterError> {
        let object = format!("Node {name}");
        check_part(&object, "its name", name)?;
        let api = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        Ok((api, object))
    }
}

fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
}

fn cordon(node: &Value, on: bool, annotation: Value) -> Value {
    json!({
        "metadata": {
            "resourceVersion": node.pointer("/metadata/resourceVersion"),
            "annotations": { CORDONED: annotation },
        },
        "spec": { "unschedulable": on },
    })
}
