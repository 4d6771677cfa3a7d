//! Certificates of a control plane node.

use std::time::{Duration, SystemTime};

use corten_config::{Document, IssuingCa};
use corten_pki::{Ca, CertificateAndKey, Leaf, PkiError, Usage};

use crate::{ControlPlane, Facts, Settings, nth};

/// Validity of Kubernetes certificates: one year; they are renewed at half of it.
pub const LIFETIME: Duration = Duration::from_secs(8_760 * 60 * 60);

/// Failure to issue certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The config has no CA with a key.
    #[error(
        "{0} has no certificate and key in the machine config; a control plane node signs certificates with them"
    )]
    NoCa(&'static str),
    /// A CA of the config is invalid, or a name is.
    #[error("{0}")]
    Pki(&'static str, #[source] PkiError),
}

/// CAs of the config that sign on a control plane node.
#[derive(Debug)]
pub struct Cas {
    /// CA of the Kubernetes API.
    pub kubernetes: Ca,
    /// CA of the aggregation layer.
    pub aggregator: Ca,
    /// CA of etcd.
    pub etcd: Ca,
}

impl Cas {
    /// Reads the CAs from the config.
    ///
    /// # Errors
    /// A CA is missing, or cannot sign.
    pub fn of(document: &Document) -> Result<Cas, CertificateError> {
        Ok(Cas {
            kubernetes: kubernetes_ca(document)?,
            aggregator: signs("cluster.aggregatorCA", document.aggregator_ca())?,
            etcd: etcd_ca(document)?,
        })
    }
}

/// Reads only the CA of the Kubernetes API.
///
/// # Errors
/// The CA is missing, or cannot sign.
pub fn kubernetes_ca(document: &Document) -> Result<Ca, CertificateError> {
    signs("cluster.ca", document.kubernetes_ca())
}

/// Reads only etcd's CA.
///
/// # Errors
/// The CA is missing, or cannot sign.
pub fn etcd_ca(document: &Document) -> Result<Ca, CertificateError> {
    let field = "cluster.etcd.ca";
    let etcd = document.cluster.etcd.as_ref();
    let ca = etcd.and_then(|etcd| etcd.ca.as_ref());
    signs(
        field,
        ca.map(|ca| IssuingCa {
            field,
            crt: &ca.crt,
            key: &ca.key,
        }),
    )
}

fn signs(field: &'static str, ca: Option<IssuingCa<'_>>) -> Result<Ca, CertificateError> {
    let ca = ca.filter(|ca| !ca.crt.is_empty() && !ca.key.is_empty());
    let ca = ca.ok_or(CertificateError::NoCa(field))?;
    let field = ca.field;
    Ca::from_pem(ca.crt, ca.key.expose()).map_err(|error| CertificateError::Pki(field, error))
}

/// Certificates of the control plane components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// Server certificate of kube-apiserver.
    pub api_server: CertificateAndKey,
    /// Client certificate of kube-apiserver for kubelets.
    pub kubelet_client: CertificateAndKey,
    /// Client certificate of kube-apiserver for extension API servers.
    pub front_proxy: CertificateAndKey,
    /// Client certificate of kube-controller-manager for kube-apiserver.
    pub controller_manager: CertificateAndKey,
    /// Client certificate of kube-scheduler for kube-apiserver.
    pub scheduler: CertificateAndKey,
}

impl Certificates {
    /// Issues all certificates.
    ///
    /// # Errors
    /// A name of the API is neither an address nor a DNS name, or `now` is out of range.
    pub fn issue(
        cas: &Cas,
        names: &[String],
        now: SystemTime,
    ) -> Result<Certificates, CertificateError> {
        let client = |ca: &Ca, common_name: &str, organizations: &[&str]| {
            let leaf = Leaf {
                common_name,
                organizations,
                names: &[],
                usage: Usage::Client,
            };
            ca.leaf(&leaf, now, LIFETIME)
                .map_err(|error| CertificateError::Pki("certificates of Kubernetes", error))
        };
        let server = Leaf {
            common_name: "kube-apiserver",
            organizations: &["kube-master"],
            names,
            usage: Usage::Server,
        };
        let kubernetes = &cas.kubernetes;
        let component = |name: &str| client(kubernetes, name, &[name]);
        Ok(Certificates {
            api_server: kubernetes
                .leaf(&server, now, LIFETIME)
                .map_err(|error| CertificateError::Pki("cluster.apiServer.certSANs", error))?,
            kubelet_client: client(kubernetes, "apiserver-kubelet-client", &["system:masters"])?,
            front_proxy: client(&cas.aggregator, "front-proxy-client", &[])?,
            controller_manager: component("system:kube-controller-manager")?,
            scheduler: component("system:kube-scheduler")?,
        })
    }
}

/// Validity of an administrator's certificate: a year, unless the config says otherwise.
#[must_use]
pub fn admin_lifetime(document: &Document) -> Duration {
    let own = document.cluster.admin_kubeconfig.as_ref();
    own.and_then(|own| own.cert_lifetime).unwrap_or(LIFETIME)
}

/// Issues a certificate for the cluster's administrator, valid for `lifetime`.
///
/// # Errors
/// `now` is out of range.
pub fn admin_certificate(
    ca: &Ca,
    now: SystemTime,
    lifetime: Duration,
) -> Result<CertificateAndKey, CertificateError> {
    let leaf = Leaf {
        common_name: "admin",
        organizations: &["system:masters"],
        names: &[],
        usage: Usage::Client,
    };
    ca.leaf(&leaf, now, lifetime)
        .map_err(|error| CertificateError::Pki("the administrator's certificate", error))
}

/// User name of a node's kubelet (Kubernetes, Node authorization).
#[must_use]
pub fn kubelet_user(nodename: &str) -> String {
    format!("system:node:{nodename}")
}

/// Issues the client certificate of a node's kubelet.
///
/// # Errors
/// `now` is out of range.
pub fn kubelet_certificate(
    ca: &Ca,
    nodename: &str,
    now: SystemTime,
) -> Result<CertificateAndKey, CertificateError> {
    let leaf = Leaf {
        common_name: &kubelet_user(nodename),
        organizations: &["system:nodes"],
        names: &[],
        usage: Usage::Client,
    };
    ca.leaf(&leaf, now, LIFETIME)
        .map_err(|error| CertificateError::Pki("the kubelet's certificate", error))
}

/// All names and addresses of the Kubernetes API on this node, without duplicates.
#[must_use]
pub fn api_names(settings: &Settings, control_plane: &ControlPlane, facts: &Facts) -> Vec<String> {
    let domain = &settings.domain;
    let mut names = vec![
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        format!("kubernetes.default.svc.{domain}"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
        facts.hostname.clone(),
        facts.fqdn.clone(),
        host(&settings.endpoint).to_owned(),
    ];
    names.extend(control_plane.names.iter().cloned());
    names.extend(facts.addresses.iter().map(ToString::to_string));
    let networks = settings.services.iter();
    let first = networks.filter_map(|network| nth(network, 1));
    names.extend(first.map(|address| address.to_string()));
    names.retain(|name| !name.is_empty());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// Host of a URL, without brackets.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    authority.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_host_is_parsed_with_and_without_port_and_brackets() {
        for (url, expected) in [
            ("https://10.0.0.1:6443", "10.0.0.1"),
            ("https://[fd00::1]:6443/", "fd00::1"),
            ("https://cp.example.com", "cp.example.com"),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
