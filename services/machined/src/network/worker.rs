//! The task that owns links, addresses and names.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use futures_util::{Stream, StreamExt};
use rtnetlink::Handle;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::SocketAddr;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::ip_param::{IpParam, Method, method_for};
use super::link_config::LinkConfig;
use super::netlink::LinkFacts;
use super::{Status, Wishes, dhcp, files, netlink};
use crate::console;

/// Everyone who may name the node; the first who does wins, then the network, then the default.
pub(super) struct Names {
    pub(super) by_config: Option<String>,
    pub(super) by_parameter: Option<String>,
    pub(super) default: String,
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

pub(super) struct Link {
    facts: LinkFacts,
    method: Method,
    client: Option<AbortHandle>,
    config: LinkConfig,
}

pub(super) struct Worker {
    pub(super) handle: Handle,
    pub(super) parameters: Vec<IpParam>,
    pub(super) names: Names,
    pub(super) nameservers: Vec<IpAddr>,
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) addresses: BTreeMap<(u32, IpAddr), u8>,
    /// The link that takes an `ip=` without a device.
    pub(super) first: Option<u32>,
    pub(super) news_sender: mpsc::UnboundedSender<dhcp::News>,
    pub(super) publisher: watch::Sender<Status>,
    pub(super) written: Option<NameFiles>,
    pub(super) run: PathBuf,
}

/// What stands in the name files: host name, name servers, search domains.
pub(super) type NameFiles = (String, Vec<IpAddr>, Vec<String>);

pub(super) type Received = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr);

impl Worker {
    pub(super) async fn run(
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
                    // Not the loopback's, not those of bridges and containers.
                    && self.links.contains_key(&index)
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
            if facts.has_carrier != link.facts.has_carrier {
                let what = if facts.has_carrier {
                    "connected"
                } else {
                    "disconnected"
                };
                console::say(&format!("network: {} is {what}", facts.name));
            }
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
            console::say(&format!("network: found {}", facts.name));
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
}
