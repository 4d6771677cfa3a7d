//! The CAs, keys and certificates of Kubernetes and etcd. Only administrators may read them.

use std::net::IpAddr;

use corten_api::common::{PemEncodedKey, Url};
use corten_api::talos::resource::definitions::secrets as wire;
use corten_resources::{Definition, Spec};
use corten_values::Secret;
use serde::Serialize;
use serde_json::Value;

use super::message::{net_ip, object};
use super::secrets::{Pem, PemPair, base64_secret, exposed, secret};

/// A key in PEM: plain text in memory, base64 for clients, as in a machine config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PemKey {
    /// The PEM text.
    #[serde(serialize_with = "base64_secret")]
    pub key: Secret,
}

impl PemKey {
    fn message(&self) -> PemEncodedKey {
        PemEncodedKey {
            key: self.key.expose().as_bytes().to_vec(),
        }
    }
}

fn url(text: &str) -> Url {
    Url {
        full_path: text.to_owned(),
    }
}

/// CAs and keys that a control plane node trusts and signs with; id [`KubernetesRoot::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesRoot {
    /// Name of the cluster.
    pub name: String,
    /// URL of the cluster's API.
    pub endpoint: String,
    /// URL of the API for the node's own programs.
    #[serde(rename = "local_endpoint")]
    pub local_endpoint: String,
    /// Further names in the API server's certificate.
    #[serde(rename = "certSANs")]
    pub cert_sans: Vec<String>,
    /// Addresses of the API's service.
    #[serde(rename = "apiServerIPs")]
    pub api_server_ips: Vec<IpAddr>,
    /// Domain of the cluster's DNS.
    #[serde(rename = "dnsDomain")]
    pub dns_domain: String,
    /// The CA that signs.
    #[serde(rename = "issuingCA")]
    pub issuing_ca: PemPair,
    /// All trusted CAs, the signing CA first.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// The CA of the aggregation layer.
    #[serde(rename = "aggregatorCA")]
    pub aggregator_ca: PemPair,
    /// All trusted CAs of the aggregation layer, the signing CA first.
    #[serde(rename = "acceptedAggregatorCAs")]
    pub accepted_aggregator_cas: Vec<Pem>,
    /// Key that signs the tokens of service accounts.
    pub service_account: PemKey,
    /// Public keys of other issuers of such tokens.
    pub service_account_accepted_keys: Vec<PemKey>,
    /// Issuer of such tokens.
    #[serde(rename = "issuerURL")]
    pub issuer_url: String,
    /// Other accepted issuers.
    pub accepted_issuers: Vec<String>,
    /// Accepted audiences.
    pub api_audiences: Vec<String>,
    /// AES-CBC key in base64 that encrypts secrets in etcd; empty without.
    #[serde(rename = "aesCBCEncryptionSecret", serialize_with = "exposed")]
    pub aescbc_encryption_secret: Secret,
    /// Id of the bootstrap token of new kubelets.
    #[serde(rename = "bootstrapTokenID")]
    pub bootstrap_token_id: String,
    /// Secret of that token.
    #[serde(serialize_with = "exposed")]
    pub bootstrap_token_secret: Secret,
    /// Key for XSalsa20 and Poly1305 in base64 that encrypts secrets in etcd; empty without.
    #[serde(serialize_with = "exposed")]
    pub secretbox_encryption_secret: Secret,
    /// The `EncryptionConfiguration` of the config; null without.
    pub etcd_encryption_config: Value,
}

impl KubernetesRoot {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s";
}

impl Spec for KubernetesRoot {
    const DEFINITION: Definition = secret("KubernetesRootSecrets.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::KubernetesRootSpec;

    fn message(&self) -> wire::KubernetesRootSpec {
        let pems = |all: &[Pem]| all.iter().map(Pem::message).collect();
        let keys = self.service_account_accepted_keys.iter();
        wire::KubernetesRootSpec {
            name: self.name.clone(),
            endpoint: Some(url(&self.endpoint)),
            local_endpoint: Some(url(&self.local_endpoint)),
            cert_sa_ns: self.cert_sans.clone(),
            dns_domain: self.dns_domain.clone(),
            issuing_ca: Some(self.issuing_ca.message()),
            service_account: Some(self.service_account.message()),
            aggregator_ca: Some(self.aggregator_ca.message()),
            aescbc_encryption_secret: self.aescbc_encryption_secret.expose().to_owned(),
            bootstrap_token_id: self.bootstrap_token_id.clone(),
            bootstrap_token_secret: self.bootstrap_token_secret.expose().to_owned(),
            secretbox_encryption_secret: self.secretbox_encryption_secret.expose().to_owned(),
            api_server_ips: self.api_server_ips.iter().copied().map(net_ip).collect(),
            accepted_c_as: pems(&self.accepted_cas),
            etcd_encryption_config: object(&self.etcd_encryption_config),
            accepted_aggregator_c_as: pems(&self.accepted_aggregator_cas),
            service_account_accepted_keys: keys.map(PemKey::message).collect(),
            issuer_url: self.issuer_url.clone(),
            accepted_issuers: self.accepted_issuers.clone(),
            api_audiences: self.api_audiences.clone(),
        }
    }
}

/// Certificates of kube-apiserver, which are renewed while it runs; id [`KubernetesDynamicCerts::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesDynamicCerts {
    /// Server certificate.
    pub api_server: PemPair,
    /// Client certificate for kubelets.
    pub api_server_kubelet_client: PemPair,
    /// Client certificate for extension API servers.
    pub front_proxy: PemPair,
}

impl KubernetesDynamicCerts {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s-dynamic-certs";
}

impl Spec for KubernetesDynamicCerts {
    const DEFINITION: Definition = secret("KubernetesDynamicCerts.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::KubernetesDynamicCertsSpec;

    fn message(&self) -> wire::KubernetesDynamicCertsSpec {
        wire::KubernetesDynamicCertsSpec {
            api_server: Some(self.api_server.message()),
            api_server_kubelet_client: Some(self.api_server_kubelet_client.message()),
            front_proxy: Some(self.front_proxy.message()),
        }
    }
}

/// Kubeconfigs of the node's clients of the API; id [`KubernetesCerts::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesCerts {
    /// Of kube-scheduler.
    #[serde(serialize_with = "exposed")]
    pub scheduler_kubeconfig: Secret,
    /// Of kube-controller-manager.
    #[serde(serialize_with = "exposed")]
    pub controller_manager_kubeconfig: Secret,
    /// Of an administrator, for the node's own API server.
    #[serde(serialize_with = "exposed")]
    pub localhost_admin_kubeconfig: Secret,
    /// Of an administrator, for the cluster's endpoint.
    #[serde(serialize_with = "exposed")]
    pub admin_kubeconfig: Secret,
}

impl KubernetesCerts {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s-certs";
}

impl Spec for KubernetesCerts {
    const DEFINITION: Definition = secret("KubernetesSecrets.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::KubernetesCertsSpec;

    fn message(&self) -> wire::KubernetesCertsSpec {
        let text = |secret: &Secret| secret.expose().to_owned();
        wire::KubernetesCertsSpec {
            scheduler_kubeconfig: text(&self.scheduler_kubeconfig),
            controller_manager_kubeconfig: text(&self.controller_manager_kubeconfig),
            localhost_admin_kubeconfig: text(&self.localhost_admin_kubeconfig),
            admin_kubeconfig: text(&self.admin_kubeconfig),
        }
    }
}

/// Credentials with which a new kubelet joins; id [`KubeletSecrets::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletSecrets {
    /// URL of the API for the kubelet.
    pub endpoint: String,
    /// Name that the kubelet expects in the API's certificate; empty for the host of the URL.
    #[serde(
        rename = "endpointTLSServerName",
        skip_serializing_if = "String::is_empty"
    )]
    pub endpoint_tls_server_name: String,
    /// All trusted CAs of the API, the signing CA first.
    #[serde(rename = "acceptedCAs")]
    pub accepted_cas: Vec<Pem>,
    /// Id of the bootstrap token.
    #[serde(rename = "bootstrapTokenID")]
    pub bootstrap_token_id: String,
    /// Secret of that token.
    #[serde(serialize_with = "exposed")]
    pub bootstrap_token_secret: Secret,
}

impl KubeletSecrets {
    /// Id of the only resource of this type.
    pub const ID: &str = "kubelet";
}

impl Spec for KubeletSecrets {
    const DEFINITION: Definition = secret("KubeletSecrets.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::KubeletSpec;

    fn message(&self) -> wire::KubeletSpec {
        wire::KubeletSpec {
            endpoint: Some(url(&self.endpoint)),
            bootstrap_token_id: self.bootstrap_token_id.clone(),
            bootstrap_token_secret: self.bootstrap_token_secret.expose().to_owned(),
            accepted_c_as: self.accepted_cas.iter().map(Pem::message).collect(),
            endpoint_tls_server_name: self.endpoint_tls_server_name.clone(),
        }
    }
}

/// The CA of etcd; id [`EtcdRoot::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EtcdRoot {
    /// The CA.
    #[serde(rename = "etcdCA")]
    pub etcd_ca: PemPair,
}

impl EtcdRoot {
    /// Id of the only resource of this type.
    pub const ID: &str = "etcd";
}

impl Spec for EtcdRoot {
    const DEFINITION: Definition = secret("EtcdRootSecrets.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::EtcdRootSpec;

    fn message(&self) -> wire::EtcdRootSpec {
        wire::EtcdRootSpec {
            etcd_ca: Some(self.etcd_ca.message()),
        }
    }
}

/// Certificates of this node's etcd member; id [`EtcdCerts::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdCerts {
    /// Server certificate for clients.
    pub etcd: PemPair,
    /// Certificate for other members.
    pub etcd_peer: PemPair,
    /// Client certificate of machined.
    pub etcd_admin: PemPair,
    /// Client certificate of kube-apiserver.
    #[serde(rename = "etcdAPIServer")]
    pub etcd_api_server: PemPair,
}

impl EtcdCerts {
    /// Id of the only resource of this type.
    pub const ID: &str = "etcd";
}

impl Spec for EtcdCerts {
    const DEFINITION: Definition = secret("EtcdSecrets.secrets.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::EtcdCertsSpec;

    fn message(&self) -> wire::EtcdCertsSpec {
        wire::EtcdCertsSpec {
            etcd: Some(self.etcd.message()),
            etcd_peer: Some(self.etcd_peer.message()),
            etcd_admin: Some(self.etcd_admin.message()),
            etcd_api_server: Some(self.etcd_api_server.message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::Sensitivity;

    use super::*;

    fn pair() -> PemPair {
        PemPair {
            crt: "crt".to_owned(),
            key: Secret::new("hidden"),
        }
    }

    fn root() -> KubernetesRoot {
        KubernetesRoot {
            name: "c".to_owned(),
            endpoint: "https://10.0.0.1:6443".to_owned(),
            local_endpoint: "https://127.0.0.1:7445".to_owned(),
            cert_sans: Vec::new(),
            api_server_ips: vec!["10.96.0.1".parse().unwrap()],
            dns_domain: "cluster.local".to_owned(),
            issuing_ca: pair(),
            accepted_cas: vec![Pem {
                crt: "crt".to_owned(),
            }],
            aggregator_ca: pair(),
            accepted_aggregator_cas: Vec::new(),
            service_account: PemKey {
                key: Secret::new("hidden"),
            },
            service_account_accepted_keys: Vec::new(),
            issuer_url: String::new(),
            accepted_issuers: Vec::new(),
            api_audiences: Vec::new(),
            aescbc_encryption_secret: Secret::new("hidden"),
            bootstrap_token_id: "abcdef".to_owned(),
            bootstrap_token_secret: Secret::new("hidden"),
            secretbox_encryption_secret: Secret::new("hidden"),
            etcd_encryption_config: Value::Null,
        }
    }

    #[test]
    fn keys_of_kubernetes_are_for_administrators_and_never_in_debug_output() {
        for definition in [
            KubernetesRoot::DEFINITION,
            KubernetesDynamicCerts::DEFINITION,
            KubernetesCerts::DEFINITION,
            KubeletSecrets::DEFINITION,
            EtcdRoot::DEFINITION,
            EtcdCerts::DEFINITION,
        ] {
            assert_eq!(
                definition.sensitivity,
                Sensitivity::Sensitive,
                "{}",
                definition.type_name
            );
        }
        assert!(!format!("{:?}", root()).contains("hidden"));
        let certs = EtcdCerts {
            etcd: pair(),
            etcd_peer: pair(),
            etcd_admin: pair(),
            etcd_api_server: pair(),
        };
        assert!(!format!("{certs:?}").contains("hidden"));
    }

    #[test]
    fn root_of_kubernetes_has_the_fields_of_the_reference() {
        let yaml = serde_json::to_value(root()).unwrap();
        assert_eq!(yaml["local_endpoint"], "https://127.0.0.1:7445");
        assert_eq!(yaml["issuingCA"]["crt"], "Y3J0");
        assert_eq!(yaml["serviceAccount"]["key"], "aGlkZGVu");
        assert_eq!(yaml["bootstrapTokenID"], "abcdef");
        let message = root().message();
        assert_eq!(message.issuing_ca.unwrap().crt, b"crt");
        assert_eq!(message.endpoint.unwrap().full_path, "https://10.0.0.1:6443");
        assert_eq!(message.api_server_ips[0].ip, [10, 96, 0, 1]);
    }
}
