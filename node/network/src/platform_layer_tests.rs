//! Tests the seeds of `tests/corpus`, and hostile ones.

use corten_corpus::{hostile, sample};
use corten_seed::PlatformNetwork;
use corten_types::network::LinkStatus;
use corten_types::network_spec::Layer;
use proptest::prelude::{prop_assert, proptest};

use super::layers::{Layered, Specs};
use super::links::Present;
use super::platform_layer::{of_meta, of_seed};
use super::seed::{Place, Seed};

/// Three cards; the first has the alternative name `enp0s1`.
fn present() -> Present {
    let card = |name: &str, last: u8, other: &str| {
        let link = LinkStatus {
            alt_names: vec![other.to_owned()],
            hardware_addr: format!("52:54:00:00:00:{last:02x}"),
            ..LinkStatus::with_device()
        };
        (name.to_owned(), link)
    };
    Present::from([
        card("eth0", 1, "enp0s1"),
        card("eth1", 2, "enp0s2"),
        card("eth2", 3, "enp0s3"),
    ])
}

/// Settings of the sample v2.yaml without an effect.
const SET_NAME: &str = "network-config: line 7, column 17: network.ethernets.uplink.set-name is left out: the link \
                        keeps the node's name for it";

fn seed(name: &str) -> (Specs, Vec<String>) {
    let files = [
        Some(sample("network-config", name)),
        Some(sample("meta-data", "usual.yaml")),
    ];
    of_seed(&Seed::parse(&files, &Place::default()).unwrap(), &present())
}

fn ids<S: Layered>(specs: &[S]) -> Vec<String> {
    assert!(specs.iter().all(|spec| spec.layer() == Layer::Platform));
    specs.iter().map(Layered::id).collect()
}

#[test]
fn network_config_version_1_matches_links_by_hardware_address() {
    let (specs, complaints) = seed("v1.yaml");
    assert_eq!(complaints, [] as [&str; 0]);
    assert_eq!(
        ids(&specs.links),
        ["eth0", "eth1", "eth2", "bond0", "bond0.7"]
    );
    assert_eq!(
        ids(&specs.addresses),
        [
            "eth0/192.168.1.11/24",
            "eth0/fd00:1::11/64",
            "bond0/10.9.0.2/24"
        ]
    );
    assert_eq!(
        ids(&specs.routes),
        [
            "inet4/192.168.1.1//1024",
            "eth0/inet6/fe80::1//2048",
            "inet4/10.9.0.1/10.10.0.0/16/1024",
            "inet4/192.168.1.254/10.20.0.0/16/50",
        ]
    );
    assert_eq!(specs.routes[3].out_link_name, "eth0");
    assert_eq!(ids(&specs.operators), ["dhcp4/eth2"]);
    assert_eq!(specs.links[1].master(), Some("bond0"));
    assert_eq!(specs.links[4].parent_name, "bond0");
    let name = specs.hostname.unwrap();
    assert_eq!(
        (&*name.hostname, &*name.domainname),
        ("worker-3", "example.com")
    );
    assert_eq!(
        specs.resolver.unwrap().search_domains,
        ["lan", "example.com"]
    );
}

#[test]
fn network_config_version_2_matches_links_by_attributes() {
    let (specs, complaints) = seed("v2.yaml");
    assert_eq!(complaints, [SET_NAME]);
    assert_eq!(
        ids(&specs.links),
        ["eth1", "eth2", "spare1", "eth0", "bond0", "bond0.4"]
    );
    assert_eq!(ids(&specs.operators), ["dhcp4/eth1", "dhcp4/eth2"]);
    let asks = &specs.operators[0].dhcp;
    assert_eq!((asks.route_metric, asks.skip_hostname), (200, true));
    assert_eq!(
        ids(&specs.routes),
        [
            "inet4/192.168.14.1//1024",
            "eth0/inet6/2001:db8::1//2048",
            "inet4/10.10.4.137/10.0.0.0/8/1024",
            // The route to the gateway comes first.
            "inet4//10.99.0.1/32/300",
            "inet4/10.99.0.1//300",
        ]
    );
    let bond = &specs.links[4];
    assert_eq!((bond.kind, bond.mtu), ("bond", 9000));
    assert_eq!(bond.hardware_addr, Some([2, 0, 0, 0, 0, 9]));
    assert_eq!(specs.links[2].master(), Some("bond0"));
    assert_eq!(specs.links[5].vlan.unwrap().id, 4);
}

#[test]
fn rule_of_a_seed_for_every_address_has_the_family_alone() {
    let text = "version: 2\nethernets: {eth0: {routing-policy: [{from: 0.0.0.0/0, table: 101, priority: 50}]}}";
    let files = [Some(text.as_bytes().to_vec()), None];
    let seed = Seed::parse(&files, &Place::default()).unwrap();
    let (specs, complaints) = of_seed(&seed, &present());
    assert_eq!(complaints, [] as [&str; 0]);
    assert_eq!(ids(&specs.rules), ["inet4/50"]);
    assert_eq!(specs.rules[0].rule.src, None);
}

#[test]
fn bridges_have_their_members_and_rules_their_priorities() {
    let (specs, complaints) = seed("bridge-v1.yaml");
    assert_eq!(complaints, [] as [&str; 0]);
    assert_eq!(ids(&specs.links), ["eth0", "br0", "eth1"]);
    let bridge = &specs.links[1];
    assert_eq!((bridge.kind, bridge.logical), ("bridge", true));
    assert_eq!(bridge.hardware_addr, Some([2, 0, 0, 0, 0, 7]));
    assert!(!bridge.bridge_master.unwrap().stp.enabled);
    let master = |specs: &Specs, at: usize| specs.links[at].master().map(str::to_owned);
    assert_eq!(master(&specs, 0).as_deref(), Some("br0"));
    assert_eq!(master(&specs, 2).as_deref(), Some("br0"));

    let (specs, complaints) = seed("bridges.yaml");
    assert_eq!(complaints, [] as [&str; 0]);
    assert_eq!(ids(&specs.links), ["eth1", "eth0", "br0", "br1"]);
    let uses_tree = |at: usize| specs.links[at].bridge_master.unwrap().stp.enabled;
    // Bridges of netplan use STP by default.
    assert_eq!((uses_tree(2), uses_tree(3)), (false, true));
    assert_eq!(master(&specs, 0).as_deref(), Some("br1"));
    assert_eq!(specs.links[3].mtu, 1400);
    assert_eq!(ids(&specs.operators), ["dhcp4/br0"]);
    assert_eq!(
        ids(&specs.rules),
        ["inet4/32765", "inet4/50", "inet6/32764"]
    );
    let rule = &specs.rules[0].rule;
    let from = rule.src.unwrap().to_string();
    assert_eq!(
        (from.as_str(), rule.dst, rule.table),
        ("10.1.0.5/32", None, 101)
    );
    assert_eq!(specs.rules[2].rule.dst, None);
}

#[test]
fn missing_link_is_reported_and_affects_no_other_link() {
    let mut seed = Seed::default();
    let files = [Some(sample("network-config", "v2.yaml")), None];
    seed.network = Seed::parse(&files, &Place::default()).unwrap().network;
    let mut present = present();
    present.remove("eth0");
    let (specs, complaints) = of_seed(&seed, &present);
    let unmatched = "no link matches uplink of network-config yet";
    assert_eq!(complaints, [SET_NAME, unmatched]);
    assert_eq!(
        ids(&specs.addresses),
        ["bond0/10.10.4.140/29", "bond0.4/10.34.34.34/32"]
    );
    // A port of a bond shows the bond's address; its permanent address identifies it.
    let mut card = LinkStatus::with_device();
    card.permanent_addr =
        std::mem::replace(&mut card.hardware_addr, "02:00:00:00:00:09".to_owned());
    present.insert("eth9".to_owned(), card);
    let (specs, complaints) = of_seed(&seed, &present);
    assert_eq!(complaints, [SET_NAME]);
    assert!(ids(&specs.addresses).contains(&"eth9/192.168.14.2/24".to_owned()));
}

#[test]
fn cards_are_matched_by_driver_and_settings_without_effect_are_told() {
    let text =
        "version: 2\nethernets:\n  fast: {match: {driver: 'mlx*'}, wakeonlan: true, dhcp4: true}\n";
    let files = [Some(text.into()), None];
    let seed = Seed::parse(&files, &Place::default()).unwrap();
    let mut present = present();
    for (name, driver) in [("eth1", "mlx5_core"), ("eth2", "virtio_net")] {
        present.get_mut(name).unwrap().driver = driver.to_owned();
    }
    let (specs, complaints) = of_seed(&seed, &present);
    assert_eq!(ids(&specs.links), ["eth1"]);
    let told = "network-config: line 3, column 46: ethernets.fast.wakeonlan is left out";
    assert!(complaints[0].starts_with(told), "{complaints:?}");
    assert_eq!(complaints.len(), 1);
}

/// Cards matched by address, under ids that are no valid names; the VLAN's parent has the name of another card as its
/// id.
const BY_ADDRESS: &str = "version: 2
ethernets:
  the card on the left: {match: {macaddress: '52:54:00:00:00:02'}}
  eth0: {match: {macaddress: '52:54:00:00:00:09'}}
bonds:
  b: {interfaces: [the card on the left, eth2], parameters: {primary: the card on the left}}
vlans:
  v: {id: 2, link: eth0, addresses: [10.0.0.2/24], dhcp4: true}
";

#[test]
fn bonds_and_vlans_use_the_links_their_ids_refer_to() {
    let files = [Some(BY_ADDRESS.into()), None];
    let seed = Seed::parse(&files, &Place::default()).unwrap();
    let mut present = present();
    let (specs, complaints) = of_seed(&seed, &present);
    assert_eq!(ids(&specs.links), ["eth1", "b", "eth2"]);
    let master = |at: usize| specs.links[at].master();
    assert_eq!((master(0), master(2)), (Some("b"), Some("b")));
    let settings = specs.links[1].bond_master.as_ref().unwrap();
    assert_eq!(settings.primary, "eth1");
    // Without its card there is no VLAN, least of all on the card whose name is the id.
    assert!(specs.addresses.is_empty() && specs.operators.is_empty());
    assert_eq!(complaints, ["no link matches eth0 of network-config yet"]);
    let mut card = LinkStatus::with_device();
    card.hardware_addr = "52:54:00:00:00:09".to_owned();
    present.insert("eth9".to_owned(), card);
    let (specs, complaints) = of_seed(&seed, &present);
    assert_eq!(complaints, [] as [&str; 0]);
    assert_eq!(ids(&specs.links), ["eth9", "eth1", "b", "eth2", "v"]);
    assert_eq!(specs.links[4].parent_name, "eth9");
    assert_eq!(ids(&specs.addresses), ["v/10.0.0.2/24"]);
    assert_eq!(ids(&specs.operators), ["dhcp4/v"]);
}

#[test]
fn route_without_a_matching_link_is_reported() {
    let config =
        "version: 1\nconfig: [{type: route, destination: 10.0.0.0/8, gateway: 10.1.1.1}]\n";
    let files = [Some(config.into()), None];
    let seed = Seed::parse(&files, &Place::default()).unwrap();
    let (specs, complaints) = of_seed(&seed, &present());
    assert!(specs.routes.is_empty());
    let told = "no link of network-config reaches 10.1.1.1, the gateway of a route";
    assert_eq!(complaints, [told]);
}

#[test]
fn platform_network_in_meta_becomes_specs() {
    let meta = |name: &str| {
        let network = PlatformNetwork::from_meta(&sample("platform-network", name)).unwrap();
        of_meta(&network, &present())
    };
    let specs = meta("static.yaml");
    assert_eq!(ids(&specs.links), ["eth0", "bond0", "bond0.9"]);
    assert_eq!(
        ids(&specs.addresses),
        ["bond0/147.75.61.43/31", "bond0/2604:1380::1/127"]
    );
    assert_eq!(
        ids(&specs.routes),
        [
            "inet4/147.75.61.42//1024",
            "100/inet4/147.75.61.44/10.0.0.0/8/1024",
            "inet4//192.0.2.0/24/1024"
        ]
    );
    assert_eq!(specs.routes[2].route_type, "blackhole");
    assert_eq!(specs.links[0].master(), Some("bond0"));
    let bond = specs.links[1].bond_master.as_ref().unwrap();
    assert_eq!((bond.miimon, bond.use_carrier), (Some(100), Some(true)));
    let name = specs.hostname.unwrap();
    assert_eq!(
        (&*name.hostname, &*name.domainname),
        ("worker-2", "example.com")
    );
    assert_eq!(
        specs.time_servers.unwrap().time_servers,
        ["time.example.com", "10.0.0.9"]
    );
    let specs = meta("dhcp.yaml");
    let asks = &specs.operators[0].dhcp;
    assert_eq!(asks.client_identifier.client_identifier, "duid");
    assert_eq!(asks.client_identifier.duid, "000300010200000000ff");
    assert_eq!(asks.route_metric, 512);
    let text = b"operators: [{operator: dhcp6, linkName: eth0, dhcp6: {clientIdentifier: {duidRawHex: '00:0A'}}}]";
    let specs = of_meta(&PlatformNetwork::from_meta(text).unwrap(), &present());
    let identifier = &specs.operators[0].dhcp.client_identifier;
    assert_eq!(
        (identifier.client_identifier, &*identifier.duid),
        ("duid", "000a")
    );
}

proptest! {
    #[test]
    fn hostile_seeds_become_specs_or_an_error(config in hostile("network-config"), meta in hostile("meta-data")) {
        if let Ok(seed) = Seed::parse(&[Some(config), Some(meta)], &Place::default()) {
            let (specs, _) = of_seed(&seed, &present());
            prop_assert!(specs.routes.iter().all(|route| route.dst == route.dst.network()));
            prop_assert!(specs.links.iter().all(|link| (1..=15).contains(&link.name.len())));
        }
    }

    #[test]
    fn hostile_meta_values_become_specs_or_an_error(bytes in hostile("platform-network")) {
        if let Ok(network) = PlatformNetwork::from_meta(&bytes) {
            let specs = of_meta(&network, &present());
            prop_assert!(specs.addresses.iter().all(|spec| !spec.link_name.is_empty()));
        }
    }
}
