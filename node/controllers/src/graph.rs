//! The inputs and outputs of all controllers. Runs no controller.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use corten_base::events::Events;
use corten_clock::floor::Floor;
use corten_hardware::uevents::Uevents;
use corten_meta::Values;
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError};
use corten_supervisor::supervisor::Conditions;
use corten_types::stage::Stage;
use corten_volumes::user::OpenedVolumes;
use tokio::sync::watch;

use super::{Sources, runtime};

/// Collects the declared inputs and outputs; no controller has to run.
///
/// # Errors
/// Those of [`runtime`].
pub fn graph() -> Result<Graph, GraphError> {
    let sources = Sources {
        stage: watch::Sender::new(Stage::Booting).subscribe(),
        lock: watch::Sender::new(None).subscribe(),
        services: watch::Sender::new(Vec::new()).subscribe(),
        conditions: Conditions::unheard(),
        last_stop: watch::Sender::new(None).subscribe(),
        meta: watch::Sender::new(Values::new()).subscribe(),
        config: watch::Sender::new(None).subscribe(),
        accepted_config: watch::Sender::new(None).subscribe(),
        network_config: watch::Sender::new(None).subscribe(),
        installation: watch::Sender::new(None).subscribe(),
        supervisor: None,
        network: watch::Sender::new(None).subscribe(),
        seed: watch::Sender::new(None).subscribe(),
        instance: watch::Sender::new(None).subscribe(),
        volumes: watch::Sender::default().subscribe(),
        user_volumes: OpenedVolumes::default(),
        mounts: watch::Sender::default().subscribe(),
        uevents: Uevents::default(),
        extensions: watch::Sender::default().subscribe(),
        extension_configs: watch::Sender::default().subscribe(),
        cluster: watch::Sender::default().subscribe(),
        events: Events::default(),
        floor: Arc::new(Floor::new(UNIX_EPOCH)),
    };
    Ok(runtime(Store::new(), sources)?.graph().clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use corten_resources::meta::ResourceDefinition;

    /// Only aliases in capitals may belong to several types (`as`), as in the reference.
    #[test]
    fn singular_and_plural_names_belong_to_one_type() {
        let graph = super::super::graph().unwrap();
        let outputs = graph.controllers().flat_map(|(_, _, outputs)| outputs);
        let types: BTreeMap<&str, ResourceDefinition> = outputs
            .map(|output| output.definition)
            .map(|definition| (definition.type_name, definition.into()))
            .collect();
        for (name, definition) in &types {
            let plural = name.split('.').next().unwrap_or_default().to_lowercase();
            for name in [plural, definition.display_type.to_lowercase()] {
                let found: Vec<_> = types
                    .values()
                    .filter(|other| other.all_aliases.contains(&name))
                    .map(|other| &other.type_name)
                    .collect();
                assert_eq!(found.len(), 1, "{name}: {found:?}");
            }
        }
    }
}
