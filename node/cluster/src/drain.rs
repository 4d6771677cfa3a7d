//! Draining a node: its pods are asked to leave, as far as the budgets of their owners allow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::kinds::{check_part, core};
use crate::{Cluster, ClusterError, within};

/// Between two looks at what is left, and so between two tries to evict.
const LOOK: Duration = Duration::from_secs(1);
/// The longest time that a drain can be given.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// When the time is up, the report may take so much longer to be right.
const LAST_LOOK: Duration = Duration::from_secs(3);
/// Pods that one answer lists.
const PAGE: u32 = 500;
/// Answers that are read of one list. A node has 110 pods by default; a list without end is no list.
const PAGES: usize = 100;

/// What a drain did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    /// Pods that left, as `namespace/name`.
    pub gone: Vec<String>,
    /// Pods that were there when the time was up.
    pub left: Vec<Left>,
}

/// A pod that did not leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// Why.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    namespace: String,
    name: String,
    /// A pod of the same name may take its place; that is another one.
    uid: String,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Cluster {
    /// Evicts the pods of a node and waits until they are gone, `timeout` at most. Static pods and those of a
    /// `DaemonSet` stay: they would only come back. A pod whose budget forbids it is tried again until the time is up.
    ///
    /// Cordon the node first, or the pods come back too.
    ///
    /// # Errors
    /// The pods cannot be listed. One pod that cannot be evicted is no error: it is [`Drained::left`].
    pub async fn drain(&self, name: &str, timeout: Duration) -> Result<Drained, ClusterError> {
        check_part(&format!("Node {name}"), "its name", name)?;
        let until = Instant::now() + timeout.min(LONGEST);
        let mut all = self.pods(name).await?;
        let first = all.clone();
        let mut evicted = BTreeSet::new();
        let mut reasons = BTreeMap::new();
        loop {
            for pod in all.difference(&evicted.clone()) {
                match timeout_at(until, self.evict(pod)).await {
                    Ok(Ok(())) => {
                        evicted.insert(pod.clone());
                        reasons.insert(pod.clone(), "it is still shutting down".to_owned());
                    }
                    Ok(Err(error)) => {
                        reasons.insert(pod.clone(), error.to_string());
                    }
                    Err(_) => break,
                }
            }
            // A list that fails is asked for again; what is known until then is the list before.
            if let Ok(Ok(now)) = timeout_at(until + LAST_LOOK, self.pods(name)).await {
                all = now;
            }
            if all.is_empty() || Instant::now() >= until {
                break;
            }
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        let left = all.iter().map(|pod| {
            let reason = reasons.get(pod).cloned();
            Left {
                pod: pod.to_string(),
                reason: reason.unwrap_or_else(|| "there was no time to evict it".to_owned()),
            }
        });
        let left = left.collect();
        let gone = first.union(&evicted).filter(|pod| !all.contains(pod));
        let gone = gone.map(Pod::to_string).collect();
        Ok(Drained { gone, left })
    }

    /// The pods of a node that a drain is about.
    async fn pods(&self, node: &str) -> Result<BTreeSet<Pod>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &core("Pod", "pods"));
        let object = format!("the pods of node {node}");
        let mut params = ListParams::default()
            .fields(&format!("spec.nodeName={node}"))
            .limit(PAGE);
        let mut pods = BTreeSet::new();
        for _ in 0..PAGES {
            let list = within("list", &object, api.list(&params)).await?;
            pods.extend(list.items.iter().filter_map(to_evict));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(pods),
            }
        }
        Err(ClusterError::request(
            "list",
            &object,
            "the list has no end",
        ))
    }

    /// Asks a pod to leave. One that left already is no error.
    async fn evict(&self, pod: &Pod) -> Result<(), ClusterError> {
        let object = format!("Pod {pod}");
        check_part(&object, "its namespace", &pod.namespace)?;
        check_part(&object, "its name", &pod.name)?;
        let mut body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "namespace": pod.namespace, "name": pod.name },
        });
        if let (false, Some(body)) = (pod.uid.is_empty(), body.as_object_mut()) {
            let this_one = json!({ "preconditions": { "uid": pod.uid } });
            body.insert("deleteOptions".to_owned(), this_one);
        }
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/eviction",
            pod.namespace, pod.name
        );
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(body.to_string().into_bytes());
        let request = request.map_err(|error| ClusterError::request("evict", &object, error))?;
        let answer = within("evict", &object, self.client.request::<Value>(request)).await;
        match answer {
            Err(error) if error.code() == Some(404) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// The pod, unless it stays: a static pod, or one of a `DaemonSet`.
fn to_evict(pod: &DynamicObject) -> Option<Pod> {
    let metadata = &pod.metadata;
    let annotations = metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return None;
    }
    let mut owners = metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet") {
        return None;
    }
    Some(Pod {
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
        uid: metadata.uid.clone().unwrap_or_default(),
    })
}
