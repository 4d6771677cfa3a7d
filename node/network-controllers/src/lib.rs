//! The network controllers: they collect layers, merge them into one network, and apply it.
//!
//! Owns: layers, their merger and application, the status of the kernel's network, names, DNS, probes, packet filter.
//! Never: computes what the kernel shall do (`corten-network` does), or knows another controller of the node.

mod address_order;
mod aliases;
mod apply;
#[cfg(test)]
mod dhcp_tests;
mod etc_files;
mod ethernet;
mod files;
mod firewall;
mod hardware_address;
mod host_dns;
mod hostname;
mod layers;
mod merge;
mod netlink;
mod node_address;
mod operators;
mod probes;
mod rules;
mod status;

use std::sync::Arc;

use corten_config::Document;
use corten_network::Setup;
use corten_network::layers::{Layered, Specs};
use corten_resources::Draft;
use corten_resources::controller::{Context, Failure, GraphError, Output, Runtime};
use corten_types::network_names::{HostnameSpec, OperatorSpec, ResolverSpec, TimeServerSpec};
use corten_types::network_rule::RoutingRuleSpec;
use corten_types::network_spec::{AddressSpec, LAYERS, LinkSpec, RouteSpec};
use tokio::sync::watch;

use merge::Merge;

pub use layers::Platform;
pub use node_address::EXTERNAL;

/// The parts of machined that these controllers read.
#[derive(Debug)]
pub struct Sources {
    /// Inputs of the network, once it may start.
    pub setup: watch::Receiver<Option<Arc<Setup>>>,
    /// Settings from the platform.
    pub platform: Platform,
    /// The machine config, once there is one.
    pub config: watch::Receiver<Option<Document>>,
}

/// Adds all controllers of this crate.
///
/// # Errors
/// Two controllers write the same resource type.
pub fn add(runtime: &mut Runtime, sources: Sources) -> Result<(), GraphError> {
    let Sources {
        setup,
        platform,
        config,
    } = sources;
    runtime.add(netlink::links::Links {
        setup: Some(setup.clone()),
    })?;
    runtime.add(hardware_address::First)?;
    runtime.add(ethernet::Statuses)?;
    runtime.add(ethernet::Settings)?;
    runtime.add(ethernet::Wishes {
        config: config.clone(),
    })?;
    runtime.add(netlink::addresses::Addresses)?;
    runtime.add(netlink::routes::Routes)?;
    runtime.add(address_order::SortAlgorithm {
        config: config.clone(),
    })?;
    runtime.add(node_address::NodeAddresses)?;
    runtime.add(host_dns::DnsConfig {
        config: config.clone(),
    })?;
    runtime.add(probes::ProbeConfig {
        config: config.clone(),
    })?;
    runtime.add(probes::Probes)?;
    runtime.add(host_dns::Upstreams)?;
    runtime.add(host_dns::Cache)?;
    runtime.add(firewall::Chains {
        config: config.clone(),
    })?;
    runtime.add(firewall::Filter::default())?;
    runtime.add(layers::Layers {
        setup: setup.clone(),
        platform,
        config,
    })?;
    runtime.add(Merge::<LinkSpec>::named("network.LinkMergeController"))?;
    runtime.add(Merge::<AddressSpec>::named(
        "network.AddressMergeController",
    ))?;
    runtime.add(Merge::<RouteSpec>::named("network.RouteMergeController"))?;
    runtime.add(Merge::<RoutingRuleSpec>::named(
        "network.RoutingRuleMergeController",
    ))?;
    runtime.add(rules::Rules)?;
    runtime.add(rules::RuleStatuses)?;
    runtime.add(Merge::<OperatorSpec>::named(
        "network.OperatorMergeController",
    ))?;
    runtime.add(Merge::<HostnameSpec>::named(
        "network.HostnameMergeController",
    ))?;
    runtime.add(Merge::<ResolverSpec>::named(
        "network.ResolverMergeController",
    ))?;
    runtime.add(Merge::<TimeServerSpec>::named(
        "network.TimeServerMergeController",
    ))?;
    runtime.add(operators::Operators)?;
    runtime.add(apply::Apply::default())?;
    runtime.add(aliases::Aliases::default())?;
    runtime.add(hostname::Hostname)?;
    runtime.add(hostname::Resolvers)?;
    runtime.add(hostname::TimeServers)?;
    runtime.add(status::Statuses)?;
    runtime.add(etc_files::EtcFiles)?;
    runtime.add(files::EtcFiles { setup })
}

/// Outputs of a controller that writes a layer.
fn layer_outputs() -> Vec<Output> {
    vec![
        Output::shared::<LinkSpec>(),
        Output::shared::<AddressSpec>(),
        Output::shared::<RouteSpec>(),
        Output::shared::<RoutingRuleSpec>(),
        Output::shared::<OperatorSpec>(),
        Output::shared::<HostnameSpec>(),
        Output::shared::<ResolverSpec>(),
        Output::shared::<TimeServerSpec>(),
    ]
}

/// Writes the specs with ids that begin with `whose`.
fn write(context: &mut Context, whose: &str, said: &Specs) -> Result<(), Failure> {
    all(context, whose, &said.links)?;
    all(context, whose, &said.addresses)?;
    all(context, whose, &said.routes)?;
    all(context, whose, &said.rules)?;
    all(context, whose, &said.operators)?;
    all(context, whose, said.hostname.as_slice())?;
    all(context, whose, said.resolver.as_slice())?;
    all(context, whose, said.time_servers.as_slice())
}

fn all<S: Layered>(context: &mut Context, whose: &str, specs: &[S]) -> Result<(), Failure> {
    for spec in specs {
        let id = format!("{whose}/{}", spec.id());
        context.put(Draft::new(&id, spec.clone()).in_namespace(LAYERS))?;
    }
    Ok(())
}

/// Removes the layer specs that this controller no longer writes.
fn forget_others(context: &mut Context) -> Result<(), Failure> {
    context.remove_others_in::<LinkSpec>(LAYERS)?;
    context.remove_others_in::<AddressSpec>(LAYERS)?;
    context.remove_others_in::<RouteSpec>(LAYERS)?;
    context.remove_others_in::<RoutingRuleSpec>(LAYERS)?;
    context.remove_others_in::<OperatorSpec>(LAYERS)?;
    context.remove_others_in::<HostnameSpec>(LAYERS)?;
    context.remove_others_in::<ResolverSpec>(LAYERS)?;
    context.remove_others_in::<TimeServerSpec>(LAYERS)?;
    Ok(())
}
