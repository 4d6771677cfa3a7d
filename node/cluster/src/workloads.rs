//! Workloads: their pods, whether all of these are new and run, and why one of them does not.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use crate::error::short;
use crate::kinds::{check_part, core};
use crate::pods::{MOST_PODS, why_not_ready};
use crate::{Cluster, ClusterError, within};

/// A kind of workload with a number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `apps/v1`, `Deployment`.
    Deployment,
    /// `apps/v1`, `DaemonSet`.
    DaemonSet,
}

/// Numbers of a workload's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pods {
    /// Wanted pods.
    pub wanted: u64,
    /// Ready pods.
    pub ready: u64,
    /// One that is not ready, and why, if fewer are ready than wanted.
    pub late: Option<String>,
}

impl Workload {
    pub(crate) fn kind(self) -> ApiResource {
        let (kind, plural) = match self {
            Workload::Deployment => ("Deployment", "deployments"),
            Workload::DaemonSet => ("DaemonSet", "daemonsets"),
        };
        ApiResource {
            group: "apps".to_owned(),
            api_version: "apps/v1".to_owned(),
            ..core(kind, plural)
        }
    }

    /// Numbers of wanted and of ready pods.
    fn numbers(self, object: &Value) -> (u64, u64) {
        let number = |path: &str, usual| {
            let found = object.pointer(path).and_then(Value::as_u64);
            found.unwrap_or(usual)
        };
        match self {
            Workload::Deployment => (
                number("/spec/replicas", 1),
                number("/status/readyReplicas", 0),
            ),
            Workload::DaemonSet => (
                number("/status/desiredNumberScheduled", 0),
                number("/status/numberReady", 0),
            ),
        }
    }
}

impl Cluster {
    /// The pods of a workload; `None` if the workload does not exist.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn pods_of(
        &self,
        workload: Workload,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Pods>, ClusterError> {
        let Some(found) = self.workload(workload, namespace, name).await? else {
            return Ok(None);
        };
        let (wanted, ready) = workload.numbers(&found.data);
        let late = match ready < wanted {
            true => self.late_pod(namespace, name, &found).await,
            false => None,
        };
        Ok(Some(Pods {
            wanted,
            ready,
            late,
        }))
    }

    /// Whether all pods of a workload have its latest revision and are available, otherwise the reason, with that of one
    /// of its pods; `None` if the workload does not exist.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn rollout(
        &self,
        workload: Workload,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<(), String>>, ClusterError> {
        let Some(found) = self.workload(workload, namespace, name).await? else {
            return Ok(None);
        };
        let Err(why) = rollout(workload, &found) else {
            return Ok(Some(Ok(())));
        };
        let late = self.late_pod(namespace, name, &found).await;
        Ok(Some(Err(match late {
            Some(late) => format!("{why}: {late}"),
            None => why,
        })))
    }

    /// Image of the first container of a workload's pods; `None` if the workload does not exist.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn image_of(
        &self,
        workload: Workload,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, ClusterError> {
        let found = self.workload(workload, namespace, name).await?;
        let path = "/spec/template/spec/containers/0/image";
        let image = |found: DynamicObject| found.data.pointer(path)?.as_str().map(short);
        Ok(found.and_then(image))
    }

    async fn workload(
        &self,
        workload: Workload,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, ClusterError> {
        let kind = workload.kind();
        let object = format!("{} {namespace}/{name}", kind.kind);
        check_part(&object, "its namespace", namespace)?;
        check_part(&object, "its name", name)?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        within("read", &object, api.get_opt(name)).await
    }

    /// The first pod of a workload that is not ready, and why; or why that is not known.
    async fn late_pod(
        &self,
        namespace: &str,
        name: &str,
        workload: &DynamicObject,
    ) -> Option<String> {
        let labels = workload.data.pointer("/spec/selector/matchLabels");
        let labels = labels.and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
        let labels: Vec<String> = labels.collect();
        if labels.is_empty() {
            return None;
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &core("Pod", "pods"));
        let params = ListParams::default()
            .limit(MOST_PODS)
            .labels(&labels.join(","));
        let object = format!("the pods of {namespace}/{name}");
        let pods = match within("list", &object, api.list(&params)).await {
            Ok(pods) => pods,
            Err(error) => return Some(error.to_string()),
        };
        pods.iter().find_map(|pod| {
            let why = why_not_ready(pod)?;
            let name = short(pod.metadata.name.as_deref().unwrap_or_default());
            let node = pod.data.pointer("/spec/nodeName").and_then(Value::as_str);
            let node = node.map(|node| format!(" on node {}", short(node)));
            Some(format!("pod {name}{} {why}", node.unwrap_or_default()))
        })
    }
}

fn rollout(workload: Workload, object: &DynamicObject) -> Result<(), String> {
    let number = |path: &str| object.data.pointer(path).and_then(Value::as_u64);
    let seen = number("/status/observedGeneration").unwrap_or_default();
    let is_seen = object
        .metadata
        .generation
        .is_none_or(|wanted| u64::try_from(wanted).is_ok_and(|wanted| seen >= wanted));
    let (wanted, updated, available) = match workload {
        Workload::Deployment => (
            number("/spec/replicas").unwrap_or(1),
            number("/status/updatedReplicas"),
            number("/status/availableReplicas"),
        ),
        Workload::DaemonSet => (
            number("/status/desiredNumberScheduled").unwrap_or_default(),
            number("/status/updatedNumberScheduled"),
            number("/status/numberAvailable"),
        ),
    };
    // Available pods may be old ones, as long as a Deployment has some.
    let all = number("/status/replicas").unwrap_or_default();
    let old = match workload {
        Workload::Deployment => all.saturating_sub(updated.unwrap_or_default()),
        Workload::DaemonSet => 0,
    };
    if is_seen && old > 0 {
        return Err(format!("{old} old pods are left"));
    }
    let done = updated
        .unwrap_or_default()
        .min(available.unwrap_or_default());
    match is_seen && done >= wanted {
        true => Ok(()),
        false if !is_seen => Err("its controller has not observed the change yet".to_owned()),
        false => Err(format!("{done} of {wanted} pods are new and available")),
    }
}
