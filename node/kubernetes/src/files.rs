//! Files of the control plane components.

use std::fmt;

use corten_pki::CertificateAndKey;
use corten_values::Secret;
use serde_json::{Value, json};

use crate::certificates::{Cas, Certificates};
use crate::extra::{merge, with_kind};
use crate::images::minor;
use crate::{
    API_SERVER_UID, CONTROLLER_MANAGER_UID, ControlPlane, Identity, SCHEDULER_UID, Settings,
    kubeconfig,
};

/// Directory of the components' secret files inside their containers.
pub(crate) const SECRETS: &str = "/system/secrets/kubernetes";
/// Directory of their configuration files inside their containers.
pub(crate) const CONFIG: &str = "/system/config/kubernetes";

/// A file of a component.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Name in the component's directory.
    pub name: &'static str,
    /// Contents.
    pub content: Secret,
    /// Whether the component reads it only at its start, so that a change needs a restart.
    pub is_read_once: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Files of a component, with a directory for each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// `kube-apiserver`, `kube-controller-manager` or `kube-scheduler`.
    pub name: &'static str,
    /// UID that may read the files.
    pub uid: u32,
    /// Keys and certificates.
    pub secrets: Vec<File>,
    /// Configuration files.
    pub config: Vec<File>,
}

/// Minor version of Kubernetes since which AuthenticationConfiguration has version `v1`.
const AUTHENTICATION_V1: u32 = 34;
/// Public keys of other issuers of service account tokens.
pub(crate) const ACCEPTED_KEYS: &str = "service-account-accepted.pub";
/// Client certificate and key of a component for the API server.
const CLIENT_CRT: &str = "client.crt";
const CLIENT_KEY: &str = "client.key";

/// Inputs of the files.
struct Sources<'a> {
    settings: &'a Settings,
    control_plane: &'a ControlPlane,
    cas: &'a Cas,
    certificates: &'a Certificates,
    etcd_client: &'a CertificateAndKey,
    service_account_key: &'a Secret,
}

/// The files of all components. `etcd_client` is kube-apiserver's certificate for etcd.
#[must_use]
pub fn components(
    settings: &Settings,
    control_plane: &ControlPlane,
    cas: &Cas,
    certificates: &Certificates,
    etcd_client: &CertificateAndKey,
    service_account_key: &Secret,
) -> Vec<Component> {
    let sources = Sources {
        settings,
        control_plane,
        cas,
        certificates,
        etcd_client,
        service_account_key,
    };
    vec![
        sources.api_server(),
        sources.controller_manager(),
        sources.scheduler(),
    ]
}

impl Sources<'_> {
    fn api_server(&self) -> Component {
        let certificates = self.certificates;
        let trust = &self.control_plane.trust;
        let mut secrets = vec![
            file("ca.crt", self.settings.cas.clone()),
            file("etcd-client-ca.crt", self.cas.etcd.pem().crt.clone()),
            file(
                "aggregator-ca.crt",
                format!(
                    "{}\n{}",
                    self.cas.aggregator.pem().crt.trim_end(),
                    trust.aggregators
                ),
            ),
            once("service-account.key", self.service_account_key.expose()),
            once(ACCEPTED_KEYS, trust.keys.clone()),
            once(
                "encryptionconfig.yaml",
                encryption(self.control_plane).to_string(),
            ),
        ];
        for (key, crt, pair) in [
            ("apiserver.key", "apiserver.crt", &certificates.api_server),
            (
                "apiserver-kubelet-client.key",
                "apiserver-kubelet-client.crt",
                &certificates.kubelet_client,
            ),
            (
                "front-proxy-client.key",
                "front-proxy-client.crt",
                &certificates.front_proxy,
            ),
            ("etcd-client.key", "etcd-client.crt", self.etcd_client),
        ] {
            // The key first, so that a reader of the new certificate finds its key.
            secrets.push(file(key, pair.key.clone()));
            secrets.push(file(crt, pair.crt.clone()));
        }
        let audit = audit_policy(self.control_plane).to_string();
        let admission = admission(self.control_plane).to_string();
        let authorization = authorization(self.control_plane).to_string();
        let authentication = authentication(self.control_plane).to_string();
        Component {
            name: "kube-apiserver",
            uid: API_SERVER_UID,
            secrets,
            config: vec![
                once("auditpolicy.yaml", audit),
                once("admission-control-config.yaml", admission),
                file("authorization-config.yaml", authorization),
                file("authentication-config.yaml", authentication),
            ],
        }
    }

    fn controller_manager(&self) -> Component {
        let name = "kube-controller-manager";
        let client = &self.certificates.controller_manager;
        Component {
            name,
            uid: CONTROLLER_MANAGER_UID,
            secrets: vec![
                once("ca.crt", self.settings.cas.clone()),
                once("issuing-ca.crt", self.cas.kubernetes.pem().crt.clone()),
                once("issuing-ca.key", self.cas.kubernetes.pem().key.clone()),
                once("service-account.key", self.service_account_key.expose()),
                file(CLIENT_KEY, client.key.clone()),
                file(CLIENT_CRT, client.crt.clone()),
                once("kubeconfig", self.kubeconfig(name)),
            ],
            config: Vec::new(),
        }
    }

    fn scheduler(&self) -> Component {
        let name = "kube-scheduler";
        let client = &self.certificates.scheduler;
        Component {
            name,
            uid: SCHEDULER_UID,
            secrets: vec![
                file(CLIENT_KEY, client.key.clone()),
                file(CLIENT_CRT, client.crt.clone()),
                once("kubeconfig", self.kubeconfig(name)),
            ],
            config: vec![once(
                "scheduler-config.yaml",
                scheduler(self.control_plane.scheduler_config.as_ref()).to_string(),
            )],
        }
    }

    /// Kubeconfig of a component for the node's own API server.
    fn kubeconfig(&self, component: &str) -> String {
        let server = self.settings.local_endpoint();
        let [crt, key] = [CLIENT_CRT, CLIENT_KEY].map(|name| secret(component, name));
        let user = format!("system:{component}");
        kubeconfig(self.settings, &server, &user, Identity::Files(&crt, &key)).to_string()
    }
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

/// Encryption of data in etcd (`apiserver.config.k8s.io/v1`, EncryptionConfiguration).
#[must_use]
pub fn encryption(control_plane: &ControlPlane) -> Value {
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

/// Audit policy (`audit.k8s.io/v1`, Policy).
#[must_use]
pub fn audit_policy(control_plane: &ControlPlane) -> Value {
    let usual = json!({ "rules": [{ "level": "Metadata" }] });
    let own = control_plane.audit_policy.as_ref().unwrap_or(&usual);
    with_kind(own, "audit.k8s.io/v1", "Policy")
}

/// Admission plug-ins (`apiserver.config.k8s.io/v1`, AdmissionConfiguration).
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

/// Authorizers (`apiserver.config.k8s.io/v1`, AuthorizationConfiguration).
#[must_use]
pub fn authorization(control_plane: &ControlPlane) -> Value {
    let fields = json!({ "authorizers": control_plane.authorizers });
    with_kind(
        &fields,
        "apiserver.config.k8s.io/v1",
        "AuthorizationConfiguration",
    )
}

/// Authentication (`apiserver.config.k8s.io`, AuthenticationConfiguration). Anonymous access is limited to the health
/// endpoints, which the kubelet probes.
#[must_use]
pub fn authentication(control_plane: &ControlPlane) -> Value {
    let paths = ["/livez", "/readyz", "/healthz"].map(|path| json!({ "path": path }));
    let usual = json!({ "anonymous": { "enabled": true, "conditions": paths } });
    let version = match minor(&control_plane.images.api_server) {
        Some(..AUTHENTICATION_V1) => "apiserver.config.k8s.io/v1beta1",
        _ => "apiserver.config.k8s.io/v1",
    };
    let mut whole = with_kind(&usual, version, "AuthenticationConfiguration");
    let own = control_plane.authentication.as_ref();
    if let (Some(whole), Some(own)) = (whole.as_object_mut(), own.and_then(Value::as_object)) {
        whole.extend(own.clone());
    }
    whole
}

/// Scheduler configuration (`kubescheduler.config.k8s.io/v1`, KubeSchedulerConfiguration): fields of the config, and
/// the path of the kubeconfig.
fn scheduler(own: Option<&Value>) -> Value {
    let mut config = own.cloned().unwrap_or_else(|| json!({}));
    let fields = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": "/system/secrets/kubernetes/kube-scheduler/kubeconfig" },
    });
    merge(&mut config, &fields);
    config
}

/// Path of a secret file in the component's container.
pub(crate) fn secret(component: &str, name: &str) -> String {
    format!("{SECRETS}/{component}/{name}")
}

/// Path of a configuration file in the component's container.
pub(crate) fn config(component: &str, name: &str) -> String {
    format!("{CONFIG}/{component}/{name}")
}
