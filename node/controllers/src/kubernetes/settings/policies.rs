//! Policies of kube-apiserver.

use corten_kubernetes::{ControlPlane, files};
use corten_types::kubernetes_policies::{
    AdmissionControlConfig, AdmissionPlugin, AuditPolicyConfig, AuthenticationConfig,
    AuthorizationConfig, Authorizer, EtcdEncryptionConfig,
};
use corten_values::Secret;
use serde_json::Value;

pub(super) fn admission(own: &ControlPlane) -> AdmissionControlConfig {
    let plugin = |(name, configuration): &(String, Value)| AdmissionPlugin {
        name: name.clone(),
        configuration: configuration.clone(),
    };
    AdmissionControlConfig {
        config: own.admission.iter().map(plugin).collect(),
    }
}

pub(super) fn audit(own: &ControlPlane) -> AuditPolicyConfig {
    AuditPolicyConfig {
        config: files::audit_policy(own),
    }
}

pub(super) fn authentication(own: &ControlPlane) -> AuthenticationConfig {
    AuthenticationConfig {
        config: files::authentication(own),
    }
}

pub(super) fn authorization(own: &ControlPlane) -> AuthorizationConfig {
    let whole = files::authorization(own);
    let authorizers = whole.get("authorizers").and_then(Value::as_array);
    let text = |one: &Value, field: &str| {
        let text = one.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let authorizer = |one: &Value| Authorizer {
        kind: text(one, "type"),
        name: text(one, "name"),
        webhook: one.get("webhook").cloned().unwrap_or_default(),
    };
    AuthorizationConfig {
        image: own.images.api_server.clone(),
        config: authorizers.into_iter().flatten().map(authorizer).collect(),
    }
}

pub(super) fn encryption(own: &ControlPlane) -> EtcdEncryptionConfig {
    EtcdEncryptionConfig {
        configuration: Secret::new(files::encryption(own).to_string()),
    }
}
