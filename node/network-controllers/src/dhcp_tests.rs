//! DHCP clients against real servers over a veth pair: udhcpd, with leases of seconds, and dnsmasq.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use corten_base::testing::{Neighbour, alone, cable, give, skip};
use corten_network::default_layer::dhcp;
use corten_network::layers::{Layered, Specs};
use corten_resources::controller::Runtime;
use corten_resources::{Draft, Spec, Store};
use corten_sys::packet::{self, Capture};
use corten_types::network::{AddressStatus, LinkStatus, RouteStatus};
use corten_types::network_names::{HostnameSpec, OperatorSpec, ResolverSpec, TimeServerSpec};
use corten_types::network_spec::{AddressSpec, LAYERS, Layer, LinkSpec, RouteSpec};
use rtnetlink::LinkUnspec;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::apply::Apply;
use super::merge::Merge;
use super::operators::Operators;
use crate::netlink::{addresses::Addresses, links::Links, routes::Routes};

const PATIENCE: Duration = Duration::from_secs(120);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OWN: &str = "plug/10.0.0.50/24";
const DEFAULT_ROUTE: &str = "inet4/10.0.0.1//1024";

/// A server of the neighbour, killed on drop.
struct Server {
    child: Child,
    directory: TempDir,
}

impl Server {
    /// Starts the program; `None`, with a message, if it is not installed.
    fn start(
        neighbour: &Neighbour,
        program: &str,
        arguments: impl FnOnce(&Path) -> Vec<String>,
    ) -> Option<Server> {
        let path = Path::new("/usr/sbin").join(program);
        if !path.exists() {
            skip(&format!("{program}, which `make deps` installs"));
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(path);
        command
            .args(arguments(directory.path()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = neighbour.acts(move || command.spawn().unwrap());
        Some(Server { child, directory })
    }

    /// Offers this single address with a lease of this many seconds; `more` is added to the configuration.
    fn udhcpd(
        neighbour: &Neighbour,
        own: &str,
        gives: &str,
        lease: u32,
        more: &str,
    ) -> Option<Server> {
        Server::start(neighbour, "udhcpd", |directory| {
            let at = |name: &str| directory.join(name).display().to_string();
            File::create(at("leases")).unwrap();
            let text = format!(
                "interface far\nstart 10.0.0.10\nend 10.0.0.20\nmax_leases 11\nmin_lease 1\n\
                 lease_file {}\npidfile {}\nstatic_lease 02:00:00:00:00:01 {gives}\n\
                 opt subnet 255.255.255.0\nopt lease {lease}\n{more}",
                at("leases"),
                at("pid")
            );
            fs::write(at("config"), text).unwrap();
            ["-f", "-I", own, &at("config")].map(str::to_owned).to_vec()
        })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn said(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A node with DHCP clients on its end of the veth pair.
struct Node(Store);

impl Node {
    fn start(operators: &[&'static str]) -> Node {
        let store = Store::new();
        store.add_namespace(LAYERS, "").unwrap();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Links::default()).unwrap();
        runtime.add(Addresses).unwrap();
        runtime.add(Routes).unwrap();
        runtime.add(Operators).unwrap();
        runtime.add(Apply::default()).unwrap();
        runtime.add(Merge::<LinkSpec>::named("links")).unwrap();
        runtime
            .add(Merge::<AddressSpec>::named("addresses"))
            .unwrap();
        runtime.add(Merge::<RouteSpec>::named("routes")).unwrap();
        runtime
            .add(Merge::<OperatorSpec>::named("operators"))
            .unwrap();
        runtime.add(Merge::<HostnameSpec>::named("names")).unwrap();
        runtime
            .add(Merge::<ResolverSpec>::named("resolvers"))
            .unwrap();
        runtime
            .add(Merge::<TimeServerSpec>::named("times"))
            .unwrap();
        let mut specs = Specs::default();
        specs.link(Layer::Configuration, "plug");
        said(&store, specs.links.remove(0));
        for operator in operators {
            said(&store, dhcp(Layer::Configuration, operator, "plug"));
        }
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        Node(store)
    }

    fn has<S: Spec>(&self, id: &str) -> bool {
        self.0.get_as::<S>(id).is_some()
    }

    fn link(&self) -> Option<LinkStatus> {
        self.0
            .get_as::<LinkStatus>("plug")
            .map(|link| (*link).clone())
    }

    /// Creation time of the address, which shows whether it was ever removed.
    fn since(&self, id: &str) -> SystemTime {
        let status = self.0.get_as::<AddressStatus>(id).unwrap();
        status.metadata().created
    }

    /// Its address from DHCPv6.
    fn sixth(&self) -> Option<String> {
        let all = self.0.list_as::<AddressStatus>();
        let found = all.iter().find(|status| status.address.ends_with("/128"));
        found.map(|status| status.id().to_owned())
    }
}

fn said<S: Layered>(store: &Store, spec: S) {
    let id = format!("configuration/{}", spec.id());
    store
        .put(Draft::new(&id, spec).in_namespace(LAYERS), "")
        .unwrap();
}

/// Waits until the condition holds; a failure shows the server's log.
async fn until(what: &str, server: Option<&Server>, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(PATIENCE, wait).await.is_err() {
        panic!(
            "timeout waiting for {what}; {}",
            server.map(Server::log).unwrap_or_default()
        );
    }
}

async fn neighbour() -> Neighbour {
    let neighbour = cable(MAC).await;
    neighbour.asks(async |handle| give(&handle, "far", &["10.0.0.1", "10.0.0.2"]).await);
    neighbour
}

/// Renewal and rebinding times (RFC 2132, sections 9.11 and 9.12), in seconds.
fn times(renew: u32, rebind: u32) -> String {
    format!("opt 0x3a {renew:08x}\nopt 0x3b {rebind:08x}\n")
}

#[test]
fn every_dhcp_option_is_used_until_the_server_withdraws_the_lease() {
    alone(async {
        let neighbour = neighbour().await;
        let options = "opt dns 10.0.0.3 10.0.0.4\nopt domain example.com\nopt hostname n1\n\
             opt search nodes.example.com example.com\n\
             opt mtu 1400\nopt ntpsrv 10.0.0.9\nopt router 10.0.0.7\n\
             opt staticroutes 10.9.0.0/16 10.0.0.2, 0.0.0.0/0 10.0.0.1\n";
        // Rebinding starts only after the test's timeout; a lost renewal request is repeated before.
        let more = times(3, 130) + options;
        let server = Server::udhcpd(&neighbour, "10.0.0.1", "10.0.0.50", 6000, &more);
        let Some(server) = server else { return };
        let node = Node::start(&["dhcp4"]);
        until("an address", Some(&server), || {
            node.has::<AddressStatus>(OWN)
        })
        .await;
        let (since, offers) = (node.since(OWN), server.said("sending OFFER"));
        until("routes and MTU", Some(&server), || {
            node.has::<RouteStatus>(DEFAULT_ROUTE)
                && node.has::<RouteStatus>("inet4/10.0.0.2/10.9.0.0/16/1024")
                && node.link().is_some_and(|link| link.mtu == 1400)
        })
        .await;
        // Classless static routes replace the router option (RFC 3442).
        assert!(!node.has::<RouteStatus>("inet4/10.0.0.7//1024"));
        until("names", Some(&server), || {
            node.has::<HostnameSpec>("hostname")
                && node.has::<ResolverSpec>("resolvers")
                && node.has::<TimeServerSpec>("timeservers")
        })
        .await;
        let name = node.0.get_as::<HostnameSpec>("hostname").unwrap();
        assert_eq!((&*name.hostname, &*name.domainname), ("n1", "example.com"));
        let resolvers = node.0.get_as::<ResolverSpec>("resolvers").unwrap();
        let asked: Vec<String> = resolvers
            .dns_servers
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(asked, ["10.0.0.3", "10.0.0.4"]);
        let searched = ["nodes.example.com", "example.com"];
        assert_eq!(resolvers.search_domains, searched);
        let times = node.0.get_as::<TimeServerSpec>("timeservers").unwrap();
        assert_eq!(times.time_servers, ["10.0.0.9"]);

        until("renewals", Some(&server), || {
            server.said("sending ACK") >= 3
        })
        .await;
        assert_eq!(server.said("sending OFFER"), offers, "{}", server.log());
        assert_eq!(node.since(OWN), since);

        // The lease was just renewed, so the server changes before the next renewal. udhcpd would not refuse it.
        drop(server);
        let Some(server) = dnsmasq(&neighbour, "10.0.0.60") else {
            return;
        };
        until("the other address", Some(&server), || {
            node.has::<AddressStatus>("plug/10.0.0.60/24") && !node.has::<AddressStatus>(OWN)
        })
        .await;
    });
}

#[test]
fn lease_expires_without_a_server_and_returns_with_it() {
    alone(async {
        let neighbour = neighbour().await;
        let more = "opt router 10.0.0.1\nopt mtu 1400\nopt dns 10.0.0.3\nopt hostname n1\n";
        let serve = || Server::udhcpd(&neighbour, "10.0.0.1", "10.0.0.50", 8, more);
        let Some(server) = serve() else { return };
        let node = Node::start(&["dhcp4"]);
        let has_all = || {
            node.has::<AddressStatus>(OWN)
                && node.has::<RouteStatus>(DEFAULT_ROUTE)
                && node.link().is_some_and(|link| link.mtu == 1400)
                && node.has::<HostnameSpec>("hostname")
                && node.has::<ResolverSpec>("resolvers")
        };
        until("a lease", Some(&server), has_all).await;
        drop(server);
        until("the end of the lease", None, || {
            !node.has::<AddressStatus>(OWN)
                && !node.has::<RouteStatus>(DEFAULT_ROUTE)
                && node.link().is_some_and(|link| link.mtu == 1500)
                && !node.has::<HostnameSpec>("hostname")
                && !node.has::<ResolverSpec>("resolvers")
        })
        .await;
        let server = serve().unwrap();
        until("a new lease", Some(&server), has_all).await;
    });
}

#[test]
fn second_dhcp_server_renews_a_lease_before_it_expires() {
    alone(async {
        let neighbour = neighbour().await;
        let serve = |own| Server::udhcpd(&neighbour, own, "10.0.0.50", 90, &times(2, 4));
        let Some(server) = serve("10.0.0.1") else {
            return;
        };
        let node = Node::start(&["dhcp4"]);
        until("a lease", Some(&server), || node.has::<AddressStatus>(OWN)).await;
        let since = node.since(OWN);
        drop(server);
        let server = serve("10.0.0.2").unwrap();
        // It acknowledges the rebind and a renewal, and offers nothing.
        until("the lease of the other server", Some(&server), || {
            server.said("sending ACK") >= 2
        })
        .await;
        assert_eq!(server.said("sending OFFER"), 0, "{}", server.log());
        assert_eq!(node.since(OWN), since);
    });
}

/// Offers this single IPv4 address, and addresses by DHCPv6.
fn dnsmasq(neighbour: &Neighbour, gives: &str) -> Option<Server> {
    Server::start(neighbour, "dnsmasq", |directory| {
        let leases = directory.join("leases").display().to_string();
        let mut arguments: Vec<String> = [
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=far",
            "--pid-file=",
            "--log-facility=-",
            "--no-ping",
            "--dhcp-range=fd00::50,fd00::fff0,64,120",
            "--dhcp-option=option6:dns-server,[fd00::1]",
            "--dhcp-option=option6:domain-search,example.com",
            "--dhcp-option=option6:ntp-server,[fd00::9]",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--dhcp-range={gives},{gives},120"));
        arguments.push(format!("--dhcp-leasefile={leases}"));
        arguments
    })
}

#[test]
fn reconnected_cable_keeps_the_addresses() {
    alone(async {
        let neighbour = cable(MAC).await;
        let plug_in = async || {
            neighbour.asks(async |handle| give(&handle, "far", &["fd00::1"]).await);
        };
        neighbour.asks(async |handle| give(&handle, "far", &["10.0.0.1"]).await);
        plug_in().await;
        let Some(server) = dnsmasq(&neighbour, "10.0.0.50") else {
            return;
        };
        let node = Node::start(&["dhcp4", "dhcp6"]);
        until("addresses", Some(&server), || {
            node.has::<AddressStatus>(OWN) && node.sixth().is_some()
        })
        .await;
        let sixth = node.sixth().unwrap();
        let since = (node.since(OWN), node.since(&sixth));
        until("the options of DHCPv6", Some(&server), || {
            let resolvers = node.0.get_as::<ResolverSpec>("resolvers");
            let times = node.0.get_as::<TimeServerSpec>("timeservers");
            let server = "fd00::1".parse().unwrap();
            resolvers.is_some_and(|found| {
                found.dns_servers.contains(&server) && found.search_domains == ["example.com"]
            }) && times.is_some_and(|found| found.time_servers == ["fd00::9"])
        })
        .await;
        let (offered, replied) = (server.said("DHCPOFFER"), server.said("DHCPREPLY"));
        let (acknowledged, advertised) = (server.said("DHCPACK"), server.said("DHCPADVERTISE"));

        neighbour.asks(async |handle| {
            let down = LinkUnspec::new_with_name("far").down().build();
            handle.link().set(down).execute().await.unwrap();
        });
        until("the loss of the carrier", None, || {
            node.link().is_some_and(|link| !link.link_state)
        })
        .await;
        plug_in().await;
        until("the rebind requests", Some(&server), || {
            server.said("DHCPACK") > acknowledged
                && server.said("DHCPREBIND") > 0
                && server.said("DHCPREPLY") > replied
        })
        .await;
        let again = (server.said("DHCPOFFER"), server.said("DHCPADVERTISE"));
        assert_eq!(again, (offered, advertised), "{}", server.log());
        let still = (node.since(OWN), node.since(&sixth));
        assert_eq!((node.sixth(), still), (Some(sixth), since));
    });
}

/// A host on the link that has 10.0.0.50, until the flag is set. It answers whatever is asked.
fn occupy(neighbour: &Neighbour, is_free: Arc<AtomicBool>) {
    let capture = neighbour.acts(|| {
        let index = packet::link_index("far").unwrap().unwrap();
        Capture::start(index, false, &[]).unwrap()
    });
    let host = [2, 0, 0, 0, 0, 0x50];
    let answer = [
        &MAC[..],
        &host,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &host,
        &[10, 0, 0, 50],
        &MAC,
        &[0; 4],
    ]
    .concat();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while !is_free.load(Ordering::Relaxed) {
            let found = capture.next(&mut buffer, true).unwrap();
            if found.is_some() && buffer[12..14] == [8, 6] {
                capture.send(&answer).unwrap();
            }
        }
    });
}

#[test]
fn address_of_another_host_is_declined_until_it_is_free() {
    alone(async {
        let neighbour = neighbour().await;
        let is_free = Arc::new(AtomicBool::new(false));
        occupy(&neighbour, is_free.clone());
        let Some(server) = dnsmasq(&neighbour, "10.0.0.50") else {
            return;
        };
        let node = Node::start(&["dhcp4"]);
        until("a decline", Some(&server), || {
            server.said("DHCPDECLINE") > 0
        })
        .await;
        assert!(!node.has::<AddressStatus>(OWN));
        is_free.store(true, Ordering::Relaxed);
        until("the address", Some(&server), || {
            node.has::<AddressStatus>(OWN)
        })
        .await;
    });
}

/// A server that has lost all its leases derives the address from the client's identity (dnsmasq(8), `--dhcp-range`).
#[test]
fn node_gets_the_same_dhcpv6_address_after_every_boot() {
    let addresses = RefCell::new(Vec::new());
    for _ in 0..2 {
        alone(async {
            let neighbour = cable(MAC).await;
            neighbour.asks(async |handle| give(&handle, "far", &["fd00::1"]).await);
            let Some(server) = dnsmasq(&neighbour, "10.0.0.50") else {
                return;
            };
            let node = Node::start(&["dhcp6"]);
            until("an address", Some(&server), || node.sixth().is_some()).await;
            addresses.borrow_mut().extend(node.sixth());
        });
    }
    if let [first, second] = addresses.into_inner().as_slice() {
        assert_eq!(first, second);
    }
}
