//! Which API servers the cluster has.

use std::net::IpAddr;

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::kinds::core;
use crate::{Cluster, ClusterError, within};

/// The object in which API servers list themselves, in the namespace `default` (Kubernetes, `--endpoint-reconciler-type
/// lease`). A kubelet may read this kind, and not EndpointSlices.
const NAME: &str = "kubernetes";

impl Cluster {
    /// The addresses of the API servers that say they serve, sorted; empty while none has said so.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn api_servers(&self) -> Result<Vec<IpAddr>, ClusterError> {
        let kind = core("Endpoints", "endpoints");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &kind);
        let object = format!("Endpoints default/{NAME}");
        let found = within("read", &object, api.get_opt(NAME)).await?;
        Ok(found
            .map(|found| addresses(&found.data))
            .unwrap_or_default())
    }
}

/// Those of `subsets` that are ready. What is no address is left out.
fn addresses(endpoints: &Value) -> Vec<IpAddr> {
    let list = |value: &Value, field: &str| -> Vec<Value> {
        let items = value.get(field).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    let subsets = list(endpoints, "subsets");
    let ready = subsets.iter().flat_map(|subset| list(subset, "addresses"));
    let mut found: Vec<IpAddr> = ready
        .filter_map(|address| address.get("ip")?.as_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
