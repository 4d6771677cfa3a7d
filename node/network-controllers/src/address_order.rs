//! The order of the node's addresses.

use std::cmp::Ordering;

use corten_config::Document;
use corten_config::v1alpha1::SortAlgorithm as Choice;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::network_filter::NodeAddressSortAlgorithm;
use corten_types::prefix::Prefix;
use tokio::sync::watch;

const V1: &str = "v1";
const V2: &str = "v2";

/// Shows the order that the config chooses.
#[derive(Debug, Clone)]
pub(super) struct SortAlgorithm {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for SortAlgorithm {
    fn name(&self) -> &'static str {
        "network.NodeAddressSortAlgorithmController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeAddressSortAlgorithm>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
            }
            let choice = {
                let config = self.config.borrow_and_update();
                let config = config.as_ref();
                config.and_then(|config| config.machine.features.node_address_sort_algorithm)
            };
            context.start_outputs();
            let algorithm = match choice {
                None | Some(Choice::V1) => V1,
                Some(Choice::V2) => V2,
            };
            let shown = NodeAddressSortAlgorithm { algorithm };
            context.put(Draft::new(NodeAddressSortAlgorithm::ID, shown))?;
        }
    }
}

/// Sorts addresses, IPv4 first, and removes duplicates.
pub(super) fn sort(mut addresses: Vec<Prefix>, algorithm: &str) -> Vec<Prefix> {
    addresses.sort_unstable();
    addresses.dedup();
    if algorithm != V2 {
        return addresses;
    }
    // The comparison is no order: three overlapping networks may form a circle, which no sort of the standard library
    // accepts. Few addresses move, because they are sorted already.
    let mut sorted: Vec<Prefix> = Vec::with_capacity(addresses.len());
    for address in addresses {
        let before = |other: &Prefix| most_specific_first(*other, address) != Ordering::Greater;
        let at = sorted.iter().rposition(before).map_or(0, |last| last + 1);
        sorted.insert(at, address);
    }
    sorted
}

/// The comparison of `v2`: of two nested prefixes the longer one comes first.
fn most_specific_first(a: Prefix, b: Prefix) -> Ordering {
    if a.address == b.address {
        return b.length.cmp(&a.length);
    }
    match (a.contains(b.address), b.contains(a.address)) {
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        _ => a.address.cmp(&b.address),
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    fn sorted(texts: &[&str], algorithm: &str) -> Vec<String> {
        let prefixes = texts.iter().map(|text| Prefix::parse(text).unwrap());
        let prefixes = sort(prefixes.collect(), algorithm);
        prefixes.iter().map(Prefix::to_string).collect()
    }

    /// Checks the order of a list, in several orders of the input.
    fn check(algorithm: &str, expected: &[&str]) {
        for turn in 0..expected.len() {
            let mut given = expected.to_vec();
            given.rotate_left(turn);
            assert_eq!(sorted(&given, algorithm), expected, "{given:?}");
            given.reverse();
            assert_eq!(sorted(&given, algorithm), expected, "{given:?}");
        }
    }

    #[test]
    fn v1_orders_by_family_number_and_length() {
        check(
            V1,
            &[
                "9.0.0.1/8",
                "10.0.0.9/24",
                "10.0.0.10/24",
                "10.0.0.10/32",
                "fd00::1/64",
                "fd00::1/128",
            ],
        );
    }

    #[test]
    fn v2_prefers_the_longer_of_nested_prefixes() {
        check(
            V2,
            &[
                "9.0.0.1/8",
                "10.3.4.5/32",
                "10.3.4.1/24",
                "10.3.4.5/24",
                "172.16.0.1/24",
                "fd00::2/128",
                "fd00::1/64",
                "fd00::3/64",
            ],
        );
    }

    #[test]
    fn v2_orders_networks_that_form_a_circle_the_same_each_time() {
        let circle = ["10.0.0.5/8", "10.0.0.9/24", "10.1.0.1/16"];
        let once = sorted(&circle, V2);
        for turn in 1..3 {
            let mut given = circle;
            given.rotate_left(turn);
            assert_eq!(sorted(&given, V2), once);
        }
    }

    #[test]
    fn equal_addresses_are_listed_once() {
        for algorithm in [V1, V2] {
            let given = ["10.0.0.1/24", "10.0.0.1/24"];
            assert_eq!(sorted(&given, algorithm), ["10.0.0.1/24"]);
        }
    }

    #[tokio::test]
    async fn config_chooses_the_algorithm() {
        let store = Store::new();
        let config = watch::Sender::new(None);
        let mut runtime = Runtime::new(store.clone());
        runtime
            .add(SortAlgorithm {
                config: config.subscribe(),
            })
            .unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |algorithm: &str| {
            let id = NodeAddressSortAlgorithm::ID;
            sample::until(&store, id, |shown: Option<&NodeAddressSortAlgorithm>| {
                shown.is_some_and(|shown| shown.algorithm == algorithm)
            })
            .await;
        };
        shows(V1).await;
        for (features, algorithm) in [("{nodeAddressSortAlgorithm: v2}", V2), ("{}", V1)] {
            config.send_replace(Some(sample::config(&format!("features: {features}"), "")));
            shows(algorithm).await;
        }
    }
}
