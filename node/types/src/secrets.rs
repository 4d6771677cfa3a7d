//! Who the node is to others, and whom it believes. Most of it is secret: only administrators may read it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::common::{PemEncodedCertificate, PemEncodedCertificateAndKey};
use corten_api::talos::resource::definitions::k8s::EndpointSpec;
use corten_api::talos::resource::definitions::secrets as wire;
use corten_config::{Document, Secret};
use corten_pki::CertificateAndKey;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::{Serialize, Serializer};

use super::message::ip;
use super::{column, open};

const NAMESPACE: &str = "secrets";

const fn secret(type_name: &'static str) -> Definition {
    Definition {
        type_name,
        default_namespace: NAMESPACE,
        aliases: &[],
        columns: &[],
        sensitivity: Sensitivity::Sensitive,
        only_declared_aliases: false,
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

impl Pem {
    fn message(&self) -> PemEncodedCertificate {
        PemEncodedCertificate {
            crt: self.crt.as_bytes().to_vec(),
        }
    }
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

impl PemPair {
    fn message(&self) -> PemEncodedCertificateAndKey {
        PemEncodedCertificateAndKey {
            crt: self.crt.as_bytes().to_vec(),
            key: self.key.expose().as_bytes().to_vec(),
        }
    }
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

/// Whom a node with this config believes: `machine.ca`, then `machine.acceptedCAs`, each once.
#[must_use]
pub fn authorities(document: &Document) -> Vec<Pem> {
    let machine = &document.machine;
    let issuing = machine.ca.iter().map(|ca| ca.crt.to_string());
    let others = machine.accepted_cas.iter().map(|ca| ca.crt.to_string());
    let mut found: Vec<Pem> = Vec::new();
    for crt in issuing.chain(others) {
        if !crt.is_empty() && !found.iter().any(|known| known.crt == crt) {
            found.push(Pem { crt });
        }
    }
    found
}

/// Certificates as one PEM text.
#[must_use]
pub fn joined(certificates: &[Pem]) -> String {
    let texts: Vec<&str> = certificates.iter().map(|ca| ca.crt.trim_end()).collect();
    texts.join("\n") + "\n"
}

impl Spec for OsRoot {
    const DEFINITION: Definition = secret("OSRootSecrets.secrets.talos.dev");

    type Message = wire::OsRootSpec;

    fn message(&self) -> wire::OsRootSpec {
        wire::OsRootSpec {
            issuing_ca: Some(self.issuing_ca.message()),
            cert_sani_ps: self.cert_san_ips.iter().filter_map(|one| ip(one)).collect(),
            cert_sandns_names: self.cert_san_dns_names.clone(),
            token: self.token.expose().to_owned(),
            accepted_c_as: self.accepted_cas.iter().map(Pem::message).collect(),
        }
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

    type Message = wire::CertSanSpec;

    fn message(&self) -> wire::CertSanSpec {
        wire::CertSanSpec {
            i_ps: self.ips.iter().filter_map(|one| ip(one)).collect(),
            dns_names: self.dns_names.clone(),
            fqdn: self.fqdn.clone(),
        }
    }
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

    type Message = wire::ApiCertsSpec;

    fn message(&self) -> wire::ApiCertsSpec {
        wire::ApiCertsSpec {
            client: self.client.as_ref().map(PemPair::message),
            server: Some(self.server.message()),
            accepted_c_as: self.accepted_cas.iter().map(Pem::message).collect(),
            skip_verifying_client_cert: self.skip_verifying_client_cert,
        }
    }
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

    type Message = wire::TrustdCertsSpec;

    fn message(&self) -> wire::TrustdCertsSpec {
        wire::TrustdCertsSpec {
            server: Some(self.server.message()),
            accepted_c_as: Vec::new(),
        }
    }
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

    type Message = ();

    fn message(&self) {}
}

/// Where the control plane answers, for each source: [`Endpoint::STATIC`], [`Endpoint::CLUSTER`],
/// [`Endpoint::MEMBERS`].
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
    /// From the API servers that the cluster itself knows.
    pub const CLUSTER: &str = "controlplane";
    /// From the members of etcd: they are the control plane nodes, by host name.
    pub const MEMBERS: &str = "etcd";
}

impl Spec for Endpoint {
    const DEFINITION: Definition = open(
        "Endpoints.kubernetes.talos.dev",
        "controlplane",
        &[],
        &[column("Addresses", ".addresses"), column("Hosts", ".hosts")],
    );

    type Message = EndpointSpec;

    fn message(&self) -> EndpointSpec {
        EndpointSpec {
            addresses: self.addresses.iter().filter_map(|one| ip(one)).collect(),
            hosts: self.hosts.clone(),
        }
    }
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

    #[test]
    fn certificates_and_what_they_are_for_are_bytes() {
        let pair = PemPair {
            crt: "crt".to_owned(),
            key: Secret::new("key"),
        };
        let ca = Pem {
            crt: "ca".to_owned(),
        };
        let certificates = ApiCertificates {
            client: None,
            server: pair.clone(),
            accepted_cas: vec![ca],
            skip_verifying_client_cert: true,
        };
        let message = certificates.message();
        assert_eq!(message.client, None);
        let server = message.server.unwrap();
        assert_eq!((&*server.crt, &*server.key), (&b"crt"[..], &b"key"[..]));
        assert_eq!(message.accepted_c_as[0].crt, b"ca");
        assert!(message.skip_verifying_client_cert);
        let trustd = TrustdCertificates { server: pair };
        assert_eq!(trustd.message().server.unwrap().key, b"key");
        let sans = CertSans {
            ips: vec!["10.0.0.1".to_owned(), "::1".to_owned()],
            dns_names: vec!["node".to_owned()],
            fqdn: "node.example.org".to_owned(),
        };
        let message = sans.message();
        assert_eq!(message.i_ps[0].ip, [10, 0, 0, 1]);
        assert_eq!(message.i_ps[1].ip.len(), 16);
        assert_eq!(
            (&*message.fqdn, message.dns_names.len()),
            ("node.example.org", 1)
        );
        let endpoint = Endpoint {
            addresses: vec!["10.0.0.1".to_owned()],
            hosts: vec!["cluster".to_owned()],
        };
        let message = endpoint.message();
        assert_eq!(message.addresses[0].ip, [10, 0, 0, 1]);
        assert_eq!(message.hosts, ["cluster"]);
    }
}
