//! Drains a node: evicts its pods within their disruption budgets.

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

/// Poll interval, and pause between attempts to evict.
const LOOK: Duration = Duration::from_secs(1);
/// Limit of a drain's timeout.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Extra time for a final list of pods after the timeout.
const LAST_LOOK: Duration = Duration::from_secs(3);
/// Page size of a list of pods.
const PAGE: u32 = 500;
/// Page limit of a list. A node has 110 pods by default; the limit stops an endless list.
const PAGES: usize = 100;

/// Result of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    /// Pods that left the node, as `namespace/name`.
    pub gone: Vec<String>,
    /// Pods that remain after the timeout.
    pub left: Vec<Left>,
}

/// A pod that was not evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// Reason of the failure.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    namespace: String,
    name: String,
    /// UID, because a new pod may have the same name.
    uid: String,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Cluster {
    /// Evicts the pods of a node and waits until they are gone, for at most `timeout`. Static pods and pods of a
    /// `DaemonSet` stay, because they would be recreated. A pod whose disruption budget blocks it is retried until the
    /// timeout.
    ///
    /// Cordon the node first; otherwise new pods replace the evicted ones.
    ///
    /// # Errors
    /// The pods cannot be listed. A pod that cannot be evicted is not an error: see [`Drained::left`].
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
                        reasons.insert(pod.clone(), "it is still terminating".to_owned());
                    }
                    Ok(Err(error)) => {
                        reasons.insert(pod.clone(), error.to_string());
                    }
                    Err(_) => break,
                }
            }
            // A failed list is repeated; the previous list is used until then.
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
                reason: reason
                    .unwrap_or_else(|| "the timeout ended before its eviction".to_owned()),
            }
        });
        let left = left.collect();
        let gone = first.union(&evicted).filter(|pod| !all.contains(pod));
        let gone = gone.map(Pod::to_string).collect();
        Ok(Drained { gone, left })
    }

    /// The pods of a node that a drain evicts.
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
            "the list has too many pages",
        ))
    }

    /// Evicts a pod. A pod that is gone already is a success.
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

/// The pod, unless it is a static pod or belongs to a `DaemonSet`.
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
