//! The network controllers: they collect layers, merge them into one network, and apply it.

pub(super) mod aliases;
pub(super) mod apply;
#[cfg(test)]
mod dhcp_tests;
pub(super) mod etc_files;
pub(super) mod ethernet;
pub(super) mod firewall;
pub(super) mod hardware_address;
pub(super) mod host_dns;
pub(super) mod hostname;
pub(super) mod layers;
pub(super) mod merge;
pub(super) mod operators;
pub(super) mod probes;
pub(super) mod rules;
pub(super) mod status;

use corten_network::layers::{Layered, Specs};
use corten_resources::Draft;
use corten_resources::controller::{Context, Failure, Output};
use corten_types::network_names::{HostnameSpec, OperatorSpec, ResolverSpec, TimeServerSpec};
use corten_types::network_rule::RoutingRuleSpec;
use corten_types::network_spec::{AddressSpec, LAYERS, LinkSpec, RouteSpec};

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
