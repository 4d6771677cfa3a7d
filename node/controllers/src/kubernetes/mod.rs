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

use corten_base::complaints::Complaints;
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
