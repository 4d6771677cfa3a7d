//! Whether the network is what a node needs.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;

use crate::resources::network::{HostnameStatus, NodeAddress, RouteStatus};
use crate::resources::network_names::NetworkStatus;

/// Looks at what the others found.
#[derive(Debug, Clone)]
pub(in crate::controllers) struct Statuses {
    /// Whether the name files are written.
    pub(in crate::controllers) written: watch::Receiver<bool>,
}

impl Controller for Statuses {
    fn name(&self) -> &'static str {
        "network.StatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
            Input::of::<RouteStatus>(Dependency::Weak),
            Input::of::<HostnameStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NetworkStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.written.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let current = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
            let routes = context.list::<RouteStatus>()?;
            let leads_out = |route: &RouteStatus| {
                route.dst.is_empty() && route.table == "main" && route.route_type == "unicast"
            };
            let status = NetworkStatus {
                address_ready: current.is_some_and(|current| !current.addresses.is_empty()),
                connectivity_ready: routes.iter().any(|route| leads_out(route)),
                hostname_ready: context.get::<HostnameStatus>(HostnameStatus::ID)?.is_some(),
                etc_files_ready: *self.written.borrow_and_update(),
            };
            context.put(Draft::new(NetworkStatus::ID, status))?;
        }
    }
}
