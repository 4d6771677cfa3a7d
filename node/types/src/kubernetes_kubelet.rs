//! Settings and state of the kubelet.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::k8s as wire;
use corten_api::talos::resource::definitions::proto::Mount as WireMount;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value;

use super::kubernetes_components::{Args, args, masked_args, masked_value};
use super::message::object;
use super::{column, is_default, open};

const NAMESPACE: &str = "k8s";
/// Id of the only resource of each type here.
pub const ID: &str = "kubelet";

const fn sensitive(type_name: &'static str) -> Definition {
    Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(type_name, NAMESPACE, &[], &[])
    }
}

/// A further mount of the kubelet's container (OCI runtime specification, "Mounts").
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Path in the container.
    pub destination: String,
    /// Type; empty for `bind`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Path on the node.
    pub source: String,
    /// Options.
    pub options: Vec<String>,
}

impl From<&Mount> for WireMount {
    fn from(mount: &Mount) -> Self {
        WireMount {
            destination: mount.destination.clone(),
            r#type: mount.kind.clone(),
            source: mount.source.clone(),
            options: mount.options.clone(),
            ..WireMount::default()
        }
    }
}

/// Settings of the kubelet from the config; id [`ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfig {
    /// Image.
    pub image: String,
    /// Name servers of pods.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    /// Domain of the cluster's DNS.
    pub cluster_domain: String,
    /// Arguments of the config.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: Args,
    /// Further mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_mounts: Vec<Mount>,
    /// Fields of the config that override the node's own; null without.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub extra_config: Value,
    /// Whether a cloud controller manager initializes the node.
    pub cloud_provider_external: bool,
    /// Whether pods without a profile get the runtime's seccomp profile.
    pub default_runtime_seccomp_enabled: bool,
    /// Whether the node stays out of the cluster.
    pub skip_node_registration: bool,
    /// URL of the node's static pods.
    #[serde(rename = "staticPodListURL")]
    pub static_pod_list_url: String,
    /// Whether the kubelet reads no static pods from `/etc/kubernetes/manifests`.
    pub disable_manifests_directory: bool,
    /// Whether the kubelet measures volumes by quotas of the file system.
    #[serde(rename = "enableFSQuotaMonitoring")]
    pub enable_fs_quota_monitoring: bool,
    /// The `CredentialProviderConfig`; null without.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub credential_provider_config: Value,
    /// Taints with which the node registers, as in the config: key, and `value:effect`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub register_with_taints: BTreeMap<String, String>,
}

impl Spec for KubeletConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Masked,
        ..sensitive("KubeletConfigs.kubernetes.talos.dev")
    };

    type Message = wire::KubeletConfigSpec;

    fn masked(&self) -> Option<KubeletConfig> {
        Some(KubeletConfig {
            extra_args: masked_args(&self.extra_args),
            extra_config: masked_value(&self.extra_config),
            credential_provider_config: masked_value(&self.credential_provider_config),
            ..self.clone()
        })
    }

    fn message(&self) -> wire::KubeletConfigSpec {
        wire::KubeletConfigSpec {
            image: self.image.clone(),
            cluster_dns: self.cluster_dns.clone(),
            cluster_domain: self.cluster_domain.clone(),
            extra_mounts: self.extra_mounts.iter().map(Into::into).collect(),
            extra_config: object(&self.extra_config),
            cloud_provider_external: self.cloud_provider_external,
            default_runtime_seccomp_enabled: self.default_runtime_seccomp_enabled,
            skip_node_registration: self.skip_node_registration,
            static_pod_list_url: self.static_pod_list_url.clone(),
            disable_manifests_directory: self.disable_manifests_directory,
            enable_fs_quota_monitoring: self.enable_fs_quota_monitoring,
            credential_provider_config: object(&self.credential_provider_config),
            extra_args: args(&self.extra_args).collect(),
            register_with_taints: self.register_with_taints.clone().into_iter().collect(),
        }
    }
}

/// The kubelet as the node runs it; id [`ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletSpec {
    /// Image.
    pub image: String,
    /// Arguments, without the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Further mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_mounts: Vec<Mount>,
    /// Name of the node in the cluster; empty if an argument of the config sets another.
    #[serde(skip_serializing_if = "is_default")]
    pub expected_nodename: String,
    /// The `KubeletConfiguration`.
    pub config: Value,
    /// The `CredentialProviderConfig`; null without.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub credential_provider_config: Value,
}

impl Spec for KubeletSpec {
    const DEFINITION: Definition = sensitive("KubeletSpecs.kubernetes.talos.dev");

    type Message = wire::KubeletSpecSpec;

    fn message(&self) -> wire::KubeletSpecSpec {
        wire::KubeletSpecSpec {
            image: self.image.clone(),
            args: self.args.clone(),
            extra_mounts: self.extra_mounts.iter().map(Into::into).collect(),
            expected_nodename: self.expected_nodename.clone(),
            config: object(&self.config),
            credential_provider_config: object(&self.credential_provider_config),
        }
    }
}

/// The kubelet that runs; id [`ID`]. Without a running kubelet there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubeletStatus {
    /// Image.
    pub image: String,
}

impl Spec for KubeletStatus {
    const DEFINITION: Definition = open(
        "KubeletStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[column("Image", ".image")],
    );

    type Message = wire::KubeletStatusSpec;

    fn message(&self) -> wire::KubeletStatusSpec {
        wire::KubeletStatusSpec {
            image: self.image.clone(),
        }
    }
}

/// The kubelet's kubeconfig; id [`ID`]. It exists once the node has its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubeletKubeconfig {
    /// SHA-256 of the file, in hexadecimal.
    pub hash: String,
}

impl Spec for KubeletKubeconfig {
    const DEFINITION: Definition = open(
        "KubeletKubeconfigs.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[column("Hash", ".hash")],
    );

    type Message = wire::KubeletKubeconfigSpec;

    fn message(&self) -> wire::KubeletKubeconfigSpec {
        wire::KubeletKubeconfigSpec {
            hash: self.hash.clone(),
        }
    }
}

/// Marks that the node runs a kubelet; id [`ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubeletLifecycle {}

impl Spec for KubeletLifecycle {
    const DEFINITION: Definition = open(
        "KubeletLifecycles.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::KubeletLifecycleSpec;

    fn message(&self) -> wire::KubeletLifecycleSpec {
        wire::KubeletLifecycleSpec {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubelet_settings_have_the_fields_of_the_reference() {
        let config = KubeletConfig {
            cluster_dns: vec!["10.96.0.10".to_owned()],
            static_pod_list_url: "http://127.0.0.1:1".to_owned(),
            extra_mounts: vec![Mount {
                destination: "/var/a".to_owned(),
                kind: "bind".to_owned(),
                source: "/var/a".to_owned(),
                options: vec!["rw".to_owned()],
            }],
            ..KubeletConfig::default()
        };
        let yaml = serde_json::to_value(&config).unwrap();
        assert_eq!(yaml["clusterDNS"], json!(["10.96.0.10"]));
        assert_eq!(yaml["staticPodListURL"], "http://127.0.0.1:1");
        assert_eq!(yaml["extraMounts"][0]["type"], "bind");
        assert_eq!(yaml.get("extraConfig"), None);
        let message = config.message();
        assert_eq!(message.extra_mounts[0].r#type, "bind");
        assert_eq!(message.extra_config, None);
        let definition = KubeletConfig::DEFINITION;
        assert_eq!(definition.sensitivity, Sensitivity::Masked);
    }

    #[test]
    fn masked_kubelet_settings_keep_keys_and_lose_values() {
        let config = KubeletConfig {
            extra_config: json!({ "a": [{ "b": "secret" }], "c": 1, "d": null }),
            credential_provider_config: json!({ "token": "secret" }),
            ..KubeletConfig::default()
        };
        let masked = config.masked().unwrap();
        let expected = json!({ "a": [{ "b": "******" }], "c": "******", "d": null });
        assert_eq!(masked.extra_config, expected);
        assert_eq!(
            masked.credential_provider_config,
            json!({ "token": "******" })
        );
    }

    #[test]
    fn kubelet_spec_holds_the_whole_configuration() {
        let spec = KubeletSpec {
            image: "kubelet:v1.37.0".to_owned(),
            args: vec!["--v=2".to_owned()],
            extra_mounts: Vec::new(),
            expected_nodename: "n1".to_owned(),
            config: json!({ "kind": "KubeletConfiguration" }),
            credential_provider_config: Value::Null,
        };
        let message = spec.message();
        assert_eq!(message.expected_nodename, "n1");
        assert!(message.config.unwrap().fields.contains_key("kind"));
    }
}
