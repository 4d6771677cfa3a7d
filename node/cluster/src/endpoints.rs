//! The API servers of the cluster.

use std::net::{IpAddr, SocketAddr};

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::kinds::core;
use crate::{Cluster, ClusterError, within};

/// Object in the namespace `default` that lists the API servers (Kubernetes, `--endpoint-reconciler-type lease`). A
/// kubelet may read Endpoints, but not EndpointSlices.
const NAME: &str = "kubernetes";

impl Cluster {
    /// Sorted addresses and ports of the API servers that registered themselves; empty before the first registration.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn api_servers(&self) -> Result<Vec<SocketAddr>, ClusterError> {
        let kind = core("Endpoints", "endpoints");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &kind);
        let object = format!("Endpoints default/{NAME}");
        let found = within("read", &object, api.get_opt(NAME)).await?;
        Ok(found.map(|found| servers(&found.data)).unwrap_or_default())
    }
}

/// Ready addresses in `subsets`, each with the first port of its subset; invalid ones are left out.
fn servers(endpoints: &Value) -> Vec<SocketAddr> {
    let list = |value: &Value, field: &str| -> Vec<Value> {
        let items = value.get(field).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    let mut found = Vec::new();
    for subset in list(endpoints, "subsets") {
        let ports = list(&subset, "ports");
        let port = ports.iter().find_map(|port| port.get("port")?.as_u64());
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
            continue;
        };
        let ready = list(&subset, "addresses").into_iter();
        let ready = ready.filter_map(|address| address.get("ip")?.as_str()?.parse().ok());
        found.extend(ready.map(|address: IpAddr| SocketAddr::from((address, port))));
    }
    found.sort_unstable();
    found.dedup();
    found
}
