//! CAs, keys and tokens of Kubernetes and etcd.

use std::net::IpAddr;

use corten_config::Document;
use corten_config::kinds::KubeServiceAccountConfig;
use corten_kubernetes::{ControlPlane, Settings, nth};
use corten_manifests::BootstrapToken;
use corten_types::secrets::{Pem, PemPair};
use corten_types::secrets_kubernetes::{EtcdRoot, KubeletSecrets, KubernetesRoot, PemKey};
use corten_values::Secret;
use serde_json::Value;

/// Certificates of a PEM text, one by one.
fn certificates(text: &str) -> Vec<Pem> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = text.split_inclusive(END);
    let blocks = blocks.filter(|block| block.contains(END));
    let crt = |block: &str| Pem {
        crt: format!("{}\n", block.trim()),
    };
    blocks.map(crt).collect()
}

/// The bootstrap token's id and secret; both are empty if the config has no valid token.
fn token(settings: &Settings) -> (String, Secret) {
    let token = BootstrapToken::parse(&settings.token).ok();
    token.map_or_else(
        || (String::new(), Secret::default()),
        |token| (token.id().to_owned(), Secret::new(token.secret())),
    )
}

fn pair(crt: &str, key: &Secret) -> PemPair {
    PemPair {
        crt: crt.to_owned(),
        key: key.clone(),
    }
}

pub(super) fn kubelet(settings: &Settings, is_control_plane: bool) -> KubeletSecrets {
    let (bootstrap_token_id, bootstrap_token_secret) = token(settings);
    KubeletSecrets {
        endpoint: settings.server(is_control_plane),
        endpoint_tls_server_name: settings.prism_name.clone().unwrap_or_default(),
        accepted_cas: certificates(&settings.cas),
        bootstrap_token_id,
        bootstrap_token_secret,
    }
}

/// CAs that a control plane node signs with; `None` while the config lacks a CA.
pub(super) fn kubernetes(
    config: &Document,
    settings: &Settings,
    own: &ControlPlane,
) -> Option<KubernetesRoot> {
    let ca = config.kubernetes_ca()?;
    let aggregator = config.aggregator_ca()?;
    let (bootstrap_token_id, bootstrap_token_secret) = token(settings);
    let mut issuers = own.trust.issuers.iter().cloned();
    let accounts = config.all::<KubeServiceAccountConfig>().next();
    let keys = accounts.map(|accounts| accounts.accepted.public_keys.iter());
    let key = |key: &str| PemKey {
        key: Secret::new(key),
    };
    let services = settings.services.iter();
    let api_server_ips: Vec<IpAddr> = services.filter_map(|network| nth(network, 1)).collect();
    Some(KubernetesRoot {
        name: settings.cluster.clone(),
        endpoint: settings.endpoint.clone(),
        local_endpoint: settings.server(true),
        cert_sans: own.names.clone(),
        api_server_ips,
        dns_domain: settings.domain.clone(),
        issuing_ca: pair(ca.crt, ca.key),
        accepted_cas: certificates(&settings.cas),
        aggregator_ca: pair(aggregator.crt, aggregator.key),
        accepted_aggregator_cas: certificates(&format!(
            "{}\n{}",
            aggregator.crt, own.trust.aggregators
        )),
        service_account: PemKey {
            key: config.service_account_key().clone(),
        },
        service_account_accepted_keys: keys.into_iter().flatten().map(|one| key(one)).collect(),
        issuer_url: issuers.next().unwrap_or_default(),
        accepted_issuers: issuers.collect(),
        api_audiences: own.trust.audiences.clone(),
        aescbc_encryption_secret: Secret::new(own.aescbc.clone()),
        bootstrap_token_id,
        bootstrap_token_secret,
        secretbox_encryption_secret: Secret::new(own.secretbox.clone()),
        etcd_encryption_config: own.encryption.clone().unwrap_or(Value::Null),
    })
}

/// etcd's CA; `None` on a node whose config has none.
pub(super) fn etcd(config: &Document) -> Option<EtcdRoot> {
    let etcd = config.cluster.etcd.as_ref();
    let ca = etcd.and_then(|etcd| etcd.ca.as_ref())?;
    Some(EtcdRoot {
        etcd_ca: pair(&ca.crt, &ca.key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_a_bundle_are_shown_one_by_one() {
        let one = |text: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let bundle = format!("{}\n{}", one("YQ=="), one("Yg=="));
        let found: Vec<String> = certificates(&bundle)
            .into_iter()
            .map(|pem| pem.crt)
            .collect();
        assert_eq!(found, [one("YQ=="), one("Yg==")]);
        assert!(certificates("no certificate").is_empty());
    }
}
