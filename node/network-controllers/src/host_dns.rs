//! Runs the node's caching DNS resolver.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_network::host_dns::{Forwarder, Listening, Names, PORT, is_healthy, service_addresses};
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_types::cluster::Member;
use corten_types::network::{AddressStatus, HostnameStatus, NodeAddress};
use corten_types::network_dns::{DnsResolveCache, DnsUpstream, HostDnsConfig};
use corten_types::network_names::{ResolverStatus, StaticHost};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Listen address for the node's own programs. All of 127.0.0.0/8 is local.
pub(super) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53));

/// Interval of health checks of the name servers.
const HEALTH: Duration = Duration::from_secs(20);

/// Shows the settings of the cache.
#[derive(Debug, Clone)]
pub(crate) struct DnsConfig {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for DnsConfig {
    fn name(&self) -> &'static str {
        "network.HostDNSConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<HostDnsConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().as_ref().map(wanted);
            context.put(Draft::new(HostDnsConfig::ID, config.unwrap_or_default()))?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn wanted(document: &Document) -> HostDnsConfig {
    if !document.host_dns().enabled {
        return HostDnsConfig::default();
    }
    let service = service_addresses(document);
    let all = [LOCAL].into_iter().chain(service.iter().copied());
    HostDnsConfig {
        enabled: true,
        listen_addresses: all.map(|address| SocketAddr::new(address, PORT)).collect(),
        service_address: service.iter().copied().find(IpAddr::is_ipv4),
        service_address_v6: service.iter().copied().find(IpAddr::is_ipv6),
        resolve_member_names: document.host_dns().resolves_members,
    }
}

/// Name servers to forward to; never the cache itself, even if it is configured as one.
fn upstreams(config: &HostDnsConfig, resolvers: Option<&ResolverStatus>) -> Vec<SocketAddr> {
    let servers = resolvers.map_or(&[][..], |resolvers| &resolvers.dns_servers);
    let servers = servers.iter().map(|server| SocketAddr::new(*server, PORT));
    servers
        .filter(|server| config.enabled && !config.listen_addresses.contains(server))
        .collect()
}

/// Checks the health of the name servers.
#[derive(Debug, Clone)]
pub(crate) struct Upstreams;

impl Controller for Upstreams {
    fn name(&self) -> &'static str {
        "network.DNSUpstreamController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<HostDnsConfig>(Dependency::Weak),
            Input::of::<ResolverStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<DnsUpstream>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut servers = Vec::new();
        let mut health = interval(HEALTH);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = context.event() => {
                    let config = context.get::<HostDnsConfig>(HostDnsConfig::ID)?;
                    let resolvers = context.get::<ResolverStatus>(ResolverStatus::ID)?;
                    servers = config.map_or_else(Vec::new, |config| upstreams(&config, resolvers.as_deref()));
                }
                _ = health.tick(), if !servers.is_empty() => {}
            }
            let found = join_all(servers.iter().map(|server| is_healthy(*server))).await;
            context.start_outputs();
            for (addr, healthy) in servers.iter().copied().zip(found) {
                let id = addr.to_string();
                context.put(Draft::new(&id, DnsUpstream { healthy, addr }))?;
            }
            context.remove_others::<DnsUpstream>()?;
        }
    }
}

/// The names that the node knows: those of the config, of the cluster's nodes if wanted, and its own. A node with a
/// domain also has its name without the domain.
fn known(context: &Context, has_members: bool) -> Result<Names, Failure> {
    let mut names = Names::default();
    for host in context.list::<StaticHost>()? {
        let name = host.id().to_lowercase();
        for address in &host.addresses {
            let reverse = names.reverse.entry(*address).or_default();
            reverse.push(name.clone());
        }
        names.addresses.insert(name, host.addresses.clone());
    }
    let mut node = |name: &str, addresses: &[IpAddr]| {
        let short = name.split('.').next().unwrap_or_default();
        // Some networks give this name to each machine. It is the loopback everywhere.
        for name in [name, short]
            .into_iter()
            .filter(|name| !name.eq_ignore_ascii_case("localhost"))
        {
            let name = names.addresses.entry(name.to_lowercase());
            name.or_insert_with(|| addresses.to_vec());
        }
    };
    if has_members {
        for member in context.list::<Member>()? {
            node(&member.hostname, &member.addresses);
            node(member.id(), &member.addresses);
        }
    }
    let own = context.get::<HostnameStatus>(HostnameStatus::ID)?;
    let address = context.get::<NodeAddress>(NodeAddress::DEFAULT)?;
    if let (Some(own), Some(address)) = (own, address.and_then(|found| found.ips().next())) {
        node(&own.full(), &[address]);
    }
    Ok(names)
}

/// The name servers that did not answer when they were checked.
fn silent(upstreams: &[Typed<DnsUpstream>]) -> BTreeSet<SocketAddr> {
    let silent = upstreams.iter().filter(|upstream| !upstream.healthy);
    silent.map(|upstream| upstream.addr).collect()
}

/// Runs the cache.
#[derive(Debug, Clone)]
pub(crate) struct Cache;

impl Controller for Cache {
    fn name(&self) -> &'static str {
        "network.DNSResolveCacheController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<HostDnsConfig>(Dependency::Weak),
            Input::of::<ResolverStatus>(Dependency::Weak),
            Input::of::<AddressStatus>(Dependency::Weak),
            Input::of::<DnsUpstream>(Dependency::Weak),
            Input::of::<HostnameStatus>(Dependency::Weak),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::DEFAULT),
            Input::of::<StaticHost>(Dependency::Weak),
            Input::of::<Member>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<DnsResolveCache>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let forwarder = Forwarder::default();
        let mut listening: BTreeMap<SocketAddr, Listening> = BTreeMap::new();
        let mut asked = Vec::new();
        let mut failed = String::new();
        loop {
            tokio::select! {
                () = context.event() => {}
                () = sleep(HEALTH), if !failed.is_empty() => {}
            }
            let config = context.get::<HostDnsConfig>(HostDnsConfig::ID)?;
            let config = config.map(|config| (*config).clone()).unwrap_or_default();
            let resolvers = context.get::<ResolverStatus>(ResolverStatus::ID)?;
            let servers = upstreams(&config, resolvers.as_deref());
            if servers != asked {
                forwarder.ask(&servers)?;
                asked = servers;
            }
            forwarder.ask_last(silent(&context.list::<DnsUpstream>()?));
            forwarder.know(known(context, config.resolve_member_names)?);
            let own: BTreeSet<IpAddr> = context
                .list::<AddressStatus>()?
                .iter()
                .filter_map(|status| status.ip())
                .collect();
            // Addresses that the node lacks may appear later.
            let is_ours = |address: &&SocketAddr| {
                own.contains(&address.ip())
                    || address.ip() == LOCAL && own.contains(&Ipv4Addr::LOCALHOST.into())
            };
            let addresses: Vec<SocketAddr> = config
                .listen_addresses
                .iter()
                .filter(is_ours)
                .copied()
                .collect();
            // A socket whose address stays is kept open, so that its clients get their answers.
            listening.retain(|address, _| addresses.contains(address));
            let before = std::mem::take(&mut failed);
            for address in addresses {
                let Entry::Vacant(place) = listening.entry(address) else {
                    continue;
                };
                match forwarder.listen(address).await {
                    Ok(listener) => {
                        place.insert(listener);
                        console::say(&format!("name cache: answers at {address}"));
                    }
                    // The other addresses work meanwhile.
                    Err(error) => failed = error,
                }
            }
            if !failed.is_empty() && failed != before {
                console::warn(&format!("name cache: {failed}"));
            }
            context.start_outputs();
            for now in listening.values() {
                let cache = DnsResolveCache { status: "running" };
                context.put(Draft::new(&now.address.to_string(), cache))?;
            }
            context.remove_others::<DnsResolveCache>()?;
        }
    }
}

#[cfg(test)]
#[path = "host_dns_tests.rs"]
mod tests;
