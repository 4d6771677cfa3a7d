//! Selects the node's addresses.

use std::collections::BTreeSet;

use corten_network::host_dns::SERVICE_V6;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_types::network::{AddressStatus, LinkStatus, NodeAddress};
use corten_types::network_filter::{NodeAddressFilter, NodeAddressSortAlgorithm};
use corten_types::network_names::OperatorSpec;
use corten_types::prefix::Prefix;

use super::address_order::sort;

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
            Input::of::<LinkStatus>(Dependency::Weak),
            Input::of::<NodeAddressFilter>(Dependency::Weak),
            Input::of::<NodeAddressSortAlgorithm>(Dependency::Weak)
                .with_id(NodeAddressSortAlgorithm::ID),
            Input::of::<OperatorSpec>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeAddress>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let algorithm =
                context.get::<NodeAddressSortAlgorithm>(NodeAddressSortAlgorithm::ID)?;
            let Some(algorithm) = algorithm.map(|chosen| chosen.algorithm) else {
                continue;
            };
            let found = Found {
                addresses: usable(&context.list::<AddressStatus>()?),
                up: up(&context.list::<LinkStatus>()?),
                shared: shared(&context.list::<OperatorSpec>()?),
            };
            let before = Before {
                default: context.get::<NodeAddress>(NodeAddress::DEFAULT)?,
                accumulative: context.get::<NodeAddress>(NodeAddress::ACCUMULATIVE)?,
            };
            let filters = context.list::<NodeAddressFilter>()?;
            context.start_outputs();
            let shown = |addresses: &[Prefix]| NodeAddress {
                addresses: addresses.iter().map(Prefix::to_string).collect(),
                sort_algorithm: algorithm,
            };
            if let Some(default) = found.default(&before, algorithm) {
                context.put(Draft::new(NodeAddress::DEFAULT, shown(&[default])))?;
            }
            let selections = [
                (NodeAddress::ROUTED, found.routed(algorithm)),
                (NodeAddress::CURRENT, found.current(algorithm)),
                (
                    NodeAddress::ACCUMULATIVE,
                    found.accumulative(&before, algorithm),
                ),
            ];
            for (id, addresses) in selections {
                for filter in &filters {
                    let id = NodeAddressFilter::filtered(id, &filter.metadata().pointer.id);
                    let mut passing = addresses.clone();
                    passing.retain(|one| filter.passes(one.address));
                    context.put(Draft::new(&id, shown(&passing)))?;
                }
                context.put(Draft::new(id, shown(&addresses)))?;
            }
            context.remove_others::<NodeAddress>()?;
        }
    }
}

/// The addresses that the controller has shown until now.
#[derive(Debug)]
struct Before {
    default: Option<Typed<NodeAddress>>,
    accumulative: Option<Typed<NodeAddress>>,
}

/// The machine's addresses.
#[derive(Debug)]
struct Found {
    /// Each with the name and the index of its link.
    addresses: Vec<(String, u32, Prefix)>,
    /// Indices of the links that carry packets.
    up: BTreeSet<u32>,
    /// Addresses that another node may have next.
    shared: Vec<Prefix>,
}

impl Found {
    /// Addresses at which others reach the node now.
    fn current(&self, algorithm: &str) -> Vec<Prefix> {
        let addresses = self.addresses.iter();
        let current =
            addresses.filter(|(link, index, _)| link == EXTERNAL || self.up.contains(index));
        sort(current.map(|(_, _, address)| *address).collect(), algorithm)
    }

    /// The current addresses without external and shared ones.
    fn routed(&self, algorithm: &str) -> Vec<Prefix> {
        let own = self.own().filter(|(_, index, _)| self.up.contains(index));
        sort(own.map(|(_, _, address)| *address).collect(), algorithm)
    }

    /// All addresses since boot.
    fn accumulative(&self, before: &Before, algorithm: &str) -> Vec<Prefix> {
        let before = before.accumulative.iter().flat_map(|shown| prefixes(shown));
        let now = self.addresses.iter().map(|(_, _, address)| *address);
        sort(before.chain(now).collect(), algorithm)
    }

    /// The previous default address, while it is current and the algorithm the same; otherwise the first one of the
    /// first link by name.
    fn default(&self, before: &Before, algorithm: &str) -> Option<Prefix> {
        let kept = before.default.iter();
        let kept = kept.filter(|shown| shown.sort_algorithm == algorithm);
        let current = self.current(algorithm);
        let mut kept = kept.flat_map(|shown| prefixes(shown));
        if let Some(kept) = kept.find(|address| current.contains(address)) {
            return Some(kept);
        }
        let first = self.own().map(|(link, ..)| link).min()?;
        let addresses = self.own().filter(|(link, ..)| link == first);
        let addresses = sort(
            addresses.map(|(_, _, address)| *address).collect(),
            algorithm,
        );
        addresses.first().copied()
    }

    /// Addresses that only this node has, on any of its links.
    fn own(&self) -> impl Iterator<Item = &(String, u32, Prefix)> {
        let addresses = self.addresses.iter();
        addresses.filter(|(link, _, address)| link != EXTERNAL && !self.shared.contains(address))
    }
}

fn prefixes(shown: &NodeAddress) -> impl Iterator<Item = Prefix> {
    let addresses = shown.addresses.iter();
    addresses.filter_map(|text| Prefix::parse(text))
}

/// Addresses by which other machines may reach the node. A tentative address may still turn out to be a duplicate.
fn usable(statuses: &[Typed<AddressStatus>]) -> Vec<(String, u32, Prefix)> {
    let useless = |flag: &str| ["tentative", "dadfailed", "deprecated"].contains(&flag);
    let statuses = statuses.iter().filter(|status| {
        !["link", "host", "nowhere"].contains(&status.scope)
            && !status.flags.split(',').any(useless)
    });
    let all = statuses.filter_map(|status| {
        let address = Prefix::parse(&status.address).filter(|address| is_reachable(*address))?;
        Some((status.link_name.clone(), status.link_index, address))
    });
    all.collect()
}

/// Whether other machines can reach an address. They do not reach the address of the node's DNS cache, although it has a
/// global number.
fn is_reachable(Prefix { address, .. }: Prefix) -> bool {
    let is_link_local = match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_link_local
        && !address.is_loopback()
        && !address.is_multicast()
        && address != std::net::IpAddr::from(SERVICE_V6)
}

/// Indices of the links that carry packets. The kernel does not know the state of some virtual links.
fn up(links: &[Typed<LinkStatus>]) -> BTreeSet<u32> {
    let links = links.iter().filter(|link| {
        ["up", "unknown"].contains(&link.operational_state)
            && (!link.is_physical() || link.link_state)
    });
    links.map(|link| link.index).collect()
}

/// The addresses that this node shares with others.
fn shared(operators: &[Typed<OperatorSpec>]) -> Vec<Prefix> {
    let shared = operators.iter().filter_map(|operator| operator.shared);
    shared.map(Prefix::host).collect()
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Spec, Store};

    use super::*;

    /// A node whose controller runs.
    struct Machine(Store);

    impl Machine {
        fn new(algorithm: &'static str) -> Machine {
            let store = Store::new();
            let mut runtime = Runtime::new(store.clone());
            runtime.add(NodeAddresses).unwrap();
            let machine = Machine(store);
            machine.sort_by(algorithm);
            machine.link("eth0", 2, "up");
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            machine
        }

        fn put<S: Spec>(&self, id: &str, spec: S) {
            self.0.put(Draft::new(id, spec), "").unwrap();
        }

        fn sort_by(&self, algorithm: &'static str) {
            let algorithm = NodeAddressSortAlgorithm { algorithm };
            self.put(NodeAddressSortAlgorithm::ID, algorithm);
        }

        fn link(&self, name: &str, index: u32, operational_state: &'static str) {
            let link = LinkStatus {
                index,
                operational_state,
                ..LinkStatus::with_device()
            };
            self.put(name, link);
        }

        fn address(&self, link: &str, link_index: u32, address: &str, scope: &'static str) {
            let status = AddressStatus {
                address: address.to_owned(),
                local: String::new(),
                broadcast: String::new(),
                link_index,
                link_name: link.to_owned(),
                family: "inet4",
                scope,
                flags: "permanent".to_owned(),
            };
            self.put(&format!("{link}/{address}"), status);
        }

        fn global(&self, addresses: &[&str]) {
            for address in addresses {
                self.address("eth0", 2, address, "global");
            }
        }

        async fn shows(&self, id: &str, expected: &[&str]) {
            sample::until(&self.0, id, |shown: Option<&NodeAddress>| {
                shown.is_some_and(|shown| shown.addresses == expected)
            })
            .await;
        }
    }

    #[tokio::test]
    async fn single_host_address_is_routed_and_unreachable_addresses_are_not() {
        let machine = Machine::new("v1");
        machine.global(&["10.0.0.5/24", "10.0.0.9/32", "fd00::2/128"]);
        // The addresses of the DNS cache for pods, and of the loopback.
        for address in [
            "169.254.116.108/32",
            "fd54:616c:6f73:0:204f:5320:444e:531/128",
            "127.0.0.1/8",
        ] {
            machine.address("lo", 2, address, "global");
        }
        machine.address("eth0", 2, "fe80::1/64", "link");
        let expected = ["10.0.0.5/24", "10.0.0.9/32", "fd00::2/128"];
        for id in [
            NodeAddress::ROUTED,
            NodeAddress::CURRENT,
            NodeAddress::ACCUMULATIVE,
        ] {
            machine.shows(id, &expected).await;
        }
    }

    #[tokio::test]
    async fn routed_addresses_are_sorted_by_the_algorithm() {
        let machine = Machine::new("v1");
        machine.global(&["10.0.0.5/32", "10.0.0.3/24"]);
        let routed = NodeAddress::ROUTED;
        machine.shows(routed, &["10.0.0.3/24", "10.0.0.5/32"]).await;
        machine.sort_by("v2");
        machine.shows(routed, &["10.0.0.5/32", "10.0.0.3/24"]).await;
        machine.shows(NodeAddress::DEFAULT, &["10.0.0.5/32"]).await;
    }

    #[tokio::test]
    async fn address_of_a_link_that_is_down_is_not_current() {
        let machine = Machine::new("v1");
        machine.link("eth1", 3, "down");
        machine.global(&["10.0.0.5/24"]);
        machine.address("eth1", 3, "10.1.0.5/24", "global");
        let both = ["10.0.0.5/24", "10.1.0.5/24"];
        machine.shows(NodeAddress::ACCUMULATIVE, &both).await;
        machine.shows(NodeAddress::CURRENT, &both[..1]).await;
        machine.link("eth1", 3, "up");
        machine.shows(NodeAddress::CURRENT, &both).await;
        machine.shows(NodeAddress::ROUTED, &both).await;
    }

    #[tokio::test]
    async fn external_address_is_current_and_not_routed() {
        let machine = Machine::new("v1");
        machine.global(&["10.0.0.5/24"]);
        machine.address(EXTERNAL, 0, "1.3.5.7/32", "global");
        let current = ["1.3.5.7/32", "10.0.0.5/24"];
        machine.shows(NodeAddress::CURRENT, &current).await;
        machine.shows(NodeAddress::ROUTED, &current[1..]).await;
        machine.shows(NodeAddress::DEFAULT, &current[1..]).await;
    }

    #[tokio::test]
    async fn default_address_stays_while_the_node_has_it() {
        let machine = Machine::new("v1");
        machine.global(&["10.0.0.5/24"]);
        machine.shows(NodeAddress::DEFAULT, &["10.0.0.5/24"]).await;
        machine.global(&["10.0.0.1/24"]);
        let both = ["10.0.0.1/24", "10.0.0.5/24"];
        machine.shows(NodeAddress::ROUTED, &both).await;
        machine.shows(NodeAddress::DEFAULT, &["10.0.0.5/24"]).await;
        let gone = corten_resources::Pointer::of::<AddressStatus>("eth0/10.0.0.5/24");
        machine.0.destroy(&gone, "").unwrap();
        machine.shows(NodeAddress::DEFAULT, &["10.0.0.1/24"]).await;
        machine.shows(NodeAddress::ACCUMULATIVE, &both).await;
    }

    #[tokio::test]
    async fn filtered_addresses_keep_their_prefixes() {
        let machine = Machine::new("v1");
        machine.global(&["10.0.2.15/24", "10.244.0.1/24"]);
        let filter = NodeAddressFilter {
            exclude_subnets: vec![Prefix::parse("10.244.0.0/16").unwrap()],
            ..NodeAddressFilter::default()
        };
        machine.put("no-pods", filter);
        machine.shows("routed-no-pods", &["10.0.2.15/24"]).await;
        machine.shows("current-no-pods", &["10.0.2.15/24"]).await;
    }
}
