//! The controllers of a node: what each reads and writes is in `graph.txt`, which a test keeps true.
//!
//! A status controller reads the kernel, or another part of machined, and writes what it found; the others
//! read resources. None of them knows another.

mod facts;
mod hostname;
mod last_stop;
mod machine_status;
mod meta;
mod netlink;
mod node_address;
mod services;

use corten_meta::Values;
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError, Notice, Runtime};
use tokio::sync::watch;

use crate::console;
use crate::last_stop::LastStop;
use crate::network::Network;
use crate::node::{ServiceView, Stage};

/// The parts of machined that status controllers read.
#[derive(Debug, Clone)]
pub struct Sources {
    /// What the node does.
    pub stage: watch::Receiver<Stage>,
    /// Its services.
    pub services: watch::Receiver<Vec<ServiceView>>,
    /// How the boot before ended.
    pub last_stop: watch::Receiver<Option<LastStop>>,
    /// What META holds.
    pub meta: watch::Receiver<Values>,
    /// Its network, once there is one.
    pub network: watch::Receiver<Option<Network>>,
}

/// All of them, not yet running.
///
/// # Errors
/// When two write the same; a test sees that first.
pub fn runtime(store: Store, sources: Sources) -> Result<Runtime, GraphError> {
    let mut runtime = Runtime::new(store);
    runtime.add(facts::Facts::default())?;
    runtime.add(services::Services {
        views: sources.services,
    })?;
    runtime.add(machine_status::MachineStatuses {
        stage: sources.stage,
    })?;
    runtime.add(last_stop::LastStops {
        last: sources.last_stop,
    })?;
    runtime.add(meta::MetaKeys {
        values: sources.meta,
    })?;
    runtime.add(hostname::Hostname {
        network: sources.network,
    })?;
    runtime.add(netlink::links::Links)?;
    runtime.add(netlink::addresses::Addresses)?;
    runtime.add(node_address::NodeAddresses)?;
    Ok(runtime)
}

/// Runs them; ends with machined.
pub async fn run(runtime: Runtime) {
    runtime
        .run(|notice: Notice| console::warn(&notice.to_string()))
        .await;
}

/// Who reads and writes what: it is declared, so none of them has to run.
///
/// # Errors
/// Those of [`runtime`].
pub fn graph() -> Result<Graph, GraphError> {
    let sources = Sources {
        stage: watch::Sender::new(Stage::Booting).subscribe(),
        services: watch::Sender::new(Vec::new()).subscribe(),
        last_stop: watch::Sender::new(None).subscribe(),
        meta: watch::Sender::new(Values::new()).subscribe(),
        network: watch::Sender::new(None).subscribe(),
    };
    Ok(runtime(Store::new(), sources)?.graph().clone())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// `UPDATE=1 cargo test -p machined graph` writes it anew.
    #[test]
    fn the_graph_is_the_one_that_was_agreed_on() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/controllers/graph.txt");
        let graph = super::graph().unwrap().to_string();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &graph).unwrap();
        }
        let agreed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(graph, agreed, "UPDATE=1 writes {}", path.display());
    }
}
