//! The node's object in the cluster: what the config asks of it, and what the cluster says about it.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Column, Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value;

use super::message::{object, prefix};
use super::{column, open};

const NAMESPACE: &str = "k8s";

const fn sensitive(type_name: &'static str, columns: &'static [Column]) -> Definition {
    Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(type_name, NAMESPACE, &[], columns)
    }
}

/// A label that the node sets on its object; the id is the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeLabelSpec {
    /// Key.
    pub key: String,
    /// Value; often empty.
    pub value: String,
}

impl Spec for NodeLabelSpec {
    const DEFINITION: Definition =
        sensitive("NodeLabelSpecs.k8s.talos.dev", &[column("Value", ".value")]);

    type Message = wire::NodeLabelSpecSpec;

    fn message(&self) -> wire::NodeLabelSpecSpec {
        wire::NodeLabelSpecSpec {
            key: self.key.clone(),
            value: self.value.clone(),
        }
    }
}

/// An annotation that the node sets on its object; the id is the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeAnnotationSpec {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

impl Spec for NodeAnnotationSpec {
    const DEFINITION: Definition = sensitive(
        "NodeAnnotationSpecs.k8s.talos.dev",
        &[column("Value", ".value")],
    );

    type Message = wire::NodeAnnotationSpecSpec;

    fn message(&self) -> wire::NodeAnnotationSpecSpec {
        wire::NodeAnnotationSpecSpec {
            key: self.key.clone(),
            value: self.value.clone(),
        }
    }
}

/// A taint that the node sets on its object; the id is the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeTaintSpec {
    /// Key.
    pub key: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Value; often empty.
    pub value: String,
}

impl Spec for NodeTaintSpec {
    const DEFINITION: Definition = sensitive(
        "NodeTaintSpecs.k8s.talos.dev",
        &[column("Effect", ".effect"), column("Value", ".value")],
    );

    type Message = wire::NodeTaintSpecSpec;

    fn message(&self) -> wire::NodeTaintSpecSpec {
        wire::NodeTaintSpecSpec {
            key: self.key.clone(),
            effect: self.effect.clone(),
            value: self.value.clone(),
        }
    }
}

/// Marks that the node keeps new pods away, because it goes down; id [`NodeCordonedSpec::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeCordonedSpec {}

impl NodeCordonedSpec {
    /// Id of the only resource of this type.
    pub const ID: &str = "cordoned";
}

impl Spec for NodeCordonedSpec {
    const DEFINITION: Definition = sensitive("NodeCordonedSpecs.k8s.talos.dev", &[]);

    type Message = wire::NodeCordonedSpecSpec;

    fn message(&self) -> wire::NodeCordonedSpecSpec {
        wire::NodeCordonedSpecSpec {}
    }
}

/// Subnets of the node's addresses in Kubernetes; id [`NodeIpConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIpConfig {
    /// Subnets to choose from, as in the config; a leading `!` excludes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub valid_subnets: Vec<String>,
    /// Subnets of pods and services, which are never chosen.
    pub exclude_subnets: Vec<String>,
}

impl NodeIpConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "kubelet";
}

impl Spec for NodeIpConfig {
    const DEFINITION: Definition = open("NodeIPConfigs.kubernetes.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::NodeIpConfigSpec;

    fn message(&self) -> wire::NodeIpConfigSpec {
        wire::NodeIpConfigSpec {
            valid_subnets: self.valid_subnets.clone(),
            exclude_subnets: self.exclude_subnets.clone(),
        }
    }
}

/// The node's object in the cluster; the id is its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Name.
    pub nodename: String,
    /// Whether the kubelet reports that pods can run.
    pub node_ready: bool,
    /// Whether new pods are kept away.
    pub unschedulable: bool,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Subnets of the node's pods.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

impl Spec for NodeStatus {
    const DEFINITION: Definition = open(
        "NodeStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Ready", ".nodeReady"),
            column("Unschedulable", ".unschedulable"),
        ],
    );

    type Message = wire::NodeStatusSpec;

    fn message(&self) -> wire::NodeStatusSpec {
        wire::NodeStatusSpec {
            nodename: self.nodename.clone(),
            node_ready: self.node_ready,
            unschedulable: self.unschedulable,
            labels: self.labels.clone().into_iter().collect(),
            annotations: self.annotations.clone().into_iter().collect(),
            pod_cid_rs: self
                .pod_cidrs
                .iter()
                .filter_map(|one| prefix(one))
                .collect(),
        }
    }
}

/// Status of a static pod as its kubelet knows it (Kubernetes, PodStatus v1); the id is `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StaticPodStatus(pub Value);

impl Spec for StaticPodStatus {
    const DEFINITION: Definition = open(
        "StaticPodStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &["podstatus"],
        &[column("Ready", r#".conditions[?(@.type=="Ready")].status"#)],
    );

    type Message = wire::StaticPodStatusSpec;

    fn message(&self) -> wire::StaticPodStatusSpec {
        wire::StaticPodStatusSpec {
            pod_status: object(&self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_status_has_the_fields_of_the_reference() {
        let status = NodeStatus {
            nodename: "n1".to_owned(),
            node_ready: true,
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            pod_cidrs: vec!["10.244.1.0/24".to_owned(), "no prefix".to_owned()],
            ..NodeStatus::default()
        };
        let yaml = serde_json::to_value(&status).unwrap();
        assert_eq!(
            (&yaml["nodeReady"], &yaml["labels"]["a"]),
            (&json!(true), &json!("b"))
        );
        let message = status.message();
        assert_eq!(message.pod_cid_rs.len(), 1);
        assert_eq!(message.pod_cid_rs[0].prefix_length, 24);
    }

    #[test]
    fn metadata_of_the_config_reach_typed_clients() {
        let taint = NodeTaintSpec {
            key: "a".to_owned(),
            effect: "NoSchedule".to_owned(),
            value: String::new(),
        };
        assert_eq!(taint.message().effect, "NoSchedule");
        assert_eq!(
            NodeTaintSpec::DEFINITION.sensitivity,
            Sensitivity::Sensitive
        );
        let label = NodeLabelSpec {
            key: "a".to_owned(),
            value: "b".to_owned(),
        };
        assert_eq!(label.message().value, "b");
        let status = StaticPodStatus(json!({ "phase": "Running" }));
        let status = status.message().pod_status;
        assert!(status.unwrap().fields.contains_key("phase"));
    }
}
