//! The controllers of a node. A test keeps `graph.txt` in step with their inputs and outputs.
//!
//! Owns: the list of all controllers ([`runtime`]), their graph, and those of Kubernetes, certificates and the clock.
//! Never: starts or ends the node, answers a call, or lets a controller know another one.

mod adjtime;
mod api_service;
mod bill;
mod conditions;
pub mod config;
mod cri;
mod environment;
mod event_sink;
mod extensions;
mod facts;
mod graph;
mod image_cache;
mod image_gc;
mod kmsg_log;
mod kubernetes;
mod last_stop;
pub mod logging;
mod machine_status;
mod meta;
mod perf;
mod platform;
mod prism;
mod registries;
mod seccomp;
mod secrets;
mod services;
mod time;
mod unattended_install;
mod upgrades;

use std::sync::Arc;

use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::events::Events;
use corten_base::mount_table::Mount;
use corten_clock::floor::Floor;
use corten_config::Document;
use corten_config::kinds::ExtensionServiceConfig;
use corten_containerd::client::Containerd;
use corten_hardware::uevents::Uevents;
use corten_meta::Values;
use corten_network::Setup;
use corten_network::seed::Seed;
use corten_persistence::last_stop::LastStop;
use corten_platform::Instance;
use corten_resources::Store;
use corten_resources::controller::{Context, Failure, GraphError, Notice, Runtime};
use corten_supervisor::supervisor::{Conditions, Supervisor};
use corten_supervisor::view::ServiceView;
use corten_supervisor::{APID_PKI, APID_UID, CONTAINERD_SOCKET, TRUSTD_PKI, TRUSTD_UID};
use corten_types::network_spec::LAYERS;
use corten_types::runtime::KernelCmdline;
use corten_types::stage::Stage;
use corten_types::unattended_install::UnattendedInstallStatus;
use corten_volumes::Progress;
use corten_volumes::user::OpenedVolumes;
use tokio::sync::watch;

pub use graph::graph;
pub use kubernetes::etcd::Order as EtcdOrder;

/// The parts of machined that controllers read.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Stage of the node.
    pub stage: watch::Receiver<Stage>,
    /// Reason why the node is locked, if it is.
    pub lock: watch::Receiver<Option<String>>,
    /// Views of the node's services.
    pub services: watch::Receiver<Vec<ServiceView>>,
    /// Handle for reporting conditions of services.
    pub conditions: Conditions,
    /// How the previous boot ended.
    pub last_stop: watch::Receiver<Option<LastStop>>,
    /// Values of META.
    pub meta: watch::Receiver<Values>,
    /// The machine config, once there is one.
    pub config: watch::Receiver<Option<Document>>,
    /// The newest accepted machine config, which becomes `config` soon after.
    pub accepted_config: watch::Receiver<Option<Document>>,
    /// The machine config, or before there is one, that of an installation: the network and the clock follow it.
    pub network_config: watch::Receiver<Option<Document>>,
    /// The unattended installation of this boot, if there is one.
    pub installation: watch::Receiver<Option<UnattendedInstallStatus>>,
    /// Runs programs of the image; `None` if only the graph is built.
    pub supervisor: Option<Supervisor>,
    /// Inputs of the network, once it may start.
    pub network: watch::Receiver<Option<Arc<Setup>>>,
    /// Network settings from the platform, once they are read.
    pub seed: watch::Receiver<Option<Arc<Seed>>>,
    /// Metadata of the machine from a cloud, once it has answered.
    pub instance: watch::Receiver<Option<Arc<Instance>>>,
    /// Progress of the node's own volumes.
    pub volumes: watch::Receiver<Progress>,
    /// Keys that opened encrypted user volumes.
    pub user_volumes: OpenedVolumes,
    /// The mount table.
    pub mounts: watch::Receiver<Vec<Mount>>,
    /// Device events from udevd.
    pub uevents: Uevents,
    /// Extensions loaded at run time, on top of the image's.
    pub extensions: watch::Receiver<Vec<corten_extension::layers::Layer>>,
    /// Settings of extension services whose files are written.
    pub extension_configs: watch::Receiver<Vec<ExtensionServiceConfig>>,
    /// The last order about this node's member of etcd.
    pub cluster: watch::Receiver<Option<EtcdOrder>>,
    /// Events of the node.
    pub events: Events,
    /// Lower bound of the clock.
    pub floor: Arc<Floor>,
}

impl Sources {
    /// Those of the controllers of the hardware.
    fn hardware(&self) -> corten_hardware::Sources {
        corten_hardware::Sources {
            config: self.config.clone(),
            supervisor: self.supervisor.clone(),
            volumes: self.volumes.clone(),
            user_volumes: self.user_volumes.clone(),
            mounts: self.mounts.clone(),
            uevents: self.uevents.clone(),
        }
    }
}

/// Waits for a possible change and returns the current config and kernel command line.
async fn next_wishes(
    config: &mut watch::Receiver<Option<Document>>,
    context: &mut Context,
) -> Result<(Option<Document>, Cmdline), Failure> {
    tokio::select! {
        () = context.event() => {}
        Ok(()) = config.changed() => {}
    }
    let config = config.borrow_and_update().clone();
    let line = context.get::<KernelCmdline>(KernelCmdline::ID)?;
    let line = line.map_or_else(Cmdline::default, |line| Cmdline::parse(&line.cmdline));
    Ok((config, line))
}

/// All controllers, not yet running.
///
/// # Errors
/// Two controllers write the same resource, which a test detects earlier.
pub fn runtime(store: Store, sources: Sources) -> Result<Runtime, GraphError> {
    let described = store.add_namespace(LAYERS, "network settings of each layer of the config");
    if let Err(error) = described {
        console::warn(&format!("resources: {error}"));
    }
    let mut runtime = Runtime::new(store);
    let config = &sources.config;
    certificates(&mut runtime, &sources)?;
    kubernetes::add(&mut runtime, &sources)?;
    runtime.add(facts::Facts::default())?;
    corten_hardware::add(&mut runtime, &sources.hardware())?;
    runtime.add(config::Config {
        accepted: sources.accepted_config,
        config: config.clone(),
    })?;
    runtime.add(bill::Bill::default())?;
    runtime.add(extensions::Extensions::new(sources.extensions))?;
    runtime.add(extensions::ServiceConfigs {
        config: config.clone(),
    })?;
    runtime.add(extensions::ServiceConfigStatuses {
        in_place: sources.extension_configs,
    })?;
    settings(&mut runtime, config)?;
    runtime.add(event_sink::EventSender::new(&sources.events))?;
    runtime.add(conditions::ServiceConditions {
        conditions: sources.conditions,
    })?;
    runtime.add(services::Services {
        views: sources.services.clone(),
    })?;
    runtime.add(machine_status::MachineStatuses {
        views: sources.services,
        stage: sources.stage,
        lock: sources.lock,
    })?;
    runtime.add(last_stop::LastStops {
        last: sources.last_stop,
    })?;
    runtime.add(unattended_install::UnattendedInstalls {
        config: config.clone(),
        installation: sources.installation,
    })?;
    runtime.add(upgrades::Upgrades {
        meta: sources.meta.clone(),
    })?;
    runtime.add(meta::MetaKeys {
        volumes: sources.volumes,
        values: sources.meta.clone(),
    })?;
    runtime.add(time::Clock {
        config: sources.network_config.clone(),
        floor: sources.floor,
    })?;
    runtime.add(adjtime::Adjtime)?;
    runtime.add(perf::Stats {
        proc: "/proc".into(),
    })?;
    runtime.add(platform::Platform::of(sources.instance))?;
    let network = corten_network_controllers::Sources {
        setup: sources.network,
        platform: corten_network_controllers::Platform {
            meta: sources.meta,
            seed: sources.seed,
        },
        config: sources.network_config,
    };
    corten_network_controllers::add(&mut runtime, network)?;
    corten_diagnostics::add(&mut runtime, sources.config)?;
    Ok(runtime)
}

/// Those that follow the config alone.
fn settings(
    runtime: &mut Runtime,
    config: &watch::Receiver<Option<Document>>,
) -> Result<(), GraphError> {
    runtime.add(image_cache::ImageCache {
        config: config.clone(),
    })?;
    runtime.add(image_gc::ImageGc {
        config: config.clone(),
        store: Containerd::new(CONTAINERD_SOCKET.as_ref()),
    })?;
    runtime.add(registries::RegistryConfigs {
        config: config.clone(),
    })?;
    cri::add(runtime, config)?;
    seccomp::add(runtime, config)?;
    runtime.add(kmsg_log::KmsgLogs {
        config: config.clone(),
    })?;
    runtime.add(environment::Environments {
        config: config.clone(),
    })?;
    runtime.add(event_sink::EventSinks {
        config: config.clone(),
    })
}

fn certificates(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(secrets::root::Roots {
        config: sources.config.clone(),
    })?;
    runtime.add(secrets::root::Names)?;
    runtime.add(secrets::api::Api {
        stage: sources.stage.clone(),
        meta: sources.meta.clone(),
        conditions: sources.conditions.clone(),
        outside: secrets::World,
    })?;
    runtime.add(secrets::files::ApiFiles {
        directory: APID_PKI.into(),
        uid: APID_UID,
        conditions: sources.conditions.clone(),
    })?;
    runtime.add(api_service::ApiServices)?;
    runtime.add(secrets::trustd::Trustd {
        conditions: sources.conditions.clone(),
        outside: secrets::World,
    })?;
    runtime.add(secrets::files::TrustdFiles {
        directory: TRUSTD_PKI.into(),
        uid: TRUSTD_UID,
        conditions: sources.conditions.clone(),
    })
}

/// Runs the controllers; returns only when machined ends.
pub async fn run(runtime: Runtime) {
    runtime
        .run(|notice: Notice| console::warn(&notice.to_string()))
        .await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Types without a message in clients: three are our own, and clients show the fourth only as YAML.
    const WITHOUT_MESSAGE: [&str; 4] = [
        "CertificateStatuses.secrets.corten.dev",
        "DNSUpstreams.net.talos.dev",
        "LastStops.runtime.corten.dev",
        "Upgrades.runtime.corten.dev",
    ];

    #[test]
    fn every_type_that_clients_decode_has_a_message() {
        let graph = super::graph().unwrap().to_string();
        let written = graph
            .lines()
            .filter_map(|line| line.strip_prefix("  writes "));
        let without: BTreeSet<&str> = written
            .filter_map(|line| line.strip_suffix(" (YAML alone)"))
            .map(|output| output.trim_end_matches(" (shared)"))
            .collect();
        assert_eq!(without, BTreeSet::from(WITHOUT_MESSAGE));
    }

    /// Resource types of the reference release with this API, except the two about types themselves.
    const TYPES_OF_THE_REFERENCE: &str = include_str!("types.txt");

    #[test]
    fn unserved_reference_types_are_all_listed() {
        let reference: BTreeSet<&str> = TYPES_OF_THE_REFERENCE.lines().collect();
        let graph = super::graph().unwrap();
        let outputs = graph.controllers().flat_map(|(_, _, outputs)| outputs);
        let names = outputs.map(|output| output.definition.type_name);
        let served: BTreeSet<&str> = names.filter(|name| name.ends_with(".talos.dev")).collect();
        let invented: Vec<_> = served.difference(&reference).collect();
        assert!(invented.is_empty(), "not the reference's: {invented:?}");
        let plural = |name: &&'static str| name.split('.').next().unwrap_or_default();
        let mut missing: Vec<&str> = reference.difference(&served).map(plural).collect();
        missing.sort_unstable();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
        let text = fs::read_to_string(&path).unwrap();
        let (_, list) = text.split_once("### Types that are not served").unwrap();
        let list = list.split("\n## ").next().unwrap_or_default();
        let rows = list.lines().filter(|line| line.starts_with("| "));
        let mut told: Vec<&str> = rows
            .filter_map(|row| row.split('|').nth(2))
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect();
        told.sort_unstable();
        assert_eq!(told, missing, "{}", path.display());
    }

    /// `UPDATE=1 cargo test -p corten-controllers graph` rewrites the file.
    #[test]
    fn controller_graph_matches_its_golden_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/graph.txt");
        let graph = super::graph().unwrap().to_string();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &graph).unwrap();
        }
        let agreed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(graph, agreed, "UPDATE=1 writes {}", path.display());
    }
}
