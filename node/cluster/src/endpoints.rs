//! The API servers of the cluster.

use std::net::IpAddr;

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::kinds::core;
use crate::{Cluster, ClusterError, within};

/// Object in the namespace `default` that lists the API servers (Kubernetes, `--endpoint-reconciler-type lease`). A
/// kubelet may read Endpoints, but not EndpointSlices.
const NAME: &str = "kubernetes";

impl Cluster {
    /// Sorted addresses of the API servers that registered themselves; empty before the first registration.
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

/// Ready addresses in `subsets`; invalid addresses are left out.
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
