//! Policies of kube-apiserver, in the form of Kubernetes' configuration files.

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use corten_values::Secret;
use serde::Serialize;
use serde_json::Value;

use super::kubernetes_components::{NAMESPACE, sensitive};
use super::message::object;
use super::open;
use super::secrets::exposed;

/// An admission plug-in and its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdmissionPlugin {
    /// Name.
    pub name: String,
    /// Configuration.
    pub configuration: Value,
}

/// Admission plug-ins of the config; id [`AdmissionControlConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdmissionControlConfig {
    /// The plug-ins.
    pub config: Vec<AdmissionPlugin>,
}

impl AdmissionControlConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "admission-control";
}

impl Spec for AdmissionControlConfig {
    const DEFINITION: Definition = open(
        "AdmissionControlConfigs.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::AdmissionControlConfigSpec;

    fn message(&self) -> wire::AdmissionControlConfigSpec {
        let plugin = |plugin: &AdmissionPlugin| wire::AdmissionPluginSpec {
            name: plugin.name.clone(),
            configuration: object(&plugin.configuration),
        };
        wire::AdmissionControlConfigSpec {
            config: self.config.iter().map(plugin).collect(),
        }
    }
}

/// Audit policy in force (`audit.k8s.io/v1`, Policy); id [`AuditPolicyConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditPolicyConfig {
    /// The policy.
    pub config: Value,
}

impl AuditPolicyConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "audit-policy";
}

impl Spec for AuditPolicyConfig {
    const DEFINITION: Definition = sensitive("AuditPolicyConfigs.kubernetes.talos.dev");

    type Message = wire::AuditPolicyConfigSpec;

    fn message(&self) -> wire::AuditPolicyConfigSpec {
        wire::AuditPolicyConfigSpec {
            config: object(&self.config),
        }
    }
}

/// Authentication in force (`AuthenticationConfiguration`); id [`AuthenticationConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthenticationConfig {
    /// The configuration.
    pub config: Value,
}

impl AuthenticationConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "authentication-config";
}

impl Spec for AuthenticationConfig {
    const DEFINITION: Definition = sensitive("AuthenticationConfigs.kubernetes.talos.dev");

    type Message = wire::AuthenticationConfigSpec;

    fn message(&self) -> wire::AuthenticationConfigSpec {
        wire::AuthenticationConfigSpec {
            config: object(&self.config),
        }
    }
}

/// An authorizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Authorizer {
    /// `Node`, `RBAC` or `Webhook`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name.
    pub name: String,
    /// Settings of a webhook; null for the others.
    pub webhook: Value,
}

/// Authorizers in force, in order; id [`AuthorizationConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorizationConfig {
    /// Image of kube-apiserver, whose version decides which fields there are.
    pub image: String,
    /// The authorizers.
    pub config: Vec<Authorizer>,
}

impl AuthorizationConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "authorization";
}

impl Spec for AuthorizationConfig {
    const DEFINITION: Definition = sensitive("AuthorizationConfigs.kubernetes.talos.dev");

    type Message = wire::AuthorizationConfigSpec;

    fn message(&self) -> wire::AuthorizationConfigSpec {
        let authorizer = |one: &Authorizer| wire::AuthorizationAuthorizersSpec {
            r#type: one.kind.clone(),
            name: one.name.clone(),
            webhook: object(&one.webhook),
        };
        wire::AuthorizationConfigSpec {
            image: self.image.clone(),
            config: self.config.iter().map(authorizer).collect(),
        }
    }
}

/// Encryption of data in etcd; id [`EtcdEncryptionConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EtcdEncryptionConfig {
    /// The `EncryptionConfiguration` as text; it holds the keys.
    #[serde(serialize_with = "exposed")]
    pub configuration: Secret,
}

impl EtcdEncryptionConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s";
}

impl Spec for EtcdEncryptionConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(
            "EtcdEncryptionConfigs.kubernetes.talos.dev",
            "k8s",
            &[],
            &[],
        )
    };

    const IS_LARGE: bool = true;

    type Message = wire::EtcdEncryptionConfigSpec;

    fn message(&self) -> wire::EtcdEncryptionConfigSpec {
        wire::EtcdEncryptionConfigSpec {
            configuration: self.configuration.expose().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_reach_typed_clients_as_objects() {
        let audit = AuditPolicyConfig {
            config: json!({ "kind": "Policy" }),
        };
        assert!(audit.message().config.unwrap().fields.contains_key("kind"));
        let authorizers = AuthorizationConfig {
            image: "kube-apiserver:v1.37.0".to_owned(),
            config: vec![Authorizer {
                kind: "Node".to_owned(),
                name: "node".to_owned(),
                webhook: Value::Null,
            }],
        };
        let message = authorizers.message();
        assert_eq!(message.config[0].r#type, "Node");
        assert_eq!(message.config[0].webhook, None);
        let plugins = AdmissionControlConfig {
            config: vec![AdmissionPlugin {
                name: "PodSecurity".to_owned(),
                configuration: json!({ "kind": "PodSecurityConfiguration" }),
            }],
        };
        assert!(plugins.message().config[0].configuration.is_some());
    }

    #[test]
    fn encryption_keys_are_for_administrators_and_never_in_debug_output() {
        let config = EtcdEncryptionConfig {
            configuration: Secret::new("hidden"),
        };
        assert!(!format!("{config:?}").contains("hidden"));
        assert_eq!(config.message().configuration, "hidden");
        let definition = EtcdEncryptionConfig::DEFINITION;
        assert_eq!(definition.sensitivity, Sensitivity::Sensitive);
    }
}
