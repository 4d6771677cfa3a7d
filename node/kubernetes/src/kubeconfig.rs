//! Kubeconfigs (kubeconfig v1, `clientcmd/api/v1`) as JSON, which is also valid YAML.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_pki::CertificateAndKey;
use serde_json::{Value, json};

use crate::Settings;

/// Credentials in a kubeconfig.
#[derive(Debug, Clone, Copy)]
pub enum Identity<'a> {
    /// An embedded client certificate.
    Certificate(&'a CertificateAndKey),
    /// Paths of a client certificate and its key; clients reload the files after a change.
    Files(&'a str, &'a str),
    /// A bootstrap token.
    Token(&'a str),
}

/// A kubeconfig for a component of the node, with the API server `server`.
#[must_use]
pub fn kubeconfig(settings: &Settings, server: &str, name: &str, identity: Identity<'_>) -> Value {
    let cluster = "local";
    named(
        settings,
        server,
        cluster,
        name,
        &format!("{name}@{cluster}"),
        identity,
    )
}

/// The kubeconfig of the cluster's administrator, with the API server `server`.
#[must_use]
pub fn admin(settings: &Settings, server: &str, certificate: &CertificateAndKey) -> Value {
    let cluster = &settings.cluster;
    let name = format!("admin@{cluster}");
    let identity = Identity::Certificate(certificate);
    named(settings, server, cluster, &name, &name, identity)
}

fn named(
    settings: &Settings,
    server: &str,
    cluster: &str,
    user: &str,
    context: &str,
    identity: Identity<'_>,
) -> Value {
    let identity = match identity {
        Identity::Certificate(pair) => json!({
            "client-certificate-data": STANDARD.encode(&pair.crt),
            "client-key-data": STANDARD.encode(&pair.key),
        }),
        Identity::Files(crt, key) => json!({ "client-certificate": crt, "client-key": key }),
        Identity::Token(token) => json!({ "token": token }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": cluster,
            "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&settings.cas),
            },
        }],
        "users": [{ "name": user, "user": identity }],
        "contexts": [{
            "name": context,
            "context": { "cluster": cluster, "namespace": "default", "user": user },
        }],
        "current-context": context,
    })
}
