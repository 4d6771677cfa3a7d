//! Who the node is to others, and whom it believes. Most of it is secret: only administrators may read it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::Secret;
use corten_pki::CertificateAndKey;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::{Serialize, Serializer};

use super::{column, message, open};

const NAMESPACE: &str = "secrets";

const fn secret(type_name: &'static str) -> Definition {
    Definition {
        type_name,
        default_namespace: NAMESPACE,
        aliases: &[],
        columns: &[],
        sensitivity: Sensitivity::Sensitive,
    }
}

fn base64<S: Serializer>(pem: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(pem))
}

fn base64_secret<S: Serializer>(pem: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    base64(pem.expose(), serializer)
}

fn exposed<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

/// A certificate: PEM here, base64 of it for clients, as in a machine config.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Pem {
    /// One certificate.
    #[serde(serialize_with = "base64")]
    pub crt: String,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem")
    }
}

/// A certificate and its key, in the form of [`Pem`]. The key is empty where only the certificate is known.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PemPair {
    /// The certificate.
    #[serde(serialize_with = "base64")]
    pub crt: String,
    /// Its key.
    #[serde(serialize_with = "base64_secret")]
    pub key: Secret,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemPair")
    }
}

impl From<&CertificateAndKey> for PemPair {
    fn from(pair: &CertificateAndKey) -> PemPair {
        PemPair {
            crt: pair.crt.clone(),
            key: Secret::new(pair.key.clone()),
        }
    }
}

/// What the config says of the cluster's trust; id [`OsRoot::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OsRoot {
    /// The authority that signs; on a worker without its key, or empty.
    #[serde(rename = "issuingCA")]
    pub issuing_ca: PemPair,
    /// Every authority that is believed, the one that signs first.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// Addresses the operator wants in the API's certificate.
    #[serde(rename = "certSANIPs")]
    pub cert_san_ips: Vec<String>,
    /// Names the operator wants in it.
    #[serde(rename = "certSANDNSNames")]
    pub cert_san_dns_names: Vec<String>,
    /// What a node shows to trustd.
    #[serde(serialize_with = "exposed")]
    pub token: Secret,
}

impl OsRoot {
    /// There is one.
    pub const ID: &str = "os";

    /// Every authority that is believed, as one PEM text.
    #[must_use]
    pub fn authorities(&self) -> String {
        joined(&self.accepted_cas)
    }

    /// Whether this node can sign.
    #[must_use]
    pub fn signs(&self) -> bool {
        !self.issuing_ca.key.is_empty()
    }
}

/// Certificates as one PEM text.
#[must_use]
pub fn joined(certificates: &[Pem]) -> String {
    let texts: Vec<&str> = certificates.iter().map(|ca| ca.crt.trim_end()).collect();
    texts.join("\n") + "\n"
}

impl Spec for OsRoot {
    const DEFINITION: Definition = secret("OSRootSecrets.secrets.talos.dev");

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::os_root(self))
    }
}

/// What the node's certificates are for; id [`CertSans::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertSans {
    /// Addresses, loopback's first.
    pub ips: Vec<String>,
    /// Names.
    pub dns_names: Vec<String>,
    /// The node's own name.
    pub fqdn: String,
}

impl CertSans {
    /// There is one.
    pub const ID: &str = "api";

    /// Whether nobody else can reach the node by them.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.ips.iter().all(|ip| {
            ip.parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
        })
    }

    /// All of them, those first that must not be missing.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.dns_names.iter().chain(&self.ips).cloned().collect()
    }
}

impl Spec for CertSans {
    const DEFINITION: Definition = secret("CertSANs.secrets.talos.dev");
}

/// What apid serves with; id [`ApiCertificates::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiCertificates {
    /// What it shows to other nodes, in the role `os:impersonator`; a worker has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<PemPair>,
    /// What it shows to callers.
    pub server: PemPair,
    /// Whose callers it lets in.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// There is no machine config yet, so nobody can have a certificate.
    pub skip_verifying_client_cert: bool,
}

impl ApiCertificates {
    /// There is one.
    pub const ID: &str = "api";
}

impl Spec for ApiCertificates {
    const DEFINITION: Definition = secret("ApiCertificates.secrets.talos.dev");
}

/// What trustd serves with; id [`TrustdCertificates::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustdCertificates {
    /// What it shows to nodes.
    pub server: PemPair,
}

impl TrustdCertificates {
    /// There is one.
    pub const ID: &str = "trustd";
}

impl Spec for TrustdCertificates {
    const DEFINITION: Definition = secret("TrustdCertificates.secrets.talos.dev");
}

/// How a certificate of the node is doing, without anything secret; its id is that of the certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Who signed it: `machine.ca`, `itself` in maintenance, or the control plane node whose trustd did.
    pub issuer: String,
    /// Until when it is valid (RFC 3339); empty while there is none.
    pub not_after: String,
    /// Why there is none, or no new one, for a person; empty when all is well.
    pub error: String,
}

impl Spec for CertificateStatus {
    const DEFINITION: Definition = open(
        "CertificateStatuses.secrets.corten.dev",
        NAMESPACE,
        &[],
        &[
            column("Issuer", ".issuer"),
            column("Not after", ".notAfter"),
            column("Error", ".error"),
        ],
    );
}

/// Where the control plane answers; id [`Endpoint::STATIC`] for what the config says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its names.
    pub hosts: Vec<String>,
}

impl Endpoint {
    /// From `cluster.controlPlane.endpoint`.
    pub const STATIC: &str = "kube-apiserver";
}

impl Spec for Endpoint {
    const DEFINITION: Definition = open(
        "Endpoints.kubernetes.talos.dev",
        "controlplane",
        &[],
        &[column("Addresses", ".addresses"), column("Hosts", ".hosts")],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_for_administrators_and_never_in_debug_output() {
        for definition in [
            OsRoot::DEFINITION,
            CertSans::DEFINITION,
            ApiCertificates::DEFINITION,
            TrustdCertificates::DEFINITION,
        ] {
            assert_eq!(
                definition.sensitivity,
                Sensitivity::Sensitive,
                "{}",
                definition.type_name
            );
        }
        let root = OsRoot {
            issuing_ca: PemPair {
                crt: "crt".to_owned(),
                key: Secret::new("hidden"),
            },
            accepted_cas: Vec::new(),
            cert_san_ips: Vec::new(),
            cert_san_dns_names: Vec::new(),
            token: Secret::new("hidden"),
        };
        assert!(!format!("{root:?}").contains("hidden"));
    }
}
