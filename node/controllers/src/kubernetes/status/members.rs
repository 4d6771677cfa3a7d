//! Shows the nodes of the cluster, on control plane nodes: Kubernetes lets a kubelet see its own node alone.

use std::time::Duration;

use corten_cluster::MemberWatch;
use corten_config::{Document, MachineType as Kind};
use corten_credentials::access::of_node_to_watch;
use corten_kubernetes::Settings;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use corten_types::cluster::{ControlPlane, Member};
use corten_types::config::MachineType;
use tokio::sync::watch;
use tokio::time::sleep;

/// Retry interval: an API server starts slowly.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Members {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Members {
    fn name(&self) -> &'static str {
        "cluster.MemberController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Member>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut open: Option<(MemberWatch, u16)> = None;
        loop {
            let found = match &mut open {
                Some((members, port)) => tokio::select! {
                    () = context.event() => None,
                    Ok(()) = self.config.changed() => None,
                    found = members.next() => Some((found, *port)),
                },
                None => tokio::select! {
                    () = context.event() => None,
                    Ok(()) = self.config.changed() => None,
                    () = sleep(PAUSE) => None,
                },
            };
            match found {
                Some((Ok(members), port)) => {
                    context.start_outputs();
                    for found in members {
                        let name = found.name.clone();
                        context.put(Draft::new(&name, member(found, port)))?;
                    }
                    context.remove_others::<Member>()?;
                }
                // The known nodes stay: a failed request proves nothing about them.
                Some((Err(_), _)) => {
                    open = None;
                    sleep(PAUSE).await;
                }
                None => open = self.open(context)?,
            }
        }
    }
}

impl Members {
    /// Begins to watch the nodes; `None` while they cannot be watched.
    fn open(&mut self, context: &mut Context) -> Result<Option<(MemberWatch, u16)>, Failure> {
        let config = self.config.borrow_and_update().clone();
        let config = config.filter(|config| config.machine.kind.is_control_plane());
        let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
        let (Some(config), Some(settings)) = (config, settings) else {
            context.start_outputs();
            context.remove_others::<Member>()?;
            return Ok(None);
        };
        let cluster = of_node_to_watch(&config, &settings).ok();
        Ok(cluster.map(|cluster| (cluster.watch_members(), settings.api_port)))
    }
}

/// All API servers of a cluster have one port.
fn member(found: corten_cluster::Member, port: u16) -> Member {
    let kind = match found.is_control_plane {
        true => Kind::ControlPlane,
        false => Kind::Worker,
    };
    Member {
        node_id: found.machine,
        addresses: found.addresses,
        hostname: found.name,
        machine_type: MachineType::from(kind),
        operating_system: found.system,
        control_plane: found.is_control_plane.then_some(ControlPlane { port }),
    }
}
