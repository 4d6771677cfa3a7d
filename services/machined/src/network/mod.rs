//! Links, addresses, routes and names: by DHCP, or as `ip=` says. IPv6 is autoconfigured by the kernel.
//!
//! One task owns all of it. It is told by the kernel what links there are (a network card that comes later is
//! a message like any other) and by the DHCP clients what a link may have.

mod dhcp;
mod files;
mod ip_param;
mod link_config;
mod netlink;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use futures_util::{Stream, StreamExt};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::SocketAddr;
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::cmdline::Cmdline;
use crate::console;
use ip_param::{IpParam, Method, method_for};
use link_config::LinkConfig;
pub use link_config::is_name;
use netlink::LinkFacts;

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
        let (connection, handle, messages) = rtnetlink::new_multicast_connection(&groups)?;
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

/// Everyone who may name the node; the first who does wins, then the network, then the default.
struct Names {
    by_config: Option<String>,
    by_parameter: Option<String>,
    default: String,
}

impl Names {
    fn choose<'a>(&'a self, by_network: Option<&'a str>) -> &'a str {
        let chosen = [
            self.by_config.as_deref(),
            self.by_parameter.as_deref(),
            by_network,
        ];
        chosen.into_iter().flatten().next().unwrap_or(&self.default)
    }
}

struct Link {
    facts: LinkFacts,
    method: Method,
    client: Option<AbortHandle>,
    config: LinkConfig,
}

struct Worker {
    handle: Handle,
    parameters: Vec<IpParam>,
    names: Names,
    nameservers: Vec<IpAddr>,
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<(u32, IpAddr), u8>,
    /// The link that takes an `ip=` without a device.
    first: Option<u32>,
    news_sender: mpsc::UnboundedSender<dhcp::News>,
    publisher: watch::Sender<Status>,
    written: Option<NameFiles>,
    run: PathBuf,
}

/// What stands in the name files: host name, name servers, search domains.
type NameFiles = (String, Vec<IpAddr>, Vec<String>);

type Received = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr);

impl Worker {
    async fn run(
        mut self,
        mut messages: impl Stream<Item = Received> + Unpin,
        mut news: mpsc::UnboundedReceiver<dhcp::News>,
        mut wishes: mpsc::UnboundedReceiver<Wishes>,
    ) {
        self.publish();
        match self.look_around().await {
            Ok(()) => {}
            Err(error) => console::warn(&format!("network: cannot list links: {error}")),
        }
        loop {
            tokio::select! {
                Some((message, _)) = messages.next() => {
                    if let NetlinkPayload::InnerMessage(message) = message.payload {
                        self.kernel_says(message).await;
                    }
                }
                Some((index, config)) = news.recv() => self.configure(index, config.unwrap_or_default()).await,
                Some(wishes) = wishes.recv() => {
                    self.names.by_config = wishes.hostname;
                    self.nameservers = wishes.nameservers;
                }
                else => return,
            }
            self.publish();
        }
    }

    /// What was there before we listened.
    async fn look_around(&mut self) -> Result<(), rtnetlink::Error> {
        for message in netlink::links(&self.handle).await? {
            self.kernel_says(RouteNetlinkMessage::NewLink(message))
                .await;
        }
        for message in netlink::addresses(&self.handle).await? {
            self.kernel_says(RouteNetlinkMessage::NewAddress(message))
                .await;
        }
        Ok(())
    }

    async fn kernel_says(&mut self, message: RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(message) => {
                if let Some(facts) = netlink::link_facts(&message) {
                    self.link_is(facts).await;
                }
            }
            RouteNetlinkMessage::DelLink(message) => self.link_gone(message.header.index),
            RouteNetlinkMessage::NewAddress(message) => {
                if let Some((index, address, prefix)) = netlink::global_address(&message)
                    && !address.is_loopback()
                    && self.addresses.insert((index, address), prefix).is_none()
                {
                    console::say(&format!(
                        "network: address {address}/{prefix} on {}",
                        self.name_of(index)
                    ));
                }
            }
            RouteNetlinkMessage::DelAddress(message) => {
                if let Some((index, address, _)) = netlink::global_address(&message)
                    && self.addresses.remove(&(index, address)).is_some()
                {
                    console::say(&format!(
                        "network: address {address} on {} is gone",
                        self.name_of(index)
                    ));
                }
            }
            _ => {}
        }
    }

    async fn link_is(&mut self, facts: LinkFacts) {
        let index = facts.index;
        if let Some(link) = self.links.get_mut(&index) {
            // udev may rename it, a cable may come and go.
            link.facts = facts;
        } else {
            if facts.name != "lo" && !(facts.is_ethernet && is_physical(&facts.name)) {
                return;
            }
            if !facts.is_up
                && let Err(error) = netlink::set_up(&self.handle, index).await
            {
                console::warn(&format!(
                    "network: cannot switch {} on: {error}",
                    facts.name
                ));
            }
            if facts.name == "lo" {
                return;
            }
            let first = *self.first.get_or_insert(index) == index;
            let method = method_for(&self.parameters, &facts.name, first);
            let link = Link {
                facts,
                method,
                client: None,
                config: LinkConfig::default(),
            };
            self.links.insert(index, link);
        }
        self.start_when_connected(index).await;
    }

    /// A question asked before there is a carrier is lost, and costs seconds until it is repeated.
    async fn start_when_connected(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(&index) else {
            return;
        };
        match &link.method {
            Method::Off => {}
            Method::Static(config) => {
                if link.config != *config && link.facts.is_up {
                    let config = config.clone();
                    self.configure(index, config).await;
                }
            }
            Method::Dhcp => {
                if link.client.is_none() && link.facts.has_carrier {
                    let facts = link.facts.clone();
                    let client = dhcp::run(index, facts.name, facts.mac, self.news_sender.clone());
                    link.client = Some(tokio::spawn(client).abort_handle());
                }
            }
        }
    }

    async fn configure(&mut self, index: u32, config: LinkConfig) {
        let Some(link) = self.links.get_mut(&index) else {
            return;
        };
        if link.config == config {
            return;
        }
        if let Err(error) = netlink::apply(&self.handle, index, &link.config, &config).await {
            console::warn(&format!(
                "network: cannot configure {}: {error}",
                link.facts.name
            ));
        }
        link.config = config;
    }

    fn link_gone(&mut self, index: u32) {
        if let Some(link) = self.links.remove(&index) {
            console::say(&format!("network: {} is gone", link.facts.name));
            if let Some(client) = link.client {
                client.abort();
            }
        }
        if self.first == Some(index) {
            self.first = None;
        }
        self.addresses.retain(|(link, _), _| *link != index);
    }

    fn name_of(&self, index: u32) -> &str {
        self.links
            .get(&index)
            .map_or("a link", |link| &link.facts.name)
    }

    /// Names and addresses, to the kernel, to files, and to who waits for them.
    fn publish(&mut self) {
        let configs = || self.links.values().map(|link| &link.config);
        let by_network = configs().find_map(|config| config.hostname.as_deref());
        let hostname = self.names.choose(by_network).to_owned();
        let offered = || configs().flat_map(|config| config.dns.clone()).collect();
        let dns = if self.nameservers.is_empty() {
            offered()
        } else {
            self.nameservers.clone()
        };
        let search: Vec<String> = configs().flat_map(|config| config.search.clone()).collect();
        self.write_names((hostname.clone(), dns, search));
        let mut addresses: Vec<IpAddr> =
            self.addresses.keys().map(|(_, address)| *address).collect();
        addresses.sort_by_key(|address| (address.is_ipv6(), *address));
        addresses.dedup();
        let status = Status {
            hostname,
            addresses,
        };
        self.publisher.send_if_modified(|old| {
            let modified = *old != status;
            *old = status;
            modified
        });
    }

    fn write_names(&mut self, names: NameFiles) {
        if self.written.as_ref() == Some(&names) {
            return;
        }
        let (hostname, dns, search) = &names;
        if let Err(error) = files::write_all(&self.run, hostname, dns, search) {
            console::warn(&format!("network: cannot write the name files: {error}"));
        }
        if let Err(error) = corten_sys::host::set_hostname(hostname) {
            console::warn(&format!(
                "network: cannot set the host name {hostname}: {error}"
            ));
        }
        self.written = Some(names);
    }
}

/// Whether a device stands behind it: not a bridge, not a container's cable.
fn is_physical(name: &str) -> bool {
    Path::new("/sys/class/net")
        .join(name)
        .join("device")
        .exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_names_the_node_before_anyone_else() {
        let mut names = Names {
            by_config: None,
            by_parameter: None,
            default: "corten-1".into(),
        };
        assert_eq!(names.choose(None), "corten-1");
        assert_eq!(names.choose(Some("dhcp")), "dhcp");
        names.by_parameter = Some("parameter".into());
        assert_eq!(names.choose(Some("dhcp")), "parameter");
        names.by_config = Some("config".into());
        assert_eq!(names.choose(Some("dhcp")), "config");
    }

    #[test]
    fn an_unreadable_parameter_does_not_spoil_the_others() {
        let cmdline = Cmdline::parse("ip=10.0.0.999 ip=eth0:dhcp");
        assert_eq!(parameters(&cmdline).len(), 1);
    }
}
