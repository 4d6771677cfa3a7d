//! A node object: reads, metadata and cordon.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kinds::{check_part, core};
use crate::{Cluster, ClusterError, MANAGER, Metadata, ownership, within};

/// Annotation that marks a cordon as machined's rather than a user's.
const CORDONED: &str = "talos.dev/cordoned";
/// Time limit for retries of a conflicting change.
const RETRY: Duration = Duration::from_secs(10);
/// Status code of a change that the client may not make.
const FORBIDDEN: u16 = 403;
/// Pause between retries.
const PAUSE: Duration = Duration::from_millis(100);

impl Cluster {
    /// The node, or `None` if the cluster has no node of that name.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn node(&self, name: &str) -> Result<Option<Value>, ClusterError> {
        let (api, object) = self.place_of_node(name)?;
        let node = within("read", &object, api.get_opt(name)).await?;
        let node = node.map(serde_json::to_value).transpose();
        node.map_err(|error| ClusterError::request("read", &object, error))
    }

    /// Sets the labels, annotations and taints that machined wants, and removes those that it set and no longer wants.
    /// Those of other clients stay. Concurrent changes are taken into account.
    ///
    /// If the server forbids that, the taints and the labels for which `may_label` is false stay as they are. Returns
    /// their keys.
    ///
    /// # Errors
    /// The node does not exist or cannot be changed, or [`ClusterError::Ownership`].
    pub async fn apply_node_metadata(
        &self,
        name: &str,
        wanted: &Metadata,
        may_label: fn(&str) -> bool,
    ) -> Result<Vec<String>, ClusterError> {
        match self.apply_limited(name, wanted, None).await {
            Err(error) if error.code() == Some(FORBIDDEN) => {
                self.apply_limited(name, wanted, Some(may_label)).await
            }
            done => done,
        }
    }

    async fn apply_limited(
        &self,
        name: &str,
        wanted: &Metadata,
        limit: Option<ownership::Limit>,
    ) -> Result<Vec<String>, ClusterError> {
        let mut left_out = Vec::new();
        let changed = self.change_node("change the metadata of", name, |node| {
            let change = ownership::change(name, node, wanted, limit)?;
            left_out = change.left_out;
            Ok(change.patch)
        });
        changed.await?;
        Ok(left_out)
    }

    /// Makes the node unschedulable. A user's cordon stays the user's.
    ///
    /// # Errors
    /// The node does not exist or cannot be changed.
    pub async fn cordon(&self, name: &str) -> Result<(), ClusterError> {
        self.change_node("cordon", name, |node| {
            let patch = (!is_cordoned(node)).then(|| cordon(node, true, Value::from("true")));
            Ok(patch)
        })
        .await
    }

    /// Undoes [`Cluster::cordon`]. A user's cordon stays.
    ///
    /// # Errors
    /// The node does not exist or cannot be changed.
    pub async fn uncordon(&self, name: &str) -> Result<(), ClusterError> {
        self.change_node("uncordon", name, |node| {
            let annotations = node.pointer("/metadata/annotations");
            let ours = annotations.is_some_and(|all| all.get(CORDONED).is_some());
            Ok(ours.then(|| cordon(node, false, Value::Null)))
        })
        .await
    }

    /// Sends the patch that `change` derives from the current node, if any, and retries after a conflict.
    async fn change_node(
        &self,
        action: &'static str,
        name: &str,
        mut change: impl FnMut(&Value) -> Result<Option<Value>, ClusterError>,
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
