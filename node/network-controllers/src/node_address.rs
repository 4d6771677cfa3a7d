//! Selects the node's addresses.

use std::net::IpAddr;

use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_types::network::{AddressStatus, NodeAddress};
use corten_types::network_filter::NodeAddressFilter;
use corten_types::network_names::OperatorSpec;
use corten_types::prefix::Prefix;

/// The link of addresses that the platform translates. The node itself has no such link.
pub const EXTERNAL: &str = "external";

#[derive(Debug, Clone)]
pub(super) struct NodeAddresses;

impl Controller for NodeAddresses {
    fn name(&self) -> &'static str {
        "network.NodeAddressController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<AddressStatus>(Dependency::Weak),
            Input::of::<NodeAddressFilter>(Dependency::Weak),
            Input::of::<OperatorSpec>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeAddress>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let mut statuses = context.list::<AddressStatus>()?;
            let current = reachable(&statuses);
            // Others reach the node by external addresses, but the node itself does not have them.
            statuses.retain(|status| status.link_name != EXTERNAL);
            // Another node may have a shared address next.
            let shared: Vec<String> = shared(&context.list::<OperatorSpec>()?);
            statuses.retain(|status| !shared.contains(&status.address));
            let own = reachable(&statuses);
            let before = |id| {
                let found = context.get::<NodeAddress>(id)?;
                Ok::<_, Failure>(
                    found
                        .map(|found| found.addresses.clone())
                        .unwrap_or_default(),
                )
            };
            let default = choose(&before(NodeAddress::DEFAULT)?, &own);
            let mut all = before(NodeAddress::ACCUMULATIVE)?;
            all.extend(
                current
                    .iter()
                    .filter(|new| !all.contains(new))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            sort(&mut all);
            let selections = [
                (NodeAddress::DEFAULT, default),
                (NodeAddress::ROUTED, routed(&own)),
                (NodeAddress::CURRENT, current),
                (NodeAddress::ACCUMULATIVE, all),
            ];
            let filters = context.list::<NodeAddressFilter>()?;
            context.start_outputs();
            for (id, addresses) in selections {
                // The one default address is not a selection to filter.
                for filter in filters.iter().filter(|_| id != NodeAddress::DEFAULT) {
                    let name = &filter.metadata().pointer.id;
                    let id = NodeAddressFilter::filtered(id, name);
                    context.put(Draft::new(&id, sorted(passing(filter, &addresses))))?;
                }
                context.put(Draft::new(id, sorted(addresses)))?;
            }
            context.remove_others::<NodeAddress>()?;
        }
    }
}

/// The addresses that this node shares with others, with their prefixes.
fn shared(operators: &[Typed<OperatorSpec>]) -> Vec<String> {
    let shared = operators.iter().filter_map(|operator| operator.shared);
    shared
        .map(|shared| Prefix::host(shared).to_string())
        .collect()
}

fn sorted(addresses: Vec<String>) -> NodeAddress {
    NodeAddress {
        addresses,
        sort_algorithm: "v1",
    }
}

/// The addresses that pass a filter.
fn passing(filter: &NodeAddressFilter, addresses: &[String]) -> Vec<String> {
    let passes = |text: &&String| {
        let address = text.split('/').next().and_then(|ip| ip.parse().ok());
        address.is_some_and(|address| filter.passes(address))
    };
    addresses.iter().filter(passes).cloned().collect()
}

/// Addresses by which others can reach the node. A tentative address may still turn out to be a duplicate.
fn reachable(statuses: &[Typed<AddressStatus>]) -> Vec<String> {
    let unusable = |flag: &str| ["tentative", "dadfailed", "deprecated"].contains(&flag);
    let mut addresses: Vec<String> = statuses
        .iter()
        .filter(|status| status.scope == "global" && !status.flags.split(',').any(unusable))
        .map(|status| status.address.clone())
        .collect();
    sort(&mut addresses);
    addresses.dedup();
    addresses
}

/// Addresses without host prefixes.
fn routed(current: &[String]) -> Vec<String> {
    let has_network = |address: &&String| {
        let whole = if address.contains(':') { "/128" } else { "/32" };
        !address.ends_with(whole)
    };
    current.iter().filter(has_network).cloned().collect()
}

/// Sorts by family, IPv4 first, then by number.
fn sort(addresses: &mut [String]) {
    addresses.sort_by_cached_key(|text| {
        let address = text
            .split('/')
            .next()
            .and_then(|ip| ip.parse::<IpAddr>().ok());
        (
            address.is_none_or(|address| address.is_ipv6()),
            address,
            text.clone(),
        )
    });
}

/// The previous choice if it is still present, otherwise the first address.
fn choose(before: &[String], current: &[String]) -> Vec<String> {
    let kept = before.iter().find(|address| current.contains(address));
    kept.or(current.first()).cloned().into_iter().collect()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn default_address_is_stable() {
        let all = ["10.0.0.2/24".to_owned(), "10.0.0.9/24".to_owned()];
        assert_eq!(choose(&[], &all), all[..1]);
        assert_eq!(choose(&all[1..], &all), all[1..]);
        assert_eq!(choose(&all[1..], &all[..1]), all[..1]);
        assert!(choose(&all, &[]).is_empty());
    }

    #[test]
    fn filtered_addresses_keep_their_prefixes() {
        let filter = NodeAddressFilter {
            exclude_subnets: vec![Prefix::parse("10.244.0.0/16").unwrap()],
            ..NodeAddressFilter::default()
        };
        let all = ["10.0.2.15/24", "10.244.0.1/24"].map(str::to_owned);
        assert_eq!(passing(&filter, &all), ["10.0.2.15/24"]);
    }

    #[test]
    fn single_host_address_is_not_routed() {
        let all = [
            "10.0.0.2/24",
            "169.254.116.108/32",
            "fd00::1/64",
            "fd00::2/128",
        ];
        assert_eq!(
            routed(&all.map(str::to_owned)),
            ["10.0.0.2/24", "fd00::1/64"]
        );
    }

    #[test]
    fn addresses_sort_by_family_and_number() {
        let mut all: Vec<String> = ["fd00::1/64", "10.0.0.10/24", "10.0.0.9/24"]
            .map(str::to_owned)
            .to_vec();
        sort(&mut all);
        assert_eq!(all, ["10.0.0.9/24", "10.0.0.10/24", "fd00::1/64"]);
    }
}
