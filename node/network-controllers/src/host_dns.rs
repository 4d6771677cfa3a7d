//! Runs the node's caching DNS resolver.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_network::host_dns::{Forwarder, Listening, Names, PORT, is_healthy, service_addresses};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::cluster::Member;
use corten_types::network::AddressStatus;
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

/// The names that the node knows: those of the config, and of the cluster's nodes if wanted. A node with a domain also
/// has its name without the domain.
fn known(context: &Context, has_members: bool) -> Result<Names, Failure> {
    let mut names = Names::new();
    for host in context.list::<StaticHost>()? {
        names.insert(host.id().to_lowercase(), host.addresses.clone());
    }
    if has_members {
        for member in context.list::<Member>()? {
            for name in [member.hostname.as_str(), member.id()] {
                let short = name.split('.').next().unwrap_or_default();
                for name in [name, short] {
                    let name = names.entry(name.to_lowercase());
                    name.or_insert_with(|| member.addresses.clone());
                }
            }
        }
    }
    Ok(names)
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
mod tests {
    use corten_config::MachineType as Kind;
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Start, Store};
    use corten_types::config::MachineType;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn dns_cache_never_queries_itself() {
        let config = HostDnsConfig {
            enabled: true,
            listen_addresses: vec![SocketAddr::new(LOCAL, PORT)],
            ..HostDnsConfig::default()
        };
        let resolvers = ResolverStatus {
            dns_servers: vec![LOCAL, "192.0.2.1".parse().unwrap()],
            search_domains: Vec::new(),
        };
        let expected = ["192.0.2.1:53".parse().unwrap()];
        assert_eq!(upstreams(&config, Some(&resolvers)), expected);
        assert!(upstreams(&HostDnsConfig::default(), Some(&resolvers)).is_empty());
    }

    /// A controller that reads the names once.
    #[derive(Debug, Clone)]
    struct Reader(bool, watch::Sender<Names>);

    impl Controller for Reader {
        fn name(&self) -> &'static str {
            "test"
        }

        fn inputs(&self) -> Vec<Input> {
            Cache.inputs()
        }

        fn outputs(&self) -> Vec<Output> {
            Vec::new()
        }

        async fn run(self, context: &mut Context) -> Result<(), Failure> {
            loop {
                context.event().await;
                self.1.send_replace(known(context, self.0)?);
            }
        }
    }

    #[tokio::test]
    async fn names_of_nodes_are_known_if_wanted_and_those_of_the_config_always() {
        let read = async |has_members: bool| {
            let store = Store::new();
            let mut runtime = Runtime::new(store.clone());
            let (names, mut found) = watch::channel(Names::new());
            runtime.add(Reader(has_members, names)).unwrap();
            let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
            let host = StaticHost {
                addresses: address("10.0.0.9"),
            };
            for id in ["Registry.test", "n2"] {
                store.put(Draft::new(id, host.clone()), "").unwrap();
            }
            for (id, text) in [("n1.test", "10.0.0.1"), ("n2.test", "10.0.0.2")] {
                let member = Member {
                    node_id: String::new(),
                    addresses: address(text),
                    hostname: id.to_owned(),
                    machine_type: MachineType::from(Kind::Worker),
                    operating_system: String::new(),
                    control_plane: None,
                };
                store.put(Draft::new(id, member), "").unwrap();
            }
            let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            let names = found.wait_for(|names| !names.is_empty()).await.unwrap();
            let names = names.iter();
            let names: Vec<String> = names
                .map(|(name, all)| format!("{name} {}", all[0]))
                .collect();
            names
        };
        assert_eq!(read(false).await, ["n2 10.0.0.9", "registry.test 10.0.0.9"]);
        let expected = [
            "n1 10.0.0.1",
            "n1.test 10.0.0.1",
            "n2 10.0.0.9",
            "n2.test 10.0.0.2",
            "registry.test 10.0.0.9",
        ];
        assert_eq!(read(true).await, expected);
    }

    /// An address of this process alone: all of 127.0.0.0/8 is on the loopback link.
    fn own(last: u8) -> SocketAddr {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 128 | last, high, low);
        let free = std::net::TcpListener::bind((ip, 0)).unwrap();
        free.local_addr().unwrap()
    }

    fn status(address: SocketAddr) -> AddressStatus {
        AddressStatus {
            address: format!("{}/8", address.ip()),
            local: String::new(),
            broadcast: String::new(),
            link_index: 1,
            link_name: "lo".to_owned(),
            family: "inet4",
            scope: "host",
            flags: String::new(),
        }
    }

    #[tokio::test]
    async fn dns_cache_answers_on_unchanged_addresses_while_another_is_added() {
        let [a, b, taken] = [own(1), own(2), own(3)];
        let _taken = std::net::UdpSocket::bind(taken).unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Cache).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let listen = |addresses: &[SocketAddr]| {
            let config = HostDnsConfig {
                enabled: true,
                listen_addresses: addresses.to_vec(),
                ..HostDnsConfig::default()
            };
            store
                .put(Draft::new(HostDnsConfig::ID, config), "")
                .unwrap();
        };
        let answers_at = async |address: SocketAddr| {
            let pointer = Pointer::of::<DnsResolveCache>(&address.to_string());
            let mut watcher = store.watch(&pointer, Start::Now).unwrap();
            while store
                .get_as::<DnsResolveCache>(&address.to_string())
                .is_none()
            {
                watcher.next().await.unwrap();
            }
        };
        let test = async {
            for (id, address) in [("a", a), ("b", b), ("c", taken)] {
                store.put(Draft::new(id, status(address)), "").unwrap();
            }
            listen(&[a]);
            answers_at(a).await;
            let mut client = TcpStream::connect(a).await.unwrap();
            listen(&[a, taken, b]);
            answers_at(b).await;
            assert!(
                store
                    .get_as::<DnsResolveCache>(&taken.to_string())
                    .is_none()
            );
            // A query for the root's name servers. No upstream is available, which yields an error answer.
            let question = [0, 17, 7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];
            client.write_all(&question).await.unwrap();
            let mut start = [0; 6];
            client.read_exact(&mut start).await.unwrap();
            assert_eq!((start[2], start[3], start[5] & 15), (7, 7, 2), "{start:?}");
        };
        timeout(HEALTH, test).await.unwrap();
    }
}
