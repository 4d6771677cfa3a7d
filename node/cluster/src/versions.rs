//! The facts that an upgrade of Kubernetes needs from a cluster: versions, control plane pods, deprecated APIs in use.

use std::net::IpAddr;

use http::Request;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::error::short;
use crate::kinds::{check_part, core};
use crate::pods::why_not_ready;
use crate::readiness::{MOST_NODES, readiness};
use crate::{Cluster, ClusterError, within};

/// Namespace of the control plane's pods.
const NAMESPACE: &str = "kube-system";
/// Annotation of a static pod with the digest of its secrets.
const SECRETS: &str = "talos.dev/secrets-version";
/// Metric that counts requests to APIs that a later version removes (Kubernetes, "Deprecated API Migration Guide").
const METRIC: &str = "apiserver_requested_deprecated_apis{";

/// A node, as an upgrade sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name of the node.
    pub name: String,
    /// Addresses in the cluster.
    pub addresses: Vec<IpAddr>,
    /// Version of its kubelet, such as `v1.36.2`.
    pub kubelet: String,
    /// Whether its kubelet reports that pods can run; otherwise the reason.
    pub ready: Result<(), String>,
}

/// A static pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticPod {
    /// Image of its first container.
    pub image: String,
    /// Digest of the secrets that it was started with, from its annotation.
    pub secrets: String,
    /// Whether it is ready; otherwise the reason.
    pub ready: Result<(), String>,
}

/// A deprecated API that clients have requested since the start of the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requested {
    /// Group and version, such as `policy/v1beta1`.
    pub api: String,
    /// Resource, such as `poddisruptionbudgets`.
    pub resource: String,
    /// First minor version of Kubernetes without the API, such as 1 and 25.
    pub removed: (u64, u64),
}

impl Cluster {
    /// Lists all registered nodes by name.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn machines(&self) -> Result<Vec<Machine>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &core("Node", "nodes"));
        let params = ListParams::default().limit(MOST_NODES);
        let list = within("list", &"the nodes", api.list(&params)).await?;
        let mut machines: Vec<Machine> = list.items.iter().map(machine).collect();
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }

    /// One registered node; `None` if it is not registered.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn machine(&self, name: &str) -> Result<Option<Machine>, ClusterError> {
        let node = self.read_node(name).await?;
        Ok(node.as_ref().map(machine))
    }

    /// The static pod of a component on a node; `None` if the API server does not know it.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn static_pod(
        &self,
        component: &str,
        node: &str,
    ) -> Result<Option<StaticPod>, ClusterError> {
        let name = format!("{component}-{node}");
        let object = format!("Pod {NAMESPACE}/{name}");
        check_part(&object, "its name", &name)?;
        let kind = core("Pod", "pods");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        let found = within("read", &object, api.get_opt(&name)).await?;
        Ok(found.map(|pod| static_pod(&pod)))
    }

    /// Deprecated APIs in use, as counted by one API server since its start.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn requested_old_apis(&self) -> Result<Vec<Requested>, ClusterError> {
        let (action, object) = ("read", "the metrics of kube-apiserver");
        let request = Request::get("/metrics").body(Vec::new());
        let request = request.map_err(|error| ClusterError::request(action, &object, error))?;
        let text = within(action, &object, self.client.request_text(request)).await?;
        let mut found: Vec<Requested> = text.lines().filter_map(requested).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }
}

fn machine(node: &DynamicObject) -> Machine {
    let addresses = node.data.pointer("/status/addresses");
    let addresses = addresses.and_then(Value::as_array).into_iter().flatten();
    let internal = addresses.filter(|one| one.get("type") == Some(&Value::from("InternalIP")));
    let internal = internal.filter_map(|one| one.get("address")?.as_str()?.parse().ok());
    let kubelet = node.data.pointer("/status/nodeInfo/kubeletVersion");
    let readiness = readiness(node);
    Machine {
        name: readiness.name,
        addresses: internal.collect(),
        kubelet: short(kubelet.and_then(Value::as_str).unwrap_or_default()),
        ready: readiness.ready,
    }
}

fn static_pod(pod: &DynamicObject) -> StaticPod {
    let text = |path: &str| {
        let text = pod.data.pointer(path).and_then(Value::as_str);
        short(text.unwrap_or_default())
    };
    let annotations = pod.metadata.annotations.as_ref();
    StaticPod {
        image: text("/spec/containers/0/image"),
        secrets: short(
            annotations
                .and_then(|all| all.get(SECRETS))
                .map_or("", String::as_str),
        ),
        ready: why_not_ready(pod).map_or(Ok(()), |why| Err(format!("its pod {why}"))),
    }
}

/// Parses a line of the metrics: labels with quoted values, then a number.
fn requested(line: &str) -> Option<Requested> {
    let (labels, number) = line.strip_prefix(METRIC)?.rsplit_once('}')?;
    if number.trim() == "0" {
        return None;
    }
    // Every second part is a value.
    let mut parts = labels.split('"');
    let (mut group, mut version, mut resource, mut removed) = ("", "", "", "");
    while let (Some(label), Some(value)) = (parts.next(), parts.next()) {
        match label.trim_start_matches(',').trim_end_matches('=').trim() {
            "group" => group = value,
            "version" => version = value,
            "resource" => resource = value,
            "removed_release" => removed = value,
            _ => {}
        }
    }
    let (major, minor) = removed.split_once('.')?;
    let api = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    Some(Requested {
        api: short(&api),
        resource: short(resource),
        removed: (major.parse().ok()?, minor.parse().ok()?),
    })
}
