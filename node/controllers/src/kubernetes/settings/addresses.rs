//! Tells addresses in the networks of pods and services from the node's own.

use corten_config::Document;
use corten_kubernetes::Settings;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes_node::NodeStatus;
use corten_types::network_filter::NodeAddressFilter;
use corten_types::prefix::Prefix;
use tokio::sync::watch;

use super::super::next;

#[derive(Debug, Clone)]
pub(super) struct AddressFilters {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for AddressFilters {
    fn name(&self) -> &'static str {
        "k8s.AddressFilterController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<NodeStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeAddressFilter>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
            let nodes = context.list::<NodeStatus>()?;
            context.start_outputs();
            if let Some(settings) = settings {
                let own = settings.pods.iter().chain(&settings.services);
                let own = own.map(ToString::to_string);
                let given = nodes.iter().flat_map(|node| node.pod_cidrs.iter().cloned());
                let networks = own.chain(given).filter_map(|text| Prefix::parse(&text));
                let mut networks: Vec<Prefix> = networks.collect();
                networks.dedup();
                let [no, only] = filters(networks);
                context.put(Draft::new(NodeAddressFilter::NO_KUBERNETES, no))?;
                context.put(Draft::new(NodeAddressFilter::ONLY_KUBERNETES, only))?;
            }
            context.remove_others::<NodeAddressFilter>()?;
        }
    }
}

/// The filter of the node's own addresses, and of those in the networks of pods and services.
fn filters(networks: Vec<Prefix>) -> [NodeAddressFilter; 2] {
    let no = NodeAddressFilter {
        exclude_subnets: networks.clone(),
        ..NodeAddressFilter::default()
    };
    let only = NodeAddressFilter {
        include_subnets: networks,
        ..NodeAddressFilter::default()
    };
    [no, only]
}
