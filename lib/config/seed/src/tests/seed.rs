//! Network settings in cloud-init's files.

use corten_config::kinds::BondMode;
use corten_corpus::{hostile, sample, samples};
use corten_yaml::problem::Problems;
use proptest::prelude::*;

use crate::{LARGEST, PlatformNetwork, SeedLink, SeedNetwork, SeedShape, identity, network};

fn read(text: &str) -> Result<Option<SeedNetwork>, Problems> {
    network(text.as_bytes())
}

fn good(name: &str) -> SeedNetwork {
    let text = sample("network-config", name);
    network(&text)
        .unwrap_or_else(|problems| panic!("{name}: {problems}"))
        .unwrap()
}

fn link<'a>(network: &'a SeedNetwork, id: &str) -> &'a SeedLink {
    network.links.iter().find(|link| link.id == id).unwrap()
}

fn addresses(link: &SeedLink) -> Vec<String> {
    link.addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn corpus_samples_are_read() {
    for sample in samples("network-config") {
        good(&sample.name);
    }
    for sample in samples("meta-data") {
        let who = identity(&sample.bytes);
        let who = who.unwrap_or_else(|problems| panic!("{}: {problems}", sample.name));
        assert!(who.name().is_some(), "{}", sample.name);
    }
    for sample in samples("platform-network") {
        let found = PlatformNetwork::from_meta(&sample.bytes);
        found.unwrap_or_else(|problems| panic!("{}: {problems}", sample.name));
    }
}

#[test]
fn network_config_version_1_is_read_as_a_list() {
    let said = good("v1.yaml");
    let first = link(&said, "eth0");
    assert_eq!(addresses(first), ["192.168.1.11/24", "fd00:1::11/64"]);
    assert_eq!((first.mtu, first.hardware_addr), (Some(1400), None));
    let gateways: Vec<String> = first
        .routes
        .iter()
        .map(|said| said.route.gateway.unwrap().to_string())
        .collect();
    assert_eq!(gateways, ["192.168.1.1", "fe80::1"]);
    assert!(link(&said, "eth2").dhcp4.is_some());
    let bond = link(&said, "bond0");
    let SeedShape::Bond {
        members, config, ..
    } = &bond.shape
    else {
        panic!("{bond:?}")
    };
    assert_eq!(config.mode, BondMode::ActiveBackup);
    assert_eq!(
        (config.miimon, members.as_slice()),
        (Some(100), &["eth1".to_owned()][..])
    );
    let destination = bond.routes[0].route.destination.unwrap();
    assert_eq!(destination.to_string(), "10.10.0.0/16");
    let vlan = &link(&said, "bond0.7").shape;
    assert_eq!(
        *vlan,
        SeedShape::Vlan {
            parent: "bond0".to_owned(),
            id: 7
        }
    );
    assert_eq!(
        said.dns_servers,
        ["192.168.1.3".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(said.search_domains, ["lan", "example.com"]);
    assert_eq!(said.routes.len(), 1);
    assert_eq!(said.routes[0].route.metric, Some(50));
}

#[test]
fn network_config_version_2_is_read_as_netplan() {
    let said = good("v2.yaml");
    let ids: Vec<&str> = said.links.iter().map(|link| link.id.as_str()).collect();
    assert_eq!(ids, ["others", "spare1", "uplink", "bond0", "bond0.4"]);
    let SeedShape::Card(found) = &link(&said, "others").shape else {
        panic!("{said:?}")
    };
    assert_eq!(found.name.as_deref(), Some("eth[1-3]"));
    let how = link(&said, "others").dhcp4.clone().unwrap();
    assert_eq!((how.route_metric, how.skip_hostname), (Some(200), true));
    let bond = link(&said, "bond0");
    assert_eq!(bond.hardware_addr.unwrap().0, [2, 0, 0, 0, 0, 9]);
    let last = &bond.routes[1];
    assert!(last.on_link && last.route.destination.is_none());
    assert_eq!(said.dns_servers.len(), 2);
    assert_eq!(good("dhcp.yaml").links.len(), 1);
    for nothing in [
        "",
        "# by a generator\n",
        "---\n",
        "--- # by a generator\nnull\n",
        "version: 2\n",
        "version: 1\nconfig: []\n",
    ] {
        let said = read(nothing).unwrap().unwrap_or_default();
        assert_eq!(said, SeedNetwork::default(), "{nothing}");
    }
}

/// Invalid files, and the expected problem.
const WRONG: &[(&str, &str)] = &[
    ("words", "must be a map of fields"),
    ("ethernets: {}", "version must be 1 or 2"),
    ("version: 3", "version must be 1 or 2"),
    (
        "network: {config: disabled}",
        "network.version must be 1 or 2",
    ),
    (
        "version: 1\n---\nversion: 2",
        "line 3, column 1: a second document",
    ),
    ("version: 2\nethernets: [a]", "ethernets must be a map"),
    (
        "version: 2\nethernets: {eth0: {dhcp4: perhaps}}",
        "ethernets.eth0.dhcp4 must be true or false",
    ),
    (
        "network: {version: 2, ethernets: {eth0: {adresses: [1]}}}",
        "unknown field: network.ethernets.eth0.adresses; did you mean \"addresses\"?",
    ),
    (
        "version: 2\nethernets: {a/b: {dhcp4: true}}",
        "ethernets.a/b must be a valid name of a network link",
    ),
    (
        "version: 2\nethernets: {a: {match: {name: 'eth[0'}}}",
        "ethernets.a.match.name must be",
    ),
    (
        "version: 2\nethernets: {a: {gateway4: 'fd00::1'}}",
        "gateway4 must be an IPv4 address",
    ),
    (
        "version: 2\nethernets: {a: {routes: [{to: default}]}}",
        "routes[0].via is required",
    ),
    (
        "version: 2\nethernets: {a: {routes: [{to: 10.0.0.0/8, via: 'fd00::1'}]}}",
        "mixes IPv4 and IPv6",
    ),
    (
        "version: 2\nethernets: {a: {mtu: 12}}",
        "ethernets.a.mtu must be from 68 to 65536",
    ),
    (
        "version: 2\nethernets: {a: {mtu: 1400, routes: [{to: 10.0.0.0/8, via: 10.0.0.1, mtu: 1500}]}}",
        "ethernets.a.routes[0].mtu must not be above the link's own, 1400",
    ),
    (
        "version: 2\nbridges: {br0: {interfaces: [a-link-that-does-not-exist]}}",
        "bridges.br0.interfaces must name links",
    ),
    (
        "version: 2\nbridges: {br0: {interfaces: [a]}, br1: {interfaces: [a]}}",
        "has the link \"a\" twice in its bonds and bridges",
    ),
    (
        "version: 2\nethernets: {a: {routing-policy: [{table: 5}]}}",
        "routing-policy[0] needs from or to",
    ),
    (
        "version: 2\nethernets: {a: {routing-policy: [{from: 10.0.0.1, table: 0}]}}",
        "routing-policy[0].table must be from 1 to 4294967295",
    ),
    (
        "version: 2\nethernets: {a: {routing-policy: [{from: 10.0.0.1, to: 'fd00::1', table: 5}]}}",
        "routing-policy[0].to must be of the family of from",
    ),
    (
        "version: 2\nethernets: {a: {routing-policy: [{from: 10.0.0.1, priority: 32766}]}}",
        "routing-policy[0].priority must be from 1 to 32765",
    ),
    (
        "version: 2\nethernets: {a: {routing-policy: [{from: 10.0.0.1, priority: 7, table: 5}, {to: 0.0.0.0/0, priority: 7, table: 6}]}}",
        "has two rules of priority 7: give each its own",
    ),
    (
        "version: 2\nbonds: {b: {parameters: {mode: magic}}}",
        "bonds.b.parameters.mode must be one of",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [a], parameters: {primary: c}}}",
        "a primary that is none of interfaces",
    ),
    (
        "version: 2\nethernets: {a: {routes: [{to: default, via: ''}]}}",
        "routes[0].via is required",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [a], parameters: {arp-ip-targets: ['fd00::1']}}}",
        "bonds.b.parameters.arp-ip-targets takes IPv4 addresses only",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [a], parameters: {mii-monitor-interval: 1, arp-interval: 1}}}",
        "bonds.b.parameters.arp-interval excludes mii-monitor-interval",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [a], parameters: {min-links: 2147483648}}}",
        "bonds.b.parameters.min-links must be from 0 to 2147483647",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [a, '']}}",
        "bonds.b.interfaces must name links",
    ),
    (
        "version: 2\nvlans: {v: {id: 2, link: a-link-that-does-not-exist}}",
        "vlans.v.link must name links",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [b, a]}}",
        "the link \"b\", which is on or part of itself",
    ),
    (
        "version: 2\nvlans: {v: {id: 2, link: v}, w: {id: 3, link: v}}",
        "the link \"v\", which is on or part of itself",
    ),
    (
        "version: 2\nbonds: {b: {interfaces: [c]}, c: {interfaces: [b, a]}}",
        "the link \"b\", which is on or part of itself",
    ),
    (
        "version: 2\nvlans: {v: {link: a, id: 4095}}",
        "vlans.v.id must be from 1 to 4094",
    ),
    (
        "version: 2\nvlans: {v: {id: 1}}",
        "vlans.v.link is required",
    ),
    (
        "version: 1\nconfig: [{type: bridge, bridge_interfaces: [a]}]",
        "config[0].name is required",
    ),
    (
        "version: 1\nconfig: [{type: tunnel, name: b}]",
        "config[0].type must be one of physical, bond, bridge",
    ),
    (
        "version: 1\nconfig: [{name: b}]",
        "config[0].type is required",
    ),
    (
        "version: 1\nconfig: [{type: physical}]",
        "config[0].name is required",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: static, address: 10.0.0.1}]}]",
        "subnets[0].address must be an address with a prefix",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: static, address: 10.0.0.1, netmask: 255.0.255.0}]}]",
        "subnets[0].netmask must be a mask",
    ),
    (
        "version: 1\nconfig: [{type: route, destination: 10.0.0.0, netmask: 'ffff:ffff:ff00::', gateway: 10.1.0.1}]",
        "config[0].netmask must have at most 32 bits",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: manual, routes: [{network: 10.0.0.0, netmask: 33, gateway: 10.1.0.1}]}]}]",
        "routes[0].netmask must have at most 32 bits",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: static, address: 10.0.0.1/24, gateway: 'fd00::1'}]}]",
        "gateway must be of the family",
    ),
    (
        "version: 1\nconfig: [{type: vlan, name: v, vlan_link: v, vlan_id: 2}]",
        "vlan_link must be another link",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: '', bond_interfaces: [a]}]",
        "config[0].name is required",
    ),
    (
        "version: 1\nconfig: [{type: vlan, name: v, vlan_link: '', vlan_id: 2}]",
        "config[0].vlan_link is required",
    ),
    (
        "version: 1\nconfig: [{type: route, destination: '', gateway: 10.0.0.1}]",
        "config[0].destination is required",
    ),
    (
        "version: 1\nconfig: [{type: route, destination: 10.0.0.0/8, gateway: ''}]",
        "config[0].gateway is required",
    ),
    (
        "version: 1\nconfig: [{type: nameserver, address: '', search: []}]",
        "config[0].address is required",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: static, address: ''}]}]",
        "subnets[0].address must be an address with a prefix",
    ),
    (
        "version: 1\nconfig: [{type: physical, name: a, subnets: [{type: manual, routes: [{network: '', gateway: 10.0.0.1}]}]}]",
        "routes[0] needs exactly one of network, destination",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {bond-miimon: 1, bond-arp-interval: 1}}]",
        "params.bond-arp-interval excludes bond-miimon",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {bond-updelay: 2147483648}}]",
        "params.bond-updelay must be from 0 to 2147483647",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {bond_min_links: 2, bond-min-links: 2}}]",
        "bond-min-links is given twice, in two spellings",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {bond-primary: c}}]",
        "config[0].params has a bond-primary that is none of bond_interfaces",
    ),
    (
        "version: 1\nconfig: [{type: route, network: 10.0.0.0/8, destination: 10.0.0.0/8, gateway: 10.0.0.1}]",
        "config[0].destination is required, or network in its place",
    ),
    (
        "version: 2\nethernets: {a: {match: {driver: []}}}",
        "ethernets.a.match needs macaddress, name or driver",
    ),
    (
        "version: 2\nethernets: {a: {addresses: [{10.0.0.1: {label: a}}]}}",
        "ethernets.a.addresses[0] must be an address",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a], params: {up-delay: 2147483648}}]",
        "params.up-delay must be from 0 to 2147483647",
    ),
    (
        "version: 1\nconfig: [{type: bond, name: b, bond_interfaces: [a, b]}]",
        "the link \"b\", which is on or part of itself",
    ),
    (
        "version: 1\nconfig: [{type: nameserver}]",
        "config[0].address is required",
    ),
    (
        "version: 1\nconfig: [{type: route, destination: 10.0.0.0/8}]",
        "config[0].gateway is required",
    ),
];

#[test]
fn problems_are_reported_with_their_field() {
    for (text, expected) in WRONG {
        let told = read(text).unwrap_err().to_string();
        assert!(told.contains(expected), "{text}: {told}");
    }
    let long = "#".repeat(LARGEST + 1);
    let told = read(&long).unwrap_err().to_string();
    assert_eq!(told, "larger than 256 KiB");
    let told = identity(b"hostname: [a]\n").unwrap_err().to_string();
    assert!(told.contains("hostname must be"), "{told}");
}

#[test]
fn network_config_version_2_refers_to_links_by_any_name() {
    let text = "version: 2
ethernets: {the left card: {match: {macaddress: '02:00:00:00:00:01'}}}
bonds: {b: {interfaces: [the left card, eth1], parameters: {primary: the left card}}}
vlans: {v: {id: 2, link: the left card}}
";
    let said = read(text).unwrap().unwrap();
    let left = "the left card";
    let bond = format!("{:?}", link(&said, "b").shape);
    assert!(bond.contains(r#"["the left card", "eth1"]"#), "{bond}");
    assert!(bond.contains(r#"Some("the left card")"#), "{bond}");
    let vlan = SeedShape::Vlan {
        parent: left.to_owned(),
        id: 2,
    };
    assert_eq!(link(&said, "v").shape, vlan);
}

proptest! {
    #[test]
    fn hostile_network_configs_never_panic(bytes in hostile("network-config")) {
        if let Ok(Some(said)) = network(&bytes) {
            let fits = |link: &SeedLink| link.addresses.iter().all(|own| {
                own.prefix <= if own.address.is_ipv4() { 32 } else { 128 }
            });
            prop_assert!(said.links.iter().all(fits));
        }
    }

    #[test]
    fn hostile_meta_data_gives_no_invalid_host_name(bytes in hostile("meta-data")) {
        if let Ok(who) = identity(&bytes) {
            prop_assert!(who.name().is_none_or(corten_values::is_host_name));
        }
    }
}
