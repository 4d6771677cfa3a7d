//! Containers of pods: their state and their logs. Nodes and pods in full, for a diagnosis.

use futures_util::io::AsyncBufReadExt as _;
use futures_util::{Stream, StreamExt as _};
use http::Request;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use crate::error::short;
use crate::kinds::{check_part, core};
use crate::readiness::MOST_NODES;
use crate::{Cluster, ClusterError, within};

/// Limit of listed pods; of a larger namespace, the first ones by name.
pub(crate) const MOST_PODS: u32 = 5000;

/// A container of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub name: &'a str,
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// It has not started; the reason, such as that its image cannot be pulled.
    Waits(String),
    /// It runs.
    Runs,
    /// It has ended with this exit code.
    Ended(i64),
}

impl Container<'_> {
    fn check(&self) -> Result<String, ClusterError> {
        let object = format!("Pod {}/{}", self.namespace, self.pod);
        check_part(&object, "its namespace", self.namespace)?;
        check_part(&object, "its name", self.pod)?;
        check_part(&object, "the name of a container", self.name)?;
        Ok(object)
    }
}

impl Cluster {
    /// State of a container; `None` if the pod does not exist.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn container(
        &self,
        container: Container<'_>,
    ) -> Result<Option<ContainerState>, ClusterError> {
        let object = container.check()?;
        let kind = core("Pod", "pods");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), container.namespace, &kind);
        let pod = within("read", &object, api.get_opt(container.pod)).await?;
        Ok(pod.map(|pod| state(&pod.data, container.name)))
    }

    /// Follows the log of a container: lines, each with its time before a space, until the container ends. `since`, such
    /// a time, leaves out earlier lines. The connection must be that of [`Cluster::connect_to_watch`].
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`]; as an item, the connection broke.
    pub async fn log(
        &self,
        container: Container<'_>,
        since: Option<&str>,
    ) -> Result<impl Stream<Item = Result<String, ClusterError>> + Unpin + use<>, ClusterError>
    {
        let object = container.check()?;
        let Container {
            namespace,
            pod,
            name,
        } = container;
        let since = since.map(|since| format!("&sinceTime={since}"));
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={name}&follow=true&timestamps=true{}",
            since.unwrap_or_default()
        );
        let action = "read the log of";
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| ClusterError::request(action, &object, error))?;
        let log = within(action, &object, self.client.request_stream(request)).await?;
        let broken = move |error| ClusterError::request(action, &object, error);
        Ok(log.lines().map(move |line| line.map_err(&broken)))
    }

    /// All nodes in full.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn nodes_in_full(&self) -> Result<Vec<Value>, ClusterError> {
        let kind = core("Node", "nodes");
        let api = Api::all_with(self.client.clone(), &kind);
        in_full("the nodes", api, MOST_NODES).await
    }

    /// All pods of a namespace in full.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn pods_in_full(&self, namespace: &str) -> Result<Vec<Value>, ClusterError> {
        let object = format!("the pods of {namespace}");
        check_part(&object, "the namespace", namespace)?;
        let kind: ApiResource = core("Pod", "pods");
        let api = Api::namespaced_with(self.client.clone(), namespace, &kind);
        in_full(&object, api, MOST_PODS).await
    }

    /// Version of the API server, such as `v1.37.2`.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn version(&self) -> Result<String, ClusterError> {
        let object = "the version of kube-apiserver";
        let info = within("read", &object, self.client.apiserver_version()).await?;
        Ok(short(&info.git_version))
    }
}

async fn in_full(
    object: &str,
    api: Api<DynamicObject>,
    most: u32,
) -> Result<Vec<Value>, ClusterError> {
    let object = object.to_owned();
    let list = within(
        "list",
        &object,
        api.list(&ListParams::default().limit(most)),
    )
    .await?;
    let items = list.items.into_iter().map(serde_json::to_value);
    let items: Result<Vec<Value>, _> = items.collect();
    items.map_err(|error| ClusterError::request("list", &object, error))
}

fn state(pod: &Value, name: &str) -> ContainerState {
    let statuses = pod.pointer("/status/containerStatuses");
    let mut statuses = statuses.and_then(Value::as_array).into_iter().flatten();
    let own = statuses.find(|one| one.get("name") == Some(&Value::from(name)));
    let state = own.and_then(|own| own.get("state"));
    if let Some(ended) = state.and_then(|state| state.get("terminated")) {
        let code = ended.get("exitCode").and_then(Value::as_i64);
        return ContainerState::Ended(code.unwrap_or(-1));
    }
    if state.is_some_and(|state| state.get("running").is_some()) {
        return ContainerState::Runs;
    }
    let reason = match state.and_then(|state| state.get("waiting")) {
        Some(waits) => sentence(waits),
        // No node runs the pod yet.
        None => text(pod.pointer("/status/conditions/0/message")),
    };
    ContainerState::Waits(reason)
}

/// Why a pod is not ready, such as `is not ready: ErrImagePull: not found`; `None` if it is.
pub(crate) fn why_not_ready(pod: &DynamicObject) -> Option<String> {
    let all = |path: &str| {
        let list = pod.data.pointer(path).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let condition = |kind: &str| {
        all("/status/conditions").find(|one| one.get("type") == Some(&Value::from(kind)))
    };
    let is_true = |condition: &Value| condition.get("status") == Some(&Value::from("True"));
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("is terminating".to_owned());
    }
    let ready = condition("Ready");
    if ready.is_some_and(is_true) {
        return None;
    }
    let scheduled = condition("PodScheduled").filter(|condition| !is_true(condition));
    let containers = all("/status/initContainerStatuses").chain(all("/status/containerStatuses"));
    let mut waits = containers.filter_map(|one| one.pointer("/state/waiting"));
    let reason = scheduled.or_else(|| waits.next()).or(ready);
    let reason = reason.map(sentence).filter(|reason| !reason.is_empty());
    Some(match reason {
        Some(reason) => format!("is not ready: {reason}"),
        None => "is not ready".to_owned(),
    })
}

/// The reason and the message of a condition or a state.
fn sentence(of: &Value) -> String {
    let parts = ["reason", "message"].map(|field| text(of.get(field)));
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

fn text(value: Option<&Value>) -> String {
    short(value.and_then(Value::as_str).unwrap_or_default())
}
