//! Whose tokens and calls kube-apiserver believes.

use corten_config::Document;
use corten_config::kinds::{KubeAggregatorCAConfig, KubeServiceAccountConfig};

/// Whose tokens and calls kube-apiserver believes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Who service account tokens may be from: the cluster itself first.
    pub issuers: Vec<String>,
    /// Whom they may be for.
    pub audiences: Vec<String>,
    /// Keys that check tokens of others, PEM.
    pub keys: String,
    /// Authorities of the aggregation layer beside the cluster's own, PEM.
    pub aggregators: String,
}

impl Trust {
    /// What the config says.
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

/// PEM texts one behind the other.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(|text| text.trim().to_owned() + "\n").collect()
}
