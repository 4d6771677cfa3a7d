//! Token issuers and CAs that kube-apiserver trusts.

use corten_config::Document;
use corten_config::kinds::{KubeAggregatorCAConfig, KubeServiceAccountConfig};

/// Token issuers and CAs that kube-apiserver trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Accepted issuers of service account tokens, beginning with the cluster's own.
    pub issuers: Vec<String>,
    /// Accepted audiences of service account tokens.
    pub audiences: Vec<String>,
    /// Public keys of other issuers, in PEM.
    pub keys: String,
    /// CA certificates of the aggregation layer in addition to the cluster's own, in PEM.
    pub aggregators: String,
}

impl Trust {
    /// Reads the settings from the config.
    #[must_use]
    pub fn of(document: &Document) -> Trust {
        let aggregator = document.all::<KubeAggregatorCAConfig>();
        let aggregators = aggregator.flat_map(|config| &config.accepted_cas);
        let aggregators = joined(aggregators.map(|ca| &**ca));
        let Some(own) = document.all::<KubeServiceAccountConfig>().next() else {
            let endpoint = document.endpoint().to_owned();
            return Trust {
                issuers: vec![endpoint.clone()],
                audiences: vec![endpoint],
                keys: String::new(),
                aggregators,
            };
        };
        let mut issuers = vec![own.issuer.url.to_string()];
        issuers.extend(own.accepted.issuers.iter().map(ToString::to_string));
        issuers.dedup();
        let audiences = match own.accepted.audiences.is_empty() {
            true => vec![own.issuer.url.to_string()],
            false => own.accepted.audiences.clone(),
        };
        Trust {
            issuers,
            audiences,
            keys: joined(own.accepted.public_keys.iter().map(|key| &**key)),
            aggregators,
        }
    }
}

/// Concatenates PEM texts.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(|text| text.trim().to_owned() + "\n").collect()
}
