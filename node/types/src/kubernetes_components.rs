//! Settings of the control plane's components, as the node derives them from its config.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value;

use super::message::object;
use super::{column, open};

pub(super) const NAMESPACE: &str = "controlplane";

/// A type whose fields come from the config and may contain secrets.
pub(super) const fn sensitive(type_name: &'static str) -> Definition {
    Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(type_name, NAMESPACE, &[], &[])
    }
}

/// The same, of a type whose secrets [`Spec::masked`] leaves out.
const fn masked(type_name: &'static str) -> Definition {
    Definition {
        sensitivity: Sensitivity::Masked,
        ..sensitive(type_name)
    }
}

/// Prefix of the id under which a component's settings include its whole command line.
pub const FINAL: &str = "final-";

/// Values of one argument, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArgValues {
    /// The values.
    pub values: Vec<String>,
}

/// Arguments by name.
pub type Args = BTreeMap<String, ArgValues>;

/// Text in place of one that may be secret.
const MASK: &str = "******";

/// The arguments with masked values: a value may be a secret.
pub(super) fn masked_args(args: &Args) -> Args {
    let masked = |values: &ArgValues| ArgValues {
        values: values.values.iter().map(|_| MASK.to_owned()).collect(),
    };
    let masked = args
        .iter()
        .map(|(name, values)| (name.clone(), masked(values)));
    masked.collect()
}

/// The value with the same keys and masked scalars.
pub(super) fn masked_value(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Array(items) => items.iter().map(masked_value).collect(),
        Value::Object(fields) => {
            let masked = |(key, value): (&String, &Value)| (key.clone(), masked_value(value));
            fields.iter().map(masked).collect()
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::from(MASK),
    }
}

pub(super) fn args(args: &Args) -> impl Iterator<Item = (String, wire::ArgValues)> {
    args.iter().map(|(name, values)| {
        let values = values.values.clone();
        (name.clone(), wire::ArgValues { values })
    })
}

/// A directory of the node in a component's container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraVolume {
    /// Name of the volume in the pod.
    pub name: String,
    /// Path on the node.
    pub host_path: String,
    /// Path in the container.
    pub mount_path: String,
    /// Whether the mount is read-only.
    #[serde(rename = "readonly")]
    pub read_only: bool,
}

impl From<&ExtraVolume> for wire::ExtraVolume {
    fn from(volume: &ExtraVolume) -> Self {
        wire::ExtraVolume {
            name: volume.name.clone(),
            host_path: volume.host_path.clone(),
            mount_path: volume.mount_path.clone(),
            read_only: volume.read_only,
        }
    }
}

/// Resource requests and limits by `cpu` and `memory`, in the form of Kubernetes' quantities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Resources that the scheduler reserves.
    pub requests: BTreeMap<String, String>,
    /// Upper bounds of the container's resources.
    pub limits: BTreeMap<String, String>,
}

impl From<&Resources> for wire::Resources {
    fn from(resources: &Resources) -> Self {
        wire::Resources {
            requests: resources.requests.clone().into_iter().collect(),
            limits: resources.limits.clone().into_iter().collect(),
        }
    }
}

/// Settings of kube-apiserver; ids [`ApiServerConfig::ID`] and, with the command line, [`FINAL`] in front of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerConfig {
    /// Image.
    pub image: String,
    /// `external` if a cloud controller manager initializes nodes; otherwise empty.
    pub cloud_provider: String,
    /// URL of the cluster's API.
    pub control_plane_endpoint: String,
    /// URLs of etcd.
    pub etcd_servers: Vec<String>,
    /// Listen port.
    pub local_port: u16,
    /// Service subnets.
    #[serde(rename = "serviceCIDR")]
    pub service_cidrs: Vec<String>,
    /// Arguments of the config.
    pub extra_args: Args,
    /// The whole command line; only of the final settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Further mounts.
    pub extra_volumes: Vec<ExtraVolume>,
    /// Environment variables of the config.
    pub environment_variables: BTreeMap<String, String>,
    /// Address that the server registers in the cluster; empty on a node without a cluster.
    pub advertised_address: String,
    /// Requests and limits.
    pub resources: Resources,
    /// Whether a startup probe precedes the other probes.
    pub startup_probes_enabled: bool,
    /// Whether authentication comes from a file and not from arguments.
    pub use_authentication_config: bool,
}

impl ApiServerConfig {
    /// Id of the settings; also the name of the pod.
    pub const ID: &str = "kube-apiserver";
}

impl Spec for ApiServerConfig {
    const DEFINITION: Definition = masked("APIServerConfigs.kubernetes.talos.dev");

    type Message = wire::ApiServerConfigSpec;

    fn masked(&self) -> Option<ApiServerConfig> {
        let masked = |arg: &String| match arg.split_once('=') {
            Some((name, _)) => format!("{name}={MASK}"),
            None => arg.clone(),
        };
        let names = self.environment_variables.keys().cloned();
        Some(ApiServerConfig {
            extra_args: masked_args(&self.extra_args),
            args: self.args.iter().map(masked).collect(),
            environment_variables: names.map(|name| (name, MASK.to_owned())).collect(),
            ..self.clone()
        })
    }

    fn message(&self) -> wire::ApiServerConfigSpec {
        wire::ApiServerConfigSpec {
            image: self.image.clone(),
            cloud_provider: self.cloud_provider.clone(),
            control_plane_endpoint: self.control_plane_endpoint.clone(),
            etcd_servers: self.etcd_servers.clone(),
            local_port: self.local_port.into(),
            service_cid_rs: self.service_cidrs.clone(),
            extra_volumes: self.extra_volumes.iter().map(Into::into).collect(),
            environment_variables: self.environment_variables.clone().into_iter().collect(),
            advertised_address: self.advertised_address.clone(),
            resources: Some((&self.resources).into()),
            extra_args: args(&self.extra_args).collect(),
            startup_probes_enabled: self.startup_probes_enabled,
            use_authentication_config: self.use_authentication_config,
            args: self.args.clone(),
        }
    }
}

/// Settings of kube-controller-manager; ids [`ControllerManagerConfig::ID`] and, with the command line, [`FINAL`] in
/// front of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerManagerConfig {
    /// Whether this node runs it.
    pub enabled: bool,
    /// Image.
    pub image: String,
    /// `external` if a cloud controller manager initializes nodes; otherwise empty.
    pub cloud_provider: String,
    /// Pod subnets.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// Service subnets.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Vec<String>,
    /// Arguments of the config.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: Args,
    /// The whole command line; only of the final settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Further mounts.
    pub extra_volumes: Vec<ExtraVolume>,
    /// Environment variables of the config.
    pub environment_variables: BTreeMap<String, String>,
    /// Requests and limits.
    pub resources: Resources,
    /// Prefix length of a node's IPv4 pod subnet; 0 for Kubernetes' default.
    #[serde(rename = "nodeCIDRMaskSizeIPv4")]
    pub node_mask_v4: u8,
    /// The same for IPv6.
    #[serde(rename = "nodeCIDRMaskSizeIPv6")]
    pub node_mask_v6: u8,
}

impl ControllerManagerConfig {
    /// Id of the settings; also the name of the pod.
    pub const ID: &str = "kube-controller-manager";
}

impl Spec for ControllerManagerConfig {
    const DEFINITION: Definition = open(
        "ControllerManagerConfigs.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::ControllerManagerConfigSpec;

    fn message(&self) -> wire::ControllerManagerConfigSpec {
        wire::ControllerManagerConfigSpec {
            enabled: self.enabled,
            image: self.image.clone(),
            cloud_provider: self.cloud_provider.clone(),
            pod_cid_rs: self.pod_cidrs.clone(),
            service_cid_rs: self.service_cidrs.clone(),
            extra_volumes: self.extra_volumes.iter().map(Into::into).collect(),
            environment_variables: self.environment_variables.clone().into_iter().collect(),
            resources: Some((&self.resources).into()),
            extra_args: args(&self.extra_args).collect(),
            args: self.args.clone(),
            node_cidr_mask_size_i_pv4: self.node_mask_v4.into(),
            node_cidr_mask_size_i_pv6: self.node_mask_v6.into(),
        }
    }
}

/// Settings of kube-scheduler; ids [`SchedulerConfig::ID`] and, with the command line, [`FINAL`] in front of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfig {
    /// Whether this node runs it.
    pub enabled: bool,
    /// Image.
    pub image: String,
    /// Arguments of the config.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: Args,
    /// The whole command line; only of the final settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Fields of the `KubeSchedulerConfiguration`.
    pub config: Value,
    /// Further mounts.
    pub extra_volumes: Vec<ExtraVolume>,
    /// Environment variables of the config.
    pub environment_variables: BTreeMap<String, String>,
    /// Requests and limits.
    pub resources: Resources,
}

impl SchedulerConfig {
    /// Id of the settings; also the name of the pod.
    pub const ID: &str = "kube-scheduler";
}

impl Spec for SchedulerConfig {
    const DEFINITION: Definition =
        open("SchedulerConfigs.kubernetes.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::SchedulerConfigSpec;

    fn message(&self) -> wire::SchedulerConfigSpec {
        wire::SchedulerConfigSpec {
            enabled: self.enabled,
            image: self.image.clone(),
            extra_volumes: self.extra_volumes.iter().map(Into::into).collect(),
            environment_variables: self.environment_variables.clone().into_iter().collect(),
            resources: Some((&self.resources).into()),
            config: object(&self.config),
            extra_args: args(&self.extra_args).collect(),
            args: self.args.clone(),
        }
    }
}

/// The components' keys and certificates are written; id [`SecretsStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretsStatus {
    /// Always true: without files there is no status.
    pub ready: bool,
    /// Digest of the files whose change restarts a component.
    pub version: String,
}

impl SecretsStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "static-pods";
}

impl Spec for SecretsStatus {
    const DEFINITION: Definition = open(
        "SecretStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Ready", ".ready"),
            column("Secrets Version", ".version"),
        ],
    );

    type Message = wire::SecretsStatusSpec;

    fn message(&self) -> wire::SecretsStatusSpec {
        wire::SecretsStatusSpec {
            ready: self.ready,
            version: self.version.clone(),
        }
    }
}

/// The components' configuration files are written; id [`ConfigStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigStatus {
    /// Always true: without files there is no status.
    pub ready: bool,
    /// Digest of the files whose change restarts a component.
    pub version: String,
}

impl ConfigStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "static-pods";
}

impl Spec for ConfigStatus {
    const DEFINITION: Definition = open(
        "ConfigStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Ready", ".ready"),
            column("Secrets Version", ".version"),
        ],
    );

    type Message = wire::ConfigStatusSpec;

    fn message(&self) -> wire::ConfigStatusSpec {
        wire::ConfigStatusSpec {
            ready: self.ready,
            version: self.version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(value: &str) -> Args {
        let values = vec![value.to_owned()];
        BTreeMap::from([("v".to_owned(), ArgValues { values })])
    }

    #[test]
    fn masked_api_server_settings_keep_names_and_lose_values() {
        let config = ApiServerConfig {
            image: "a".to_owned(),
            extra_args: values("secret"),
            args: vec!["--v=secret".to_owned(), "--plain".to_owned()],
            environment_variables: [("NAME".to_owned(), "secret".to_owned())].into(),
            ..ApiServerConfig::default()
        };
        let masked = config.masked().unwrap();
        let text = serde_json::to_string(&masked).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(masked.args, ["--v=******", "--plain"]);
        assert_eq!(masked.image, "a");
        assert!(masked.environment_variables.contains_key("NAME"));
    }

    #[test]
    fn api_server_settings_have_the_fields_of_the_reference() {
        let config = ApiServerConfig {
            image: "registry.example.org/kube-apiserver:v1.37.0".to_owned(),
            local_port: 6443,
            service_cidrs: vec!["10.96.0.0/12".to_owned()],
            extra_args: values("4"),
            extra_volumes: vec![ExtraVolume {
                name: "extra-0".to_owned(),
                host_path: "/var/a".to_owned(),
                mount_path: "/a".to_owned(),
                read_only: true,
            }],
            ..ApiServerConfig::default()
        };
        let yaml = serde_json::to_value(&config).unwrap();
        assert_eq!(yaml["serviceCIDR"], json!(["10.96.0.0/12"]));
        assert_eq!(yaml["extraArgs"], json!({ "v": { "values": ["4"] } }));
        assert_eq!(yaml["extraVolumes"][0]["readonly"], true);
        assert_eq!(yaml.get("args"), None);
        let message = config.message();
        assert_eq!(message.local_port, 6443);
        assert_eq!(message.extra_args["v"].values, ["4"]);
        assert_eq!(message.extra_volumes[0].mount_path, "/a");
        let sensitive = ApiServerConfig::DEFINITION.sensitivity;
        assert_eq!(sensitive, Sensitivity::Masked);
    }

    #[test]
    fn settings_of_the_other_components_reach_typed_clients() {
        let manager = ControllerManagerConfig {
            enabled: true,
            pod_cidrs: vec!["10.244.0.0/16".to_owned()],
            node_mask_v4: 24,
            ..ControllerManagerConfig::default()
        };
        let yaml = serde_json::to_value(&manager).unwrap();
        assert_eq!(yaml["podCIDRs"], json!(["10.244.0.0/16"]));
        assert_eq!(yaml["nodeCIDRMaskSizeIPv4"], 24);
        assert_eq!(manager.message().node_cidr_mask_size_i_pv4, 24);
        let scheduler = SchedulerConfig {
            config: json!({ "parallelism": 8 }),
            ..SchedulerConfig::default()
        };
        let message = scheduler.message();
        assert!(message.config.unwrap().fields.contains_key("parallelism"));
    }
}
