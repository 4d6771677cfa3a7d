//! Tests the engine on the real kernel, each test in its own network namespace.

use std::net::IpAddr;
use std::time::Duration;

use corten_base::testing::{alone, kernel_lacks};
use corten_sys::packet::Capture;
use corten_types::network_spec::{Bridge, Enabled, Master, RouteSpec};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressScope};
use tokio::time::{Instant, sleep, timeout};

use super::tests::{LAYER, all, prefix};
use super::tunnel_tests::with_tunnel;
use super::{Found, Kernel as _, Memory, Rtnetlink, Units, apply};
use crate::layers::{Specs, route};
use crate::wireguard::tests::{key, peer};

pub(super) async fn applied(
    kernel: &Rtnetlink,
    memory: &mut Memory,
    wanted: &Units,
) -> Vec<String> {
    let now = Instant::now();
    apply(kernel, memory, wanted, now).await.unwrap()
}

/// The kernel with a pair of links, `cable` and `plug`.
pub(super) async fn with_cable() -> Rtnetlink {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let cable = rtnetlink::LinkVeth::new("cable", "plug").build();
    handle.link().add(cable).execute().await.unwrap();
    Rtnetlink(handle)
}

fn bridged(address: &str, stp: bool) -> Units {
    let mut specs = Specs::default();
    specs.link(LAYER, "lo");
    let bridge = specs.link(LAYER, "br0");
    (bridge.logical, bridge.kind, bridge.mtu) = (true, "bridge", 1400);
    bridge.bridge_master = Some(Bridge {
        stp: Enabled { enabled: stp },
        ..Bridge::default()
    });
    let master_name = "br0".to_owned();
    specs.link(LAYER, "cable").bridge_slave = Some(Master { master_name });
    specs.address(LAYER, "br0", prefix(address), 0);
    specs.address(LAYER, "br0", prefix("fd00::2/64"), 0);
    let gateway = Some("10.0.0.1".parse().unwrap());
    let on_link = route(LAYER, "br0", prefix("10.0.0.1/32"), None);
    specs
        .routes
        .push(route(LAYER, "br0", prefix("0.0.0.0/0"), gateway));
    specs.routes.push(on_link);
    let nowhere = route(LAYER, "", prefix("10.66.0.0/16"), None);
    specs.routes.push(RouteSpec {
        route_type: "blackhole",
        scope: "global",
        ..nowhere
    });
    let mut six = route(LAYER, "br0", prefix("fd01::/64"), None);
    six.mtu = 1300;
    specs.routes.push(six);
    all(&specs)
}

#[test]
fn network_config_is_applied_to_the_kernel_and_removed() {
    alone(async {
        let kernel = with_cable().await;
        let mut memory = Memory::default();
        let wanted = bridged("10.0.0.2/24", false);
        assert_eq!(applied(&kernel, &mut memory, &wanted).await, [""; 0]);
        let found = kernel.look().await.unwrap();
        let bridge = &found.links["br0"];
        assert_eq!(
            (&*bridge.kind, bridge.is_up, bridge.mtu),
            ("bridge", true, 1400)
        );
        assert!(found.links["lo"].is_up);
        assert_eq!(found.links["cable"].master, bridge.index);
        assert!(
            found
                .addresses
                .contains_key(&(bridge.index, prefix("10.0.0.2/24")))
        );
        let ours = |found: &Found| {
            found
                .routes
                .iter()
                .filter(|route| route.priority == 1024)
                .count()
        };
        // Besides our four routes there may be routes to the IPv6 link-local network.
        assert!(ours(&found) >= 4, "{:#?}", found.routes);
        let index = bridge.index;

        // Applying the same again changes nothing.
        assert_eq!(applied(&kernel, &mut memory, &wanted).await, [""; 0]);
        assert_eq!(kernel.look().await.unwrap().links["br0"].index, index);

        // First another address in place, then a new bridge that keeps all its settings.
        let moved = bridged("10.0.0.3/24", false);
        assert_eq!(applied(&kernel, &mut memory, &moved).await, [""; 0]);
        let recreated = bridged("10.0.0.3/24", true);
        assert_eq!(applied(&kernel, &mut memory, &recreated).await, [""; 0]);
        let found = kernel.look().await.unwrap();
        let bridge = &found.links["br0"];
        assert_ne!(bridge.index, index);
        assert_eq!(found.links["cable"].master, bridge.index);
        let has = |address| {
            found
                .addresses
                .contains_key(&(bridge.index, prefix(address)))
        };
        assert!(has("10.0.0.3/24") && !has("10.0.0.2/24"));
        assert!(ours(&found) >= 4, "{:#?}", found.routes);

        // The kernel refuses an unreachable gateway, and the engine restores the former network.
        let mut bad = recreated.clone();
        let unit = bad.get_mut("br0").unwrap();
        let far = Some("192.0.2.1".parse().unwrap());
        unit.routes
            .push(route(LAYER, "br0", prefix("10.77.0.0/16"), far));
        let complaints = applied(&kernel, &mut memory, &bad).await;
        let [complaint] = complaints.as_slice() else {
            panic!("{complaints:?}");
        };
        assert!(
            complaint.ends_with("; the previous settings are restored"),
            "{complaint}"
        );
        assert_eq!(kernel.look().await.unwrap().routes, found.routes);

        assert_eq!(applied(&kernel, &mut memory, &Units::new()).await, [""; 0]);
        let found = kernel.look().await.unwrap();
        assert!(!found.links.contains_key("br0"));
        assert_eq!((found.links["cable"].master, ours(&found)), (0, 0));
    });
}

#[test]
fn neighbours_learn_that_an_address_has_moved_to_the_node() {
    alone(async {
        let kernel = with_cable().await;
        let mut specs = Specs::default();
        specs.link(LAYER, "cable");
        specs.link(LAYER, "plug");
        let mut memory = Memory::default();
        assert_eq!(applied(&kernel, &mut memory, &all(&specs)).await, [""; 0]);
        let links = kernel.look().await.unwrap().links;
        let neighbour = Capture::start(links["plug"].index, false, &[]).unwrap();

        specs.address(LAYER, "cable", prefix("192.0.2.9/32"), 0);
        specs.addresses[0].announce_with_arp = true;
        assert_eq!(applied(&kernel, &mut memory, &all(&specs)).await, [""; 0]);
        let mac = &*links["cable"].hardware_addr;
        let own = [192, 0, 2, 9];
        // Ethernet, ARP for IPv4, a request; sender and target are the same address (RFC 826).
        let head = [&[0xff; 6], mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], mac, &own].concat();
        let announcement = [&head[..], &[0; 6], &own].concat();
        let mut frame = [0; 1514];
        let heard = async {
            loop {
                let packet = neighbour.next(&mut frame, false).unwrap();
                match packet.map(|packet| &frame[..packet.captured]) {
                    Some(packet) if packet.starts_with(&announcement) => return,
                    Some(_) => {}
                    None => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let heard = timeout(Duration::from_secs(60), heard).await;
        heard.expect("no announcement");
    });
}

/// An address for the node's own use does not appear among its reachable addresses, in either family.
#[test]
fn host_only_address_is_not_a_node_address() {
    const FOUR: &str = "169.254.116.108/32";
    const SIX: &str = "fd54:616c:6f73::1/128";
    alone(async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut specs = Specs::default();
        specs.link(LAYER, "lo");
        for address in [FOUR, SIX] {
            specs.address(LAYER, "lo", prefix(address), 0);
        }
        for address in &mut specs.addresses {
            address.scope = "host";
        }
        let kernel = Rtnetlink(handle.clone());
        let mut memory = Memory::default();
        let wanted = all(&specs);
        assert_eq!(applied(&kernel, &mut memory, &wanted).await, [""; 0]);
        let found: Vec<_> = handle
            .address()
            .get()
            .execute()
            .try_collect()
            .await
            .unwrap();
        let found = |address: IpAddr| {
            let ours = AddressAttribute::Address(address);
            let mut all = found.iter();
            all.find(|message| message.attributes.contains(&ours))
                .unwrap()
        };
        let four = found(prefix(FOUR).address);
        assert_eq!(four.header.scope, AddressScope::Host);
        let six = found(prefix(SIX).address);
        let flags = six.header.flags;
        assert!(flags.contains(AddressHeaderFlags::Deprecated), "{six:?}");
        // The address never expires.
        assert!(flags.contains(AddressHeaderFlags::Permanent), "{six:?}");
    });
}

/// `network/wireguard/tests.rs` tests the messages' bytes, `tests/network.rs` the image's kernel.
#[test]
fn wireguard_peers_are_applied_to_the_kernel() {
    alone(async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let kernel = Rtnetlink(handle);
        let mut memory = Memory::default();
        let here = "192.0.2.1:51820";
        let two = peer(2, here, &["10.8.0.2/32", "fd00::/64"]);
        let before = with_tunnel(&[two.clone(), peer(3, "", &["10.8.0.3/32"])]);
        let complaints = applied(&kernel, &mut memory, &before).await;
        if complaints.iter().any(|text| text.contains("not supported")) {
            return kernel_lacks("WireGuard");
        }
        assert_eq!(complaints, [""; 0]);
        let settings = |found: &Found| {
            let tunnel = found.links["wg0"].wireguard.as_ref().unwrap();
            assert_ne!(tunnel.public_key, key(0));
            tunnel.settings.clone()
        };
        let first = kernel.look().await.unwrap();
        let found = settings(&first);
        assert_eq!((found.listen_port, found.firewall_mark), (51820, 0x40));
        assert_eq!(found.peers.len(), 2);

        // One peer comes, one changes and one goes; the tunnel stays.
        let mut changed = two.clone();
        changed.keepalive = 0;
        let after = with_tunnel(&[changed.clone(), peer(4, here, &["10.8.0.3/32"])]);
        assert_eq!(applied(&kernel, &mut memory, &after).await, [""; 0]);
        let second = kernel.look().await.unwrap();
        assert_eq!(second.links["wg0"].index, first.links["wg0"].index);
        let mut peers = settings(&second).peers;
        peers.sort_by_key(|peer| peer.public_key);
        for peer in &mut peers {
            peer.allowed_ips.sort();
        }
        assert_eq!(peers, [changed, peer(4, here, &["10.8.0.3/32"])]);
    });
}
