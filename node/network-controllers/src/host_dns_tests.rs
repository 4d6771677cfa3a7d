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

/// Hosts of the config that have the same address.
const HOSTS: &str = "registry.test n2";

/// A controller that reads the names.
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
        let (names, mut found) = watch::channel(Names::default());
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
        let names = found.wait_for(|names| *names != Names::default()).await;
        let names = names.unwrap();
        let reverse = names.reverse[&address("10.0.0.9")[0]].clone();
        assert_eq!(
            (names.reverse.len(), reverse.join(" ")),
            (1, HOSTS.to_owned())
        );
        let names = names.addresses.iter();
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

#[tokio::test]
async fn own_name_is_known_with_the_address_by_which_others_reach_the_node() {
    let store = Store::new();
    let mut runtime = Runtime::new(store.clone());
    let (names, mut found) = watch::channel(Names::default());
    runtime.add(Reader(false, names)).unwrap();
    let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
    let name = |hostname: &str, domainname: &str| {
        let status = HostnameStatus {
            hostname: hostname.to_owned(),
            domainname: domainname.to_owned(),
        };
        let draft = Draft::new(HostnameStatus::ID, status);
        store.put(draft, "").unwrap();
    };
    name("N1", "test");
    let default = NodeAddress {
        addresses: vec!["10.0.0.5/24".to_owned()],
        sort_algorithm: "v1",
    };
    store
        .put(Draft::new(NodeAddress::DEFAULT, default), "")
        .unwrap();
    let mut knows = async |expected: &[&str]| {
        let own = ["10.0.0.5".parse::<IpAddr>().unwrap()];
        let is_expected = |names: &Names| {
            names.addresses.keys().eq(expected) && names.addresses.values().all(|all| *all == own)
        };
        let waiting = timeout(HEALTH, found.wait_for(is_expected));
        waiting.await.unwrap().unwrap();
    };
    knows(&["n1", "n1.test"]).await;
    // The loopback's name stays the loopback's.
    name("localhost", "test");
    knows(&["localhost.test"]).await;
}

#[test]
fn only_name_servers_that_did_not_answer_are_asked_last() {
    let store = Store::new();
    store.register::<DnsUpstream>().unwrap();
    for (addr, healthy) in [("192.0.2.1:53", false), ("192.0.2.2:53", true)] {
        let addr = addr.parse().unwrap();
        let upstream = Draft::new(&format!("{addr}"), DnsUpstream { healthy, addr });
        store.put(upstream, "").unwrap();
    }
    let expected = ["192.0.2.1:53".parse().unwrap()];
    assert_eq!(silent(&store.list_as::<DnsUpstream>()), expected.into());
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
