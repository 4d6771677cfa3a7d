//! Filters and order of the node's addresses.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::net_prefix;
use super::names::{SORT_ALGORITHMS, number};
use super::network::NAMESPACE;
use super::prefix::Prefix;
use super::{column, open};

/// A filter of the node's addresses. For each filter there are further selections of addresses
/// ([`NodeAddressFilter::filtered`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddressFilter {
    /// Networks of the selected addresses; empty for all.
    pub include_subnets: Vec<Prefix>,
    /// Networks whose addresses are never selected.
    pub exclude_subnets: Vec<Prefix>,
}

impl NodeAddressFilter {
    /// Id of the filter that selects addresses outside the networks of pods and services.
    pub const NO_KUBERNETES: &str = "no-k8s";
    /// Id of the filter that selects addresses in the networks of pods and services.
    pub const ONLY_KUBERNETES: &str = "only-k8s";

    /// Id of the addresses `selection` that pass the filter `filter`.
    #[must_use]
    pub fn filtered(selection: &str, filter: &str) -> String {
        format!("{selection}-{filter}")
    }

    /// Whether an address passes.
    #[must_use]
    pub fn passes(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[Prefix]| networks.iter().any(|network| network.contains(address));
        (self.include_subnets.is_empty() || is_in(&self.include_subnets))
            && !is_in(&self.exclude_subnets)
    }
}

impl Spec for NodeAddressFilter {
    const DEFINITION: Definition = open(
        "NodeAddressFilters.net.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Include Subnets", ".includeSubnets"),
            column("Exclude Subnets", ".excludeSubnets"),
        ],
    );

    type Message = wire::NodeAddressFilterSpec;

    fn message(&self) -> wire::NodeAddressFilterSpec {
        let all = |networks: &[Prefix]| networks.iter().copied().map(net_prefix).collect();
        wire::NodeAddressFilterSpec {
            include_subnets: all(&self.include_subnets),
            exclude_subnets: all(&self.exclude_subnets),
        }
    }
}

/// Order of the node's addresses; id [`NodeAddressSortAlgorithm::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeAddressSortAlgorithm {
    /// `v1` orders by address, `v2` prefers the longer of two nested prefixes.
    pub algorithm: &'static str,
}

impl NodeAddressSortAlgorithm {
    /// Id of the only resource of this type.
    pub const ID: &str = "default";
}

impl Spec for NodeAddressSortAlgorithm {
    const DEFINITION: Definition = open(
        "NodeAddressSortAlgorithms.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Algorithm", ".algorithm")],
    );

    type Message = wire::NodeAddressSortAlgorithmSpec;

    fn message(&self) -> wire::NodeAddressSortAlgorithmSpec {
        wire::NodeAddressSortAlgorithmSpec {
            algorithm: number(self.algorithm, SORT_ALGORITHMS).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_the_numbers_of_the_reference() {
        for (algorithm, number) in [("v1", 0), ("v2", 1)] {
            let message = NodeAddressSortAlgorithm { algorithm }.message();
            assert_eq!(message.algorithm, number);
        }
    }

    #[test]
    fn filter_selects_included_addresses_except_excluded_ones() {
        let networks = |texts: &[&str]| {
            let networks = texts.iter().map(|text| Prefix::parse(text).unwrap());
            networks.collect::<Vec<Prefix>>()
        };
        let filter = NodeAddressFilter {
            include_subnets: networks(&["10.0.0.0/8", "fd00::/8"]),
            exclude_subnets: networks(&["10.244.0.0/16"]),
        };
        for (address, passes) in [
            ("10.0.2.15", true),
            ("10.244.1.1", false),
            ("192.168.0.1", false),
            ("fd00::1", true),
        ] {
            assert_eq!(filter.passes(address.parse().unwrap()), passes, "{address}");
        }
        assert!(NodeAddressFilter::default().passes("::1".parse().unwrap()));
        assert_eq!(filter.message().exclude_subnets[0].prefix_length, 16);
    }
}
