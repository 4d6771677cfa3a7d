//! The files of the control plane's components.

use std::fmt;

use corten_config::Secret;
use corten_pki::CertificateAndKey;
use serde_json::{Value, json};

use crate::certificates::{Authorities, Certificates};
use crate::{
    API_SERVER_UID, CONTROLLER_MANAGER_UID, ControlPlane, Identity, SCHEDULER_UID, Settings,
    kubeconfig,
};

/// A file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its name in the component's directory.
    pub name: &'static str,
    /// What is in it.
    pub content: Secret,
    /// The component reads it at its start alone: with another content it has to start anew.
    pub is_read_once: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The files of a component, each kind in a directory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// `kube-apiserver`, `kube-controller-manager` or `kube-scheduler`.
    pub name: &'static str,
    /// Who may read them.
    pub uid: u32,
    /// Keys, and what is beside them.
    pub secrets: Vec<File>,
    /// Configuration.
    pub config: Vec<File>,
}

/// The files of every component.
#[must_use]
pub fn components(
    settings: &Settings,
    control_plane: &ControlPlane,
    authorities: &Authorities,
    certificates: &Certificates,
    service_account_key: &Secret,
) -> Vec<Component> {
    let local = |name: &str, pair: &CertificateAndKey| {
        let server = settings.local_endpoint();
        kubeconfig(settings, &server, name, Identity::Certificate(pair))
    };
    let ca = || file("ca.crt", settings.authorities.clone());
    let service_account = || once("service-account.key", service_account_key.expose());
    let [server_crt, server_key] = pair("apiserver.crt", "apiserver.key", &certificates.api_server);
    let [kubelet_crt, kubelet_key] = pair(
        "apiserver-kubelet-client.crt",
        "apiserver-kubelet-client.key",
        &certificates.kubelet_client,
    );
    let [proxy_crt, proxy_key] = pair(
        "front-proxy-client.crt",
        "front-proxy-client.key",
        &certificates.front_proxy,
    );
    let [etcd_crt, etcd_key] = pair(
        "etcd-client.crt",
        "etcd-client.key",
        &certificates.etcd_client,
    );
    let kubernetes = authorities.kubernetes.pem();
    vec![
        Component {
            name: "kube-apiserver",
            uid: API_SERVER_UID,
            secrets: vec![
                ca(),
                server_key,
                server_crt,
                kubelet_key,
                kubelet_crt,
                proxy_key,
                proxy_crt,
                etcd_key,
                etcd_crt,
                file("etcd-client-ca.crt", authorities.etcd.pem().crt.clone()),
                file(
                    "aggregator-ca.crt",
                    authorities.aggregator.pem().crt.clone(),
                ),
                service_account(),
                once(
                    "encryptionconfig.yaml",
                    encryption(control_plane).to_string(),
                ),
            ],
            config: vec![
                once("auditpolicy.yaml", audit_policy(control_plane).to_string()),
                once(
                    "admission-control-config.yaml",
                    admission(control_plane).to_string(),
                ),
                file(
                    "authorization-config.yaml",
                    authorization(control_plane).to_string(),
                ),
                file(
                    "authentication-config.yaml",
                    authentication(control_plane).to_string(),
                ),
            ],
        },
        Component {
            name: "kube-controller-manager",
            uid: CONTROLLER_MANAGER_UID,
            secrets: vec![
                once("ca.crt", settings.authorities.clone()),
                once("ca.key", kubernetes.key.clone()),
                service_account(),
                file(
                    "kubeconfig",
                    local(
                        "system:kube-controller-manager",
                        &certificates.controller_manager,
                    )
                    .to_string(),
                ),
            ],
            config: Vec::new(),
        },
        Component {
            name: "kube-scheduler",
            uid: SCHEDULER_UID,
            secrets: vec![file(
                "kubeconfig",
                local("system:kube-scheduler", &certificates.scheduler).to_string(),
            )],
            config: vec![once("scheduler-config.yaml", scheduler().to_string())],
        },
    ]
}

fn file(name: &'static str, content: impl Into<String>) -> File {
    File {
        name,
        content: Secret::new(content),
        is_read_once: false,
    }
}

fn once(name: &'static str, content: impl Into<String>) -> File {
    File {
        is_read_once: true,
        ..file(name, content)
    }
}

/// The key first: whoever sees a new certificate finds the key to it.
fn pair(crt: &'static str, key: &'static str, pair: &CertificateAndKey) -> [File; 2] {
    [file(crt, pair.crt.clone()), file(key, pair.key.clone())]
}

/// What of etcd is encrypted, and how (`apiserver.config.k8s.io/v1`, EncryptionConfiguration).
fn encryption(control_plane: &ControlPlane) -> Value {
    let whole = |fields: &Value| {
        with_kind(
            fields,
            "apiserver.config.k8s.io/v1",
            "EncryptionConfiguration",
        )
    };
    if let Some(own) = &control_plane.encryption {
        return whole(own);
    }
    let mut providers = Vec::new();
    for (kind, name, secret) in [
        ("secretbox", "key2", &control_plane.secretbox),
        ("aescbc", "key1", &control_plane.aescbc),
    ] {
        if !secret.is_empty() {
            providers.push(json!({ kind: { "keys": [{ "name": name, "secret": secret }] } }));
        }
    }
    providers.push(json!({ "identity": {} }));
    whole(&json!({ "resources": [{ "resources": ["secrets"], "providers": providers }] }))
}

/// What is written down of requests (`audit.k8s.io/v1`, Policy).
fn audit_policy(control_plane: &ControlPlane) -> Value {
    let usual = json!({ "rules": [{ "level": "Metadata" }] });
    let own = control_plane.audit_policy.as_ref().unwrap_or(&usual);
    with_kind(own, "audit.k8s.io/v1", "Policy")
}

/// What checks objects before they are kept (`apiserver.config.k8s.io/v1`, AdmissionConfiguration).
fn admission(control_plane: &ControlPlane) -> Value {
    let plugins: Vec<Value> = control_plane
        .admission
        .iter()
        .map(|(name, configuration)| json!({ "name": name, "configuration": configuration }))
        .collect();
    let fields = json!({ "plugins": plugins });
    with_kind(
        &fields,
        "apiserver.config.k8s.io/v1",
        "AdmissionConfiguration",
    )
}

/// Who decides what a caller may do (`apiserver.config.k8s.io/v1`, AuthorizationConfiguration): without the first two
/// there is no cluster.
fn authorization(control_plane: &ControlPlane) -> Value {
    let mut authorizers = vec![
        json!({ "type": "Node", "name": "node" }),
        json!({ "type": "RBAC", "name": "rbac" }),
    ];
    authorizers.extend(control_plane.authorizers.iter().cloned());
    let fields = json!({ "authorizers": authorizers });
    with_kind(
        &fields,
        "apiserver.config.k8s.io/v1",
        "AuthorizationConfiguration",
    )
}

/// Nobody is anonymous but the kubelet, which asks whether the server works (`apiserver.config.k8s.io/v1`,
/// AuthenticationConfiguration).
fn authentication(control_plane: &ControlPlane) -> Value {
    let paths = ["/livez", "/readyz", "/healthz"].map(|path| json!({ "path": path }));
    let usual = json!({ "anonymous": { "enabled": true, "conditions": paths } });
    let mut whole = with_kind(
        &usual,
        "apiserver.config.k8s.io/v1",
        "AuthenticationConfiguration",
    );
    let own = control_plane.authentication.as_ref();
    if let (Some(whole), Some(own)) = (whole.as_object_mut(), own.and_then(Value::as_object)) {
        whole.extend(own.clone());
    }
    whole
}

/// Where the scheduler finds its kubeconfig (`kubescheduler.config.k8s.io/v1`, KubeSchedulerConfiguration).
fn scheduler() -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": "/system/secrets/kubernetes/kube-scheduler/kubeconfig" },
    })
}

/// The fields, with version and kind where they say none.
fn with_kind(fields: &Value, version: &str, kind: &str) -> Value {
    let mut whole = json!({ "apiVersion": version, "kind": kind });
    if let (Some(whole), Some(fields)) = (whole.as_object_mut(), fields.as_object()) {
        for (name, value) in fields {
            whole.insert(name.clone(), value.clone());
        }
    }
    whole
}
