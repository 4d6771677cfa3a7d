//! Desired state of the node's network, and the engine that applies it to the kernel.
//!
//! Owns: the layers of the desired state, their merge in `layers`, the engine `apply`, and the clients of netlink.
//! Never: decides when a layer changes.

mod alias;
pub mod apply;
mod bond;
pub mod cmdline_layer;
pub mod config_layer;
pub mod default_layer;
pub mod ethtool;
pub mod files;
pub mod firewall;
mod generic;
pub mod host_dns;
mod ip_param;
pub mod layers;
#[cfg(test)]
mod layers_tests;
pub mod links;
mod netlink;
mod old_form;
pub mod platform_layer;
#[cfg(test)]
mod platform_layer_tests;
pub mod rules;
pub mod seed;
pub mod stored_seed;
#[cfg(test)]
mod tests;
pub mod wireguard;

pub use ip_param::prefix_of;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::panics::again;
use corten_resources::{Pointer, Start, Store};
use corten_types::network::{HostnameStatus, NodeAddress};
use tokio::sync::watch;

/// Inputs of the network; no controller acts before they are known.
#[derive(Debug)]
pub struct Setup {
    /// Kernel parameters.
    pub cmdline: Cmdline,
    /// Host name for when no layer names the node.
    pub default_hostname: String,
    /// Directory of the name files.
    pub names: PathBuf,
}

impl Setup {
    /// Waits for the setup; `None` when it will never come.
    pub async fn wait(setup: &mut watch::Receiver<Option<Arc<Setup>>>) -> Option<Arc<Setup>> {
        setup.wait_for(Option::is_some).await.ok()?.clone()
    }
}

/// Current state of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Host name of the node.
    pub hostname: String,
    /// Addresses at which other machines reach the node, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

/// Handle to the network's status; cheap to clone.
#[derive(Debug, Clone)]
pub struct Network {
    status: watch::Receiver<Status>,
}

impl Network {
    /// Follows the controllers' resources and reports changes on the console.
    #[must_use]
    pub fn follow(store: &Store) -> Network {
        let (publisher, status) = watch::channel(Status::default());
        // The controllers that write these kinds may start later.
        let known = store.register::<NodeAddress>();
        if let Err(error) = known.and_then(|()| store.register::<HostnameStatus>()) {
            console::error(&format!(
                "network: cannot watch the network resources: {error}"
            ));
        }
        let store = store.clone();
        tokio::spawn(async move { again(|| publish_all(&store, &publisher)).await });
        Network { status }
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until the node has an address that other machines can reach.
    pub async fn reachable(&self) {
        let _ = self
            .status
            .clone()
            .wait_for(|status| !status.addresses.is_empty())
            .await;
    }
}

async fn publish_all(store: &Store, publisher: &watch::Sender<Status>) {
    let addresses = Pointer::of::<NodeAddress>(NodeAddress::CURRENT);
    let name = Pointer::of::<HostnameStatus>(HostnameStatus::ID);
    loop {
        let (Ok(mut addresses), Ok(mut name)) = (
            store.watch(&addresses, Start::Now),
            store.watch(&name, Start::Now),
        ) else {
            return;
        };
        publish(publisher, status_in(store));
        // A watcher that fell behind ends and is replaced.
        while tokio::select! {
            event = addresses.next() => event.is_some(),
            event = name.next() => event.is_some(),
        } {
            publish(publisher, status_in(store));
        }
    }
}

fn status_in(store: &Store) -> Status {
    let name = store.get_as::<HostnameStatus>(HostnameStatus::ID);
    let current = store.get_as::<NodeAddress>(NodeAddress::CURRENT);
    let mut addresses: Vec<IpAddr> = current.iter().flat_map(|current| current.ips()).collect();
    addresses.dedup();
    Status {
        hostname: name.map(|name| name.full()).unwrap_or_default(),
        addresses,
    }
}

fn publish(publisher: &watch::Sender<Status>, status: Status) {
    publisher.send_if_modified(|old| {
        for address in &status.addresses {
            if !old.addresses.contains(address) {
                console::say(&format!("network: address {address}"));
            }
        }
        for address in &old.addresses {
            if !status.addresses.contains(address) {
                console::say(&format!("network: address {address} is gone"));
            }
        }
        let modified = *old != status;
        *old = status;
        modified
    });
}
