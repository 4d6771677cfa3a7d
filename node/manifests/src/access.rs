//! RBAC of a new cluster: how nodes join, and what they may read.

use serde_json::{Value, json};

use crate::object::{set, yaml};
use crate::{BootstrapToken, Manifest, NAMESPACE, Settings};

const BOOTSTRAPPERS: &str = "system:bootstrappers:nodes";
const NODES: &str = "system:nodes";

pub(crate) fn manifests(settings: &Settings, token: &BootstrapToken) -> Vec<Manifest> {
    let one = |id: &str, object: Value| Manifest::new(id, vec![object]);
    vec![
        one("00-kubelet-bootstrapping-token", bootstrap_token(token)),
        one(
            "01-csr-node-bootstrap",
            groups_have_role(
                "system-bootstrap-node-bootstrapper",
                "system:node-bootstrapper",
                &[BOOTSTRAPPERS, NODES],
            ),
        ),
        one(
            "01-csr-approver-role-binding",
            groups_have_role(
                "system-bootstrap-approve-node-client-csr",
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                &[BOOTSTRAPPERS],
            ),
        ),
        one(
            "01-csr-renewal-role-binding",
            groups_have_role(
                "system-bootstrap-node-renewal",
                "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
                &[NODES],
            ),
        ),
        one("11-kube-config-in-cluster", kubeconfig(&settings.server)),
        Manifest::new("11-talos-node-rbac-template", nodes_read_endpoints()),
    ]
}

fn bootstrap_token(token: &BootstrapToken) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": format!("bootstrap-token-{}", token.id), "namespace": NAMESPACE },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": BOOTSTRAPPERS,
        },
    })
}

fn groups_have_role(name: &str, role: &str, groups: &[&str]) -> Value {
    let group = |name: &&str| json!({ "kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io" });
    let subjects: Vec<Value> = groups.iter().map(group).collect();
    binding(name, role, &json!(subjects))
}

/// Binds a cluster role to `subjects`.
fn binding(name: &str, role: &str, subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "subjects": subjects,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role,
        },
    })
}

/// Binds a cluster role to the service account `account`.
pub(crate) fn account_has_role(name: &str, role: &str, account: &str) -> Value {
    let subject = json!({ "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE });
    binding(name, role, &json!([subject]))
}

pub(crate) fn service_account(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": NAMESPACE },
    })
}

/// A cluster role.
pub(crate) fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": name },
        "rules": rules,
    })
}

/// Marks an object as a default that Kubernetes restores itself.
pub(crate) fn mark_as_default(object: &mut Value) {
    let label = json!({ "kubernetes.io/bootstrapping": "rbac-defaults" });
    set(object, "/metadata", "labels", label);
    if object.get("roleRef").is_some() {
        let update = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
        set(object, "/metadata", "annotations", update);
    }
}

/// Kubeconfig with which pods on the host network use their service account.
fn kubeconfig(server: &str) -> Value {
    const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "local",
            "cluster": { "server": server, "certificate-authority": format!("{ACCOUNT}/ca.crt") },
        }],
        "users": [{
            "name": "service-account",
            "user": { "tokenFile": format!("{ACCOUNT}/token") },
        }],
        "contexts": [{
            "name": "local",
            "context": { "cluster": "local", "user": "service-account" },
        }],
        "current-context": "local",
    });
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "kubeconfig-in-cluster", "namespace": NAMESPACE },
        "data": { "kubeconfig": yaml(&config) },
    })
}

fn nodes_read_endpoints() -> Vec<Value> {
    const NAME: &str = "system:talos-nodes";
    let mut binding = groups_have_role(NAME, NAME, &[NODES]);
    let mut role = role(
        NAME,
        &json!([{
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }]),
    );
    mark_as_default(&mut binding);
    mark_as_default(&mut role);
    vec![binding, role]
}
