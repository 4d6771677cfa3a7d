//! Watches the nodes of the cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::changes::{Change, Changes};
use crate::kinds::{CONTROL_PLANE, core};
use crate::{Cluster, ClusterError};

/// Time in which changes are one change: at the beginning, each node is one.
const BATCH: Duration = Duration::from_secs(1);
/// Operating systems whose nodes have this API.
const SYSTEMS: [&str; 2] = ["Corten ", "Talos "];

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of its object.
    pub name: String,
    /// Id of its machine (`/etc/machine-id`).
    pub machine: String,
    /// Its addresses, in the kubelet's order.
    pub addresses: Vec<IpAddr>,
    /// Whether it is a control plane node.
    pub is_control_plane: bool,
    /// Name and version of its operating system.
    pub system: String,
}

/// The nodes of the cluster as they change.
pub struct MemberWatch {
    changes: Changes,
    members: BTreeMap<String, Member>,
    /// [`Changes::replays`] at the last change.
    replays: u64,
    /// Whether a change was not returned yet.
    is_new: bool,
}

impl std::fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemberWatch")
    }
}

impl Cluster {
    /// Watches all nodes that have the API of a node; [`Cluster::connect_to_watch`] makes the connection for it. A kubelet
    /// may not.
    #[must_use]
    pub fn watch_members(&self) -> MemberWatch {
        let api = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        MemberWatch {
            changes: Changes::of(api, "the nodes"),
            members: BTreeMap::new(),
            replays: 0,
            is_new: false,
        }
    }
}

impl MemberWatch {
    /// Waits for a change; returns all nodes, by name. Dropping the future loses none.
    ///
    /// # Errors
    /// [`ClusterError::Request`]; the next call asks again.
    pub async fn next(&mut self) -> Result<Vec<Member>, ClusterError> {
        if !self.is_new {
            let change = self.changes.next().await?;
            self.take(change);
        }
        let end = Instant::now() + BATCH;
        while let Ok(change) = timeout_at(end, self.changes.next()).await {
            self.take(change?);
        }
        self.is_new = false;
        Ok(self.members.values().cloned().collect())
    }

    fn take(&mut self, change: Change) {
        // A node that was deleted meanwhile is not among the nodes that follow.
        if self.changes.replays() != self.replays {
            self.replays = self.changes.replays();
            self.members.clear();
        }
        self.is_new = true;
        match change {
            Change::Is(node) => {
                if let Some(member) = member(&node) {
                    self.members.insert(member.name.clone(), member);
                }
            }
            Change::Gone(node) => {
                self.members.remove(&node.metadata.name.unwrap_or_default());
            }
        }
    }
}

fn member(node: &DynamicObject) -> Option<Member> {
    let info = |field: &str| {
        let info = node.data.pointer("/status/nodeInfo")?.get(field)?.as_str();
        info.map(str::to_owned)
    };
    let addresses = node.data.pointer("/status/addresses");
    let addresses = addresses.and_then(Value::as_array).into_iter().flatten();
    let address = |one: &Value| one.get("address")?.as_str()?.parse().ok();
    let labels = node.metadata.labels.as_ref();
    let system = info("osImage").filter(|system| SYSTEMS.iter().any(|own| system.starts_with(own)));
    Some(Member {
        name: node.metadata.name.clone()?,
        machine: info("machineID").unwrap_or_default(),
        addresses: addresses.filter_map(address).collect(),
        is_control_plane: labels.is_some_and(|labels| labels.contains_key(CONTROL_PLANE)),
        system: system?,
    })
}
