//! Links, addresses, routes and names: by DHCP, or as `ip=` says. IPv6 is autoconfigured by the kernel.
//!
//! One task owns all of it. It is told by the kernel what links there are (a network card that comes later is
//! a message like any other) and by the DHCP clients what a link may have.

mod dhcp;
mod files;
mod ip_param;
mod link_config;
mod netlink;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use rtnetlink::MulticastGroup;
use tokio::sync::{mpsc, watch};

use crate::cmdline::Cmdline;
use crate::console;
use ip_param::IpParam;
use link_config::is_name;
use worker::{Names, Worker};

/// What the network has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The node's name.
    pub hostname: String,
    /// Addresses others can reach it by, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

/// A handle: cheap to clone.
#[derive(Debug, Clone)]
pub struct Network {
    status: watch::Receiver<Status>,
    wishes: mpsc::UnboundedSender<Wishes>,
}

/// What the machine config wants of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The node's name.
    pub hostname: Option<String>,
    /// Name servers to ask instead of those the network offers.
    pub nameservers: Vec<IpAddr>,
}

impl Network {
    /// Starts the task. `default_hostname` holds while nobody names the node; files go into `run`.
    ///
    /// # Errors
    /// When the kernel offers no rtnetlink.
    pub fn start(cmdline: &Cmdline, default_hostname: String, run: PathBuf) -> io::Result<Network> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
        ];
        // Two sockets: on one, the news of a change we ask for would count as the answer to the request.
        let (listener, _, messages) = rtnetlink::new_multicast_connection(&groups)?;
        tokio::spawn(listener);
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let (publisher, status) = watch::channel(Status::default());
        let (wishes, wish_receiver) = mpsc::unbounded_channel();
        let (news_sender, news) = mpsc::unbounded_channel();
        let parameters = parameters(cmdline);
        let named = cmdline.ours("hostname").map(str::to_owned);
        let by_parameter = named.or_else(|| {
            parameters
                .iter()
                .find_map(|parameter| parameter.hostname.clone())
        });
        let worker = Worker {
            handle,
            parameters,
            names: Names {
                by_config: None,
                by_parameter: by_parameter.filter(|n| is_name(n)),
                default: default_hostname,
            },
            nameservers: Vec::new(),
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            first: None,
            news_sender,
            publisher,
            written: None,
            run,
        };
        tokio::spawn(worker.run(messages, news, wish_receiver));
        Ok(Network { status, wishes })
    }

    /// Replaces what the machine config wants.
    pub fn wish(&self, wishes: Wishes) {
        let _ = self.wishes.send(wishes);
    }

    /// The network now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Ends at the next change.
    pub async fn changed(&mut self) {
        if self.status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until somebody can reach this node.
    pub async fn reachable(&self) {
        let _ = self
            .status
            .clone()
            .wait_for(|status| !status.addresses.is_empty())
            .await;
    }
}

/// The `ip=` parameters that can be understood; the others are told.
fn parameters(cmdline: &Cmdline) -> Vec<IpParam> {
    let understood = |text| {
        ip_param::parse(text)
            .inspect_err(|error| console::warn(&format!("network: {error}")))
            .ok()
    };
    cmdline.all("ip").filter_map(understood).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_parameter_does_not_spoil_the_others() {
        let cmdline = Cmdline::parse("ip=10.0.0.999 ip=eth0:dhcp");
        assert_eq!(parameters(&cmdline).len(), 1);
    }
}
