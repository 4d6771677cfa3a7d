//! Access of pods to the node's API: the kind of the accounts, and the service in front of the nodes.

use std::net::IpAddr;

use serde_json::{Value, json};

/// Id of the manifest with the kind of the accounts.
pub const ACCOUNTS_MANIFEST: &str = "13-talos-service-account-crd";
/// API group of the accounts.
pub const ACCOUNT_GROUP: &str = "talos.dev";
/// Version of the API group.
pub const ACCOUNT_VERSION: &str = "v1alpha1";
/// Kind of the accounts.
pub const ACCOUNT_KIND: &str = "ServiceAccount";
/// Plural of the kind, in paths of the API.
pub const ACCOUNT_PLURAL: &str = "serviceaccounts";
/// Namespace of the service.
pub const SERVICE_NAMESPACE: &str = "default";
/// Name of the service.
pub const SERVICE: &str = "talos";
/// Port of the node's API.
const PORT: u16 = 50_000;
/// Name of the port, and component in the labels.
const COMPONENT: &str = "apid";

/// The definition of the accounts' kind.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{ACCOUNT_PLURAL}.{ACCOUNT_GROUP}") },
        "spec": {
            "conversion": { "strategy": "None" },
            "group": ACCOUNT_GROUP,
            "names": {
                "kind": ACCOUNT_KIND,
                "listKind": format!("{ACCOUNT_KIND}List"),
                "plural": ACCOUNT_PLURAL,
                "shortNames": ["tsa"],
                "singular": "serviceaccount",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": ACCOUNT_VERSION,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "roles": { "type": "array", "items": { "type": "string" } },
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": { "failureReason": { "type": "string" } },
                        },
                    },
                } },
                "served": true,
                "storage": true,
            }],
        },
    })
}

/// Host name of the service for a pod in any namespace.
#[must_use]
pub fn service_host() -> String {
    format!("{SERVICE}.{SERVICE_NAMESPACE}")
}

/// The service in front of the control plane nodes' API. It has no selector: [`service_addresses`] are its endpoints.
#[must_use]
pub fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": SERVICE_NAMESPACE, "labels": labels() },
        "spec": { "ports": [{
            "name": COMPONENT,
            "port": PORT,
            "protocol": "TCP",
            "targetPort": PORT,
        }] },
    })
}

fn labels() -> Value {
    json!({ "provider": "talos.dev", "component": COMPONENT })
}

/// The endpoints of the service, an object per family of addresses.
#[must_use]
pub fn service_addresses(addresses: &[IpAddr]) -> [Slice; 2] {
    [("IPv4", true), ("IPv6", false)].map(|(family, is_v4)| {
        let name = format!("{SERVICE}-{}", family.to_lowercase());
        let own = addresses.iter().filter(|ip| ip.is_ipv4() == is_v4);
        let endpoints: Vec<Value> = own.map(endpoint).collect();
        if endpoints.is_empty() {
            return Slice::Remove(name);
        }
        let mut labels = labels();
        crate::object::set(
            &mut labels,
            "",
            "kubernetes.io/service-name",
            SERVICE.into(),
        );
        Slice::Apply(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": name, "namespace": SERVICE_NAMESPACE, "labels": labels },
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{ "name": COMPONENT, "port": PORT, "protocol": "TCP" }],
        }))
    })
}

/// The endpoints of one family.
#[derive(Debug, Clone, PartialEq)]
pub enum Slice {
    /// The object.
    Apply(Value),
    /// Name of the object, which the cluster must not have: no node has an address of the family.
    Remove(String),
}

fn endpoint(address: &IpAddr) -> Value {
    json!({
        "addresses": [address],
        "conditions": { "ready": true, "serving": true, "terminating": false },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_has_endpoints_of_each_family_with_addresses() {
        let addresses = ["10.0.0.1", "fd00::1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let [Slice::Apply(v4), Slice::Apply(v6)] = service_addresses(&addresses) else {
            panic!("a family is missing");
        };
        assert_eq!(v4["metadata"]["name"], "talos-ipv4");
        assert_eq!(
            v4["metadata"]["labels"]["kubernetes.io/service-name"],
            "talos"
        );
        assert_eq!(v4["endpoints"][1]["addresses"], json!(["10.0.0.2"]));
        assert_eq!(
            v4["ports"],
            json!([{ "name": "apid", "port": 50000, "protocol": "TCP" }])
        );
        assert_eq!(v6["addressType"], "IPv6");
        assert_eq!(v6["endpoints"].as_array().map(Vec::len), Some(1));
        let [_, v6] = service_addresses(&addresses[..1]);
        assert_eq!(v6, Slice::Remove("talos-ipv6".to_owned()));
        assert_eq!(service()["spec"]["ports"][0]["targetPort"], 50000);
        assert_eq!(service_host(), "talos.default");
    }
}
