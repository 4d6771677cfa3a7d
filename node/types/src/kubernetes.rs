//! The node's identity in Kubernetes and the Kubernetes components it runs.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value;

use super::message::{net_ip, object};
use super::{column, open};

const NAMESPACE: &str = "k8s";

/// The node's name in Kubernetes; id [`Nodename::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodename {
    /// Name of the node.
    pub nodename: String,
    /// Version of the host name from which the node's name is derived.
    pub hostname_version: String,
    /// Whether the node stays out of the cluster.
    pub skip_node_registration: bool,
}

impl Nodename {
    /// Id of the only resource of this type.
    pub const ID: &str = "nodename";
}

impl Spec for Nodename {
    const DEFINITION: Definition = open(
        "Nodenames.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[column("Nodename", ".nodename")],
    );

    type Message = wire::NodenameSpec;

    fn message(&self) -> wire::NodenameSpec {
        wire::NodenameSpec {
            nodename: self.nodename.clone(),
            hostname_version: self.hostname_version.clone(),
            skip_node_registration: self.skip_node_registration,
        }
    }
}

/// Addresses of the node in Kubernetes, one of each family; id [`NodeIp::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeIp {
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl NodeIp {
    /// Id of the only resource of this type.
    pub const ID: &str = "kubelet";
}

impl Spec for NodeIp {
    const DEFINITION: Definition = open("NodeIPs.kubernetes.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::NodeIpSpec;

    fn message(&self) -> wire::NodeIpSpec {
        wire::NodeIpSpec {
            addresses: self.addresses.iter().copied().map(net_ip).collect(),
        }
    }
}

/// A pod that the kubelet runs without the API server; its id is the pod's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StaticPod(pub Value);

impl Spec for StaticPod {
    const DEFINITION: Definition = Definition {
        // Variables and arguments from the config may contain secrets.
        sensitivity: Sensitivity::Sensitive,
        ..open("StaticPods.kubernetes.talos.dev", NAMESPACE, &[], &[])
    };

    type Message = wire::StaticPodSpec;

    fn message(&self) -> wire::StaticPodSpec {
        wire::StaticPodSpec {
            pod: object(&self.0),
        }
    }
}

/// Server from which the kubelet fetches static pods; id [`StaticPodServerStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticPodServerStatus {
    /// URL of the server, on loopback only.
    pub url: String,
}

impl StaticPodServerStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "static-pod-server-status";
}

impl Spec for StaticPodServerStatus {
    const DEFINITION: Definition = open(
        "StaticPodServerStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::StaticPodServerStatusSpec;

    fn message(&self) -> wire::StaticPodServerStatusSpec {
        wire::StaticPodServerStatusSpec {
            url: self.url.clone(),
        }
    }
}

/// Objects that the node applies to the cluster; the id is the manifest's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Manifest(pub Vec<Value>);

impl Spec for Manifest {
    const DEFINITION: Definition = Definition {
        // One manifest has the bootstrap token, and users' manifests may have secrets.
        sensitivity: Sensitivity::Sensitive,
        ..open("Manifests.kubernetes.talos.dev", "controlplane", &[], &[])
    };

    type Message = wire::ManifestSpec;

    fn message(&self) -> wire::ManifestSpec {
        let item = |one| wire::SingleManifest {
            object: object(one),
        };
        wire::ManifestSpec {
            items: self.0.iter().map(item).collect(),
        }
    }
}

/// Manifests applied to the cluster; id [`ManifestStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestStatus {
    /// Ids of the applied manifests.
    pub manifests_applied: Vec<String>,
}

impl ManifestStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "manifests";
}

impl Spec for ManifestStatus {
    const DEFINITION: Definition = open(
        "ManifestStatuses.kubernetes.talos.dev",
        "controlplane",
        &[],
        &[],
    );

    type Message = wire::ManifestStatusSpec;

    fn message(&self) -> wire::ManifestStatusSpec {
        wire::ManifestStatusSpec {
            manifests_applied: self.manifests_applied.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_pod_is_for_administrators_and_is_an_object_for_typed_clients() {
        assert_eq!(StaticPod::DEFINITION.sensitivity, Sensitivity::Sensitive);
        let pod = StaticPod(serde_json::json!({ "kind": "Pod" }))
            .message()
            .pod;
        assert!(pod.unwrap().fields.contains_key("kind"));
        assert_eq!(StaticPod(Value::Null).message().pod, None);
    }

    #[test]
    fn a_manifest_is_a_list_of_objects_for_administrators() {
        assert_eq!(Manifest::DEFINITION.sensitivity, Sensitivity::Sensitive);
        let manifest = Manifest(vec![serde_json::json!({ "kind": "Secret" })]);
        let items = manifest.message().items;
        assert!(
            items[0]
                .object
                .as_ref()
                .unwrap()
                .fields
                .contains_key("kind")
        );
        let yaml = serde_json::to_value(&manifest).unwrap();
        assert_eq!(yaml, serde_json::json!([{ "kind": "Secret" }]));
    }
}
