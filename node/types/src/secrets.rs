//! The node's identity and the CAs it trusts. Most of it is secret: only administrators may read it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::common::{PemEncodedCertificate, PemEncodedCertificateAndKey};
use corten_api::talos::resource::definitions::k8s::EndpointSpec;
use corten_api::talos::resource::definitions::secrets as wire;
use corten_config::Document;
use corten_pki::CertificateAndKey;
use corten_resources::{Definition, Sensitivity, Spec};
use corten_values::Secret;
use serde::{Serialize, Serializer};

use super::message::ip;
use super::{column, open};

const NAMESPACE: &str = "secrets";

pub(super) const fn secret(type_name: &'static str) -> Definition {
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

pub(super) fn base64_secret<S: Serializer>(pem: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    base64(pem.expose(), serializer)
}

/// Serializes a secret; only for types that administrators alone may read.
pub(super) fn exposed<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

/// A PEM certificate: plain text in memory, base64 for clients, as in a machine config.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Pem {
    /// The PEM text of one certificate.
    #[serde(serialize_with = "base64")]
    pub crt: String,
}

impl Pem {
    pub(super) fn message(&self) -> PemEncodedCertificate {
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

/// A certificate and its private key, in the form of [`Pem`]. The key is empty if only the certificate is known.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PemPair {
    /// The certificate in PEM.
    #[serde(serialize_with = "base64")]
    pub crt: String,
    /// The private key in PEM.
    #[serde(serialize_with = "base64_secret")]
    pub key: Secret,
}

impl PemPair {
    pub(super) fn message(&self) -> PemEncodedCertificateAndKey {
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

/// The trust settings of the machine config; id [`OsRoot::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OsRoot {
    /// The CA that signs. A worker has it without its key, or empty.
    #[serde(rename = "issuingCA")]
    pub issuing_ca: PemPair,
    /// All trusted CAs, the signing CA first.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// Extra addresses for the API's certificate, from the config.
    #[serde(rename = "certSANIPs")]
    pub cert_san_ips: Vec<String>,
    /// Extra DNS names for the API's certificate, from the config.
    #[serde(rename = "certSANDNSNames")]
    pub cert_san_dns_names: Vec<String>,
    /// The token with which a node authenticates to trustd.
    #[serde(serialize_with = "exposed")]
    pub token: Secret,
}

impl OsRoot {
    /// Id of the only resource of this type.
    pub const ID: &str = "os";

    /// All trusted CAs as one PEM text.
    #[must_use]
    pub fn trusted_cas(&self) -> String {
        joined(&self.accepted_cas)
    }

    /// Whether this node holds the key of the signing CA.
    #[must_use]
    pub fn signs(&self) -> bool {
        !self.issuing_ca.key.is_empty()
    }
}

/// The CAs a node with this config trusts: `machine.ca`, then `machine.acceptedCAs`, without duplicates.
#[must_use]
pub fn trusted_cas(document: &Document) -> Vec<Pem> {
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

/// Joins certificates into one PEM text.
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

/// Subject alternative names of the node's certificates; id [`CertSans::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertSans {
    /// IP addresses, loopback addresses first.
    pub ips: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// Fully qualified domain name of the node.
    pub fqdn: String,
}

impl CertSans {
    /// Id of the only resource of this type.
    pub const ID: &str = "api";

    /// Whether the addresses are all loopback, so that no other machine can reach the node by them.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.ips.iter().all(|ip| {
            ip.parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
        })
    }

    /// All DNS names, then all addresses. The names a certificate must not lack come first.
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

/// Certificates of apid; id [`ApiCertificates::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiCertificates {
    /// Client certificate for other nodes, with the role `os:impersonator`; absent on a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<PemPair>,
    /// Server certificate.
    pub server: PemPair,
    /// CAs whose client certificates apid accepts.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// Whether apid accepts clients without a certificate: without a machine config no client can have one.
    pub skip_verifying_client_cert: bool,
}

impl ApiCertificates {
    /// Id of the only resource of this type.
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

/// Certificates of trustd; id [`TrustdCertificates::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustdCertificates {
    /// Server certificate.
    pub server: PemPair,
}

impl TrustdCertificates {
    /// Id of the only resource of this type.
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

/// State of one of the node's certificates, without secrets. Its id is that of the certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Issuer: `machine.ca`, `itself` in maintenance, or the control plane node whose trustd signed it.
    pub issuer: String,
    /// End of validity (RFC 3339); empty without a certificate.
    pub not_after: String,
    /// Human-readable reason why there is no certificate, or no renewed one; empty if all is well.
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

/// Endpoint of the control plane. The id names its source: [`Endpoint::STATIC`], [`Endpoint::CLUSTER`] or
/// [`Endpoint::MEMBERS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// IP addresses of the endpoint.
    pub addresses: Vec<String>,
    /// DNS names of the endpoint.
    pub hosts: Vec<String>,
    /// Port of the Kubernetes API at the addresses, if the source names it. The message has no field for it.
    #[serde(skip)]
    pub api_port: Option<u16>,
}

impl Endpoint {
    /// Id of the endpoint from `cluster.controlPlane.endpoint`.
    pub const STATIC: &str = "kube-apiserver";
    /// Id of the endpoint from the list of API servers that the cluster keeps.
    pub const CLUSTER: &str = "controlplane";
    /// Id of the endpoint from the members of etcd: all control plane nodes, with their host names.
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
    fn certificates_and_their_names_are_encoded_as_bytes() {
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
            api_port: None,
        };
        let message = endpoint.message();
        assert_eq!(message.addresses[0].ip, [10, 0, 0, 1]);
        assert_eq!(message.hosts, ["cluster"]);
    }
}
