//! What the node is to Kubernetes, and what it runs of it.

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
    /// The name.
    pub nodename: String,
    /// The version of the host name it is made from.
    pub hostname_version: String,
    /// The node is in no cluster.
    pub skip_node_registration: bool,
}

impl Nodename {
    /// There is one.
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

/// The addresses that the node has in Kubernetes, one of each family; id [`NodeIp::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeIp {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

impl NodeIp {
    /// There is one.
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

/// A pod that the kubelet runs without asking anybody; its name is the id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StaticPod(pub Value);

impl Spec for StaticPod {
    const DEFINITION: Definition = Definition {
        // Variables and arguments of users may hold secrets.
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

/// Where the kubelet finds the static pods; id [`StaticPodServerStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticPodServerStatus {
    /// On the loopback alone.
    pub url: String,
}

impl StaticPodServerStatus {
    /// There is one.
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

/// Objects that the node has for the cluster to run; the manifest's name is the id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Manifest(pub Vec<Value>);

impl Spec for Manifest {
    const DEFINITION: Definition = Definition {
        // The bootstrap token is in one of them, and users may have secrets in theirs.
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

/// What the cluster was given to run; id [`ManifestStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestStatus {
    /// Ids of manifests.
    pub manifests_applied: Vec<String>,
}

impl ManifestStatus {
    /// There is one.
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
