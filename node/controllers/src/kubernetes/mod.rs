//! Kubernetes on this node: when to render what `node/kubernetes` defines. docs/architecture.md has a picture.

mod advertised_peer;
mod control_plane;
mod endpoints;
pub(crate) mod etcd;
mod etcd_data;
mod extra_pods;
mod images;
mod join;
mod kubelet;
mod kubelet_state;
mod labels;
mod manifests;
mod member;
mod node;
mod pod_access;
pub(crate) mod pod_status;
mod prism;
mod settings;
mod shared_address;
mod static_pods;
mod status;
mod volume;

use std::net::IpAddr;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_containerd::client::Containerd;
use corten_kubernetes::Facts;
use corten_kubernetes::kubelet::CERTIFICATES;
use corten_resources::controller::{Context, Failure, GraphError, Runtime};
use corten_supervisor::CONTAINERD_SOCKET;
use corten_types::clock::TimeStatus;
use corten_types::kubernetes::Nodename;
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::network_filter::NodeAddressFilter;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Sources;

/// Adds all controllers of this module.
pub(super) fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    let config = &sources.config;
    runtime.add(node::Nodenames {
        certificates: CERTIFICATES.into(),
        config: config.clone(),
    })?;
    runtime.add(node::NodeIps {
        config: config.clone(),
    })?;
    runtime.add(images::Images {
        config: config.clone(),
        services: sources.services.clone(),
        runtime: Containerd::new(CONTAINERD_SOCKET.as_ref()),
        conditions: sources.conditions.clone(),
    })?;
    runtime.add(etcd::Etcd {
        config: config.clone(),
        orders: sources.cluster.clone(),
        volumes: sources.volumes.clone(),
        supervisor: sources.supervisor.clone(),
    })?;
    runtime.add(control_plane::ControlPlanes {
        config: config.clone(),
    })?;
    runtime.add(member::OwnMember)?;
    runtime.add(advertised_peer::AdvertisedPeers)?;
    runtime.add(endpoints::Endpoints {
        config: config.clone(),
    })?;
    runtime.add(prism::Prism {
        config: config.clone(),
    })?;
    runtime.add(extra_pods::ExtraPods {
        config: config.clone(),
    })?;
    runtime.add(static_pods::Server)?;
    runtime.add(kubelet::Kubelet {
        config: config.clone(),
        volumes: sources.volumes.clone(),
        supervisor: sources.supervisor.clone(),
    })?;
    runtime.add(manifests::Manifests {
        config: config.clone(),
    })?;
    runtime.add(labels::Labels {
        config: config.clone(),
        world: labels::Api,
    })?;
    runtime.add(shared_address::SharedAddresses {
        world: shared_address::Node::new(config.clone()),
    })?;
    settings::add(runtime, sources)?;
    status::add(runtime, sources)?;
    pod_access::add(runtime, config)
}

/// Waits for a possible change and returns the current config.
async fn next(
    config: &mut watch::Receiver<Option<Document>>,
    context: &mut Context,
) -> Option<Document> {
    tokio::select! {
        () = context.event() => {}
        Ok(()) = config.changed() => {}
    }
    config.borrow_and_update().clone()
}

/// The same as [`next`], but returns after this time without a change, too.
async fn next_within(
    limit: Duration,
    config: &mut watch::Receiver<Option<Document>>,
    context: &mut Context,
) -> Option<Document> {
    // Both waits are safe to cancel.
    let _elapsed = tokio::time::timeout(limit, next(config, context)).await;
    config.borrow_and_update().clone()
}

/// Facts of the node for certificates, arguments and names; `None` while one of them is unknown.
fn facts(context: &Context) -> Result<Option<Facts>, Failure> {
    let nodename = context.get::<Nodename>(Nodename::ID)?;
    let hostname = context.get::<HostnameStatus>(HostnameStatus::ID)?;
    let (Some(nodename), Some(hostname)) = (nodename, hostname) else {
        return Ok(None);
    };
    let own = addresses(context, NodeAddress::ROUTED)?;
    let current = addresses(context, NodeAddress::CURRENT)?;
    let (Some(addresses), Some(reachable)) = (own, current) else {
        return Ok(None);
    };
    Ok((!addresses.is_empty()).then(|| Facts {
        nodename: nodename.nodename.clone(),
        hostname: hostname.hostname.clone(),
        fqdn: hostname.full(),
        addresses,
        reachable,
    }))
}

/// The addresses of a selection, except those in the networks of pods and services; `None` until those are known.
fn addresses(context: &Context, selection: &str) -> Result<Option<Vec<IpAddr>>, Failure> {
    let id = NodeAddressFilter::filtered(selection, NodeAddressFilter::NO_KUBERNETES);
    let Some(shown) = context.get::<NodeAddress>(&id)? else {
        return Ok(None);
    };
    let mut found: Vec<IpAddr> = Vec::new();
    // An address may have two prefixes.
    for address in shown.ips() {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(Some(found))
}

/// Whether the clock is right, so that certificates get correct dates.
fn time_is_known(context: &Context) -> Result<bool, Failure> {
    let time = context.get::<TimeStatus>(TimeStatus::ID)?;
    Ok(time.is_some_and(|time| time.synced))
}

/// Logs the obstacle of a component once per reason.
#[derive(Debug, Default)]
struct Complaints {
    /// An obstacle that is gone sooner is normal, such as that of a component that still starts.
    patience: Duration,
    since: Option<Instant>,
    last: String,
}

impl Complaints {
    /// Only for a caller that tries again: it logs no obstacle at the first attempt.
    fn of_lasting(patience: Duration) -> Complaints {
        Complaints {
            patience,
            ..Complaints::default()
        }
    }

    fn say(&mut self, part: &str, why: &str) {
        let since = self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.patience && self.last != why {
            console::warn(&format!("{part}: {why}"));
            why.clone_into(&mut self.last);
        }
    }

    fn none(&mut self) {
        self.since = None;
        self.last.clear();
    }

    fn is_some(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn obstacle_of_a_starting_component_is_logged_only_if_it_lasts() {
        let mut complaints = Complaints::of_lasting(Duration::from_secs(30));
        let mut is_logged = async |seconds| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            complaints.say("etcd", "it refuses connections");
            !complaints.last.is_empty()
        };
        assert_eq!([is_logged(0).await, is_logged(29).await], [false, false]);
        assert!(is_logged(1).await);
        complaints.none();
        complaints.say("etcd", "it refuses connections");
        assert!(complaints.is_some() && complaints.last.is_empty());
        let mut at_once = Complaints::default();
        at_once.say("etcd", "its directory is full");
        assert_eq!(at_once.last, "its directory is full");
    }
}
