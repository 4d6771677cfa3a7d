//! Shows the readiness of the network.

use corten_network::files;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_types::files::EtcFileStatus;
use corten_types::network::{HostnameStatus, NodeAddress, RouteStatus};
use corten_types::network_names::NetworkStatus;
use corten_types::network_probe::{ProbeSpec, ProbeStatus};

/// Derives the readiness from other resources.
#[derive(Debug, Clone)]
pub(crate) struct Statuses;

impl Controller for Statuses {
    fn name(&self) -> &'static str {
        "network.StatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
            Input::of::<RouteStatus>(Dependency::Weak),
            Input::of::<HostnameStatus>(Dependency::Weak),
            Input::of::<ProbeSpec>(Dependency::Weak),
            Input::of::<ProbeStatus>(Dependency::Weak),
            Input::of::<EtcFileStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NetworkStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let written = context.list::<EtcFileStatus>()?;
            let is_written = |file: &str| written.iter().any(|status| status.id() == file);
            let current = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
            let routes = context.list::<RouteStatus>()?;
            let leads_out = |route: &RouteStatus| {
                route.dst.is_empty() && route.table == "main" && route.route_type == "unicast"
            };
            // Probes of the config are stronger evidence than a route.
            let probes = context.list::<ProbeSpec>()?;
            let statuses = context.list::<ProbeStatus>()?;
            let succeeds = |probe: &Typed<ProbeSpec>| {
                let same = |status: &&Typed<ProbeStatus>| status.id() == probe.id();
                statuses
                    .iter()
                    .find(same)
                    .is_some_and(|status| status.success)
            };
            let status = NetworkStatus {
                address_ready: current.is_some_and(|current| !current.addresses.is_empty()),
                connectivity_ready: if probes.is_empty() {
                    routes.iter().any(|route| leads_out(route))
                } else {
                    probes.iter().all(succeeds)
                },
                hostname_ready: context.get::<HostnameStatus>(HostnameStatus::ID)?.is_some(),
                etc_files_ready: files::NAMES.into_iter().all(is_written),
            };
            context.put(Draft::new(NetworkStatus::ID, status))?;
        }
    }
}
