//! Rotates the Kubernetes CA in a cluster: the CAs that pods get, and the restart of workloads.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::kinds::{check_part, core};
use crate::{Cluster, ClusterError, MANAGER, Workload, within};

/// ConfigMap of each namespace with the CAs that its pods get (Kubernetes, `root-ca-certificate-publisher-controller`).
const PUBLISHED: &str = "kube-root-ca.crt";
/// Annotation of a pod template whose change restarts the pods; kubectl's `rollout restart` sets it, too.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

impl Cluster {
    /// The CAs (PEM) that pods of a namespace get for the API server; `None` if none are published.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn published_cas(&self, namespace: &str) -> Result<Option<String>, ClusterError> {
        let object = format!("ConfigMap {namespace}/{PUBLISHED}");
        check_part(&object, "its namespace", namespace)?;
        let kind = core("ConfigMap", "configmaps");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let found = within("read", &object, api.get_opt(PUBLISHED)).await?;
        let text = found.and_then(|found| {
            let text = found
                .data
                .get("data")?
                .get("ca.crt")
                .and_then(Value::as_str);
            text.map(str::to_owned)
        });
        Ok(text)
    }

    /// Replaces the pods of a workload, as its strategy says. `at` marks the restart, and differs from that of the last
    /// one. Returns whether the workload exists.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn restart(
        &self,
        workload: Workload,
        namespace: &str,
        name: &str,
        at: &str,
    ) -> Result<bool, ClusterError> {
        let kind = workload.kind();
        let object = format!("{} {namespace}/{name}", kind.kind);
        check_part(&object, "its namespace", namespace)?;
        check_part(&object, "its name", name)?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let template = json!({ "metadata": { "annotations": { RESTARTED: at } } });
        let patch = Patch::Merge(json!({ "spec": { "template": template } }));
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match within("restart", &object, api.patch(name, &params, &patch)).await {
            Err(error) if error.code() == Some(404) => Ok(false),
            done => done.map(|_| true),
        }
    }
}
