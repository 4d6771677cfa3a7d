//! Shows what the node derives from its config for Kubernetes, in the types of the reference. Clients read them to
//! upgrade a cluster, rotate its CAs and check its health.

mod addresses;
mod cluster;
mod components;
mod node;
mod policies;
mod roots;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use corten_resources::controller::{Context, Failure, GraphError, Runtime};
use corten_resources::{Draft, Spec};
use corten_types::kubernetes_components::{ArgValues, Args};
use corten_values::Arguments;

pub(super) use components::{Versions, show as show_components};
pub(super) use node::{credentials, mounts, of_extensions};

use crate::Sources;

/// Adds the controllers of this module.
pub(super) fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(cluster::ClusterSettings {
        config: sources.config.clone(),
    })?;
    runtime.add(node::NodeSettings {
        config: sources.config.clone(),
    })?;
    runtime.add(addresses::AddressFilters {
        config: sources.config.clone(),
    })?;
    runtime.add(node::Cordons)
}

/// Shows the only resource of a type, or none, after [`Context::start_outputs`].
pub(super) fn show<S: Spec>(
    context: &mut Context,
    id: &str,
    spec: Option<S>,
) -> Result<(), Failure> {
    if let Some(spec) = spec {
        context.put(Draft::new(id, spec))?;
    }
    context.remove_others::<S>()?;
    Ok(())
}

/// Arguments of the config.
pub(super) fn args(own: &Arguments) -> Args {
    let all = own.0.iter().map(|(name, values)| {
        let values = values.clone();
        (name.clone(), ArgValues { values })
    });
    all.collect::<BTreeMap<_, _>>()
}
