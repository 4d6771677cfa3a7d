//! Every construct of cloud-init's `network-config` (cloud-init: "Networking config Version 1" and "Version 2"; netplan's
//! YAML reference): each is applied, or named with its field. The texts are ours.

use std::fmt::Write as _;

use corten_config::Document;
use corten_config::kinds::BondConfig;
use corten_values::Mac;
use corten_yaml::read::Word as _;

use crate::{SeedDhcp, SeedLink, SeedNetwork, SeedRoute, SeedShape, network};

/// A file, what the node does with it, and what it leaves out.
struct Case {
    text: &'static str,
    applied: &'static [&'static str],
    left_out: &'static [&'static str],
}

fn check(cases: &[Case]) {
    for case in cases {
        let found = network(case.text.as_bytes());
        let found = found.unwrap_or_else(|problems| panic!("{}\n{problems}", case.text));
        let found = found.unwrap();
        assert_eq!(shown(&found), case.applied, "{}", case.text);
        // Without the place in the text.
        let left_out: Vec<&str> = found
            .left_out
            .iter()
            .map(|line| line.splitn(3, [',', ':']).last().unwrap().trim())
            .collect();
        assert_eq!(left_out, case.left_out, "{}", case.text);
    }
}

/// A line for each link, then routes, rules and names.
fn shown(said: &SeedNetwork) -> Vec<String> {
    let mut lines: Vec<String> = said.links.iter().map(shown_link).collect();
    lines.extend(said.routes.iter().map(shown_route));
    lines.extend(said.rules.iter().map(|rule| {
        let mut line = format!("rule {} table {}", rule.families.join("+"), rule.table);
        for (name, network) in [("from", rule.from), ("to", rule.to)] {
            if let Some(network) = network {
                write!(line, " {name} {network}").unwrap();
            }
        }
        for (name, number) in [("priority", rule.priority), ("mark", rule.mark)] {
            if let Some(number) = number {
                write!(line, " {name} {number}").unwrap();
            }
        }
        line
    }));
    let servers = said.dns_servers.iter();
    lines.extend(servers.map(|server| format!("dns {server}")));
    let domains = said.search_domains.iter();
    lines.extend(domains.map(|domain| format!("search {domain}")));
    lines
}

fn shown_link(link: &SeedLink) -> String {
    let mut line = format!("{}:", link.id);
    match &link.shape {
        SeedShape::Card(how) => {
            line.push_str(" card");
            if let Some(mac) = how.mac {
                write!(line, " mac={}", shown_mac(mac)).unwrap();
            }
            if let Some(name) = &how.name {
                write!(line, " name={name}").unwrap();
            }
            if !how.drivers.is_empty() {
                write!(line, " driver={}", how.drivers.join("|")).unwrap();
            }
        }
        SeedShape::Bond {
            members,
            primary,
            config,
        } => {
            write!(
                line,
                " {} bond of {}",
                config.mode.word(),
                members.join("+")
            )
            .unwrap();
            if let Some(primary) = primary {
                write!(line, " primary={primary}").unwrap();
            }
        }
        SeedShape::Bridge { members, stp } => {
            write!(line, " bridge of {} stp={stp}", members.join("+")).unwrap();
        }
        SeedShape::Vlan { parent, id } => write!(line, " vlan {id} on {parent}").unwrap(),
    }
    if let Some(mtu) = link.mtu {
        write!(line, " mtu={mtu}").unwrap();
    }
    if let Some(mac) = link.hardware_addr {
        write!(line, " sets={}", shown_mac(mac)).unwrap();
    }
    let mut dhcp = |name: &str, how: &Option<SeedDhcp>| {
        let Some(how) = how else { return };
        write!(line, " {name}").unwrap();
        if let Some(metric) = how.route_metric {
            write!(line, "/metric={metric}").unwrap();
        }
        for (word, is_set) in [("routes", how.skip_routes), ("name", how.skip_hostname)] {
            if is_set {
                write!(line, "/no-{word}").unwrap();
            }
        }
    };
    dhcp("dhcp4", &link.dhcp4);
    dhcp("dhcp6", &link.dhcp6);
    for address in &link.addresses {
        write!(line, " {address}").unwrap();
    }
    for route in &link.routes {
        write!(line, " [{}]", shown_route(route)).unwrap();
    }
    line
}

fn shown_mac(mac: Mac) -> String {
    mac.0.map(|byte| format!("{byte:02x}")).join(":")
}

fn shown_route(said: &SeedRoute) -> String {
    let route = &said.route;
    let to = route.destination.map(|to| to.to_string());
    let mut line = to.unwrap_or_else(|| "default".to_owned());
    if let Some(gateway) = route.gateway {
        write!(line, " via {gateway}").unwrap();
    }
    if let Some(source) = route.source {
        write!(line, " from {source}").unwrap();
    }
    for (name, number) in [
        ("metric", route.metric),
        ("table", route.table),
        ("mtu", route.mtu),
    ] {
        if let Some(number) = number {
            write!(line, " {name} {number}").unwrap();
        }
    }
    if said.on_link {
        line.push_str(" on-link");
    }
    line
}

const LEFT_OUT: &str = "is not supported yet, and is left out";

#[test]
fn version_1_cards_subnets_and_routes_are_applied() {
    check(&[
        Case {
            text: "
version: 1
config:
  - {type: physical, name: lan0, mac_address: '52:54:00:aa:00:01', mtu: 9000, accept-ra: true, keep_configuration: true,
     subnets: [{type: dhcp}]}
  - {type: physical, name: lan1, subnets: [{type: dhcp4, metric: 50, control: auto}, {type: dhcp6}]}
  - {type: physical, name: lan2, accept-ra: false,
     subnets: [{type: ipv6_slaac}, {type: ipv6_dhcpv6-stateless}, {type: manual, control: manual}]}
  - {type: physical, name: lan3, subnets: [{type: ipv6_dhcpv6-stateful}]}
",
            applied: &[
                "lan0: card mac=52:54:00:aa:00:01 mtu=9000 dhcp4",
                "lan1: card dhcp4/metric=50 dhcp6",
                "lan2: card",
                "lan3: card dhcp6",
            ],
            left_out: &["config[2].accept-ra is not supported yet, and is left out"],
        },
        Case {
            text: "
version: 1
config:
  - type: physical
    name: lan0
    subnets:
      - type: static
        address: 198.51.100.20
        netmask: 255.255.255.128
        broadcast: 198.51.100.127
        gateway: 198.51.100.1
        metric: 20
        scope: global
        ipv4: true
        mtu: 1400
        dns_nameservers: [198.51.100.2, 198.51.100.3]
        dns_search: lab.example
        routes:
          - {network: 203.0.113.0, netmask: 24, gateway: 198.51.100.9, metric: 7}
          - {destination: 192.0.2.64/26, gateway: 198.51.100.10}
          - {network: 0.0.0.0/0, gateway: 198.51.100.11, metric: 900}
      - {type: static6, address: '2001:db8:9::20', netmask: 'ffff:ffff:ffff:ffff::', ipv6: true}
",
            applied: &[
                "lan0: card 198.51.100.20/25 2001:db8:9::20/64 [default via 198.51.100.1 metric 20] \
                 [203.0.113.0/24 via 198.51.100.9 metric 7] [192.0.2.64/26 via 198.51.100.10] \
                 [default via 198.51.100.11 metric 900]",
                "dns 198.51.100.2",
                "dns 198.51.100.3",
                "search lab.example",
            ],
            left_out: &["config[0].subnets[0].mtu is not supported yet, and is left out"],
        },
        Case {
            text: "
version: 1
config:
  - {type: nameserver, interface: lan0, address: [192.0.2.53, '2001:db8::53'], search: [a.example, b.example]}
  - {type: route, destination: 10.64.0.0, netmask: 255.192.0.0, gateway: 10.0.0.1, metric: 3}
  - {type: route, network: '2001:db8:7::/48', gateway: 'fe80::7'}
  - {type: loopback, name: lo, subnets: [{type: static, address: 192.0.2.1/32, dns_nameservers: [192.0.2.54]}]}
",
            applied: &[
                "10.64.0.0/10 via 10.0.0.1 metric 3",
                "2001:db8:7::/48 via fe80::7",
                "dns 192.0.2.53",
                "dns 2001:db8::53",
                "dns 192.0.2.54",
                "search a.example",
                "search b.example",
            ],
            left_out: &[
                "config[3].subnets is left out: the node configures the loopback link itself",
            ],
        },
    ]);
}

#[test]
fn version_1_bonds_bridges_and_vlans_are_applied() {
    check(&[
        Case {
            text: "
version: 1
config:
  - {type: physical, name: left, mac_address: '52:54:00:aa:00:01'}
  - {type: physical, name: right, mac_address: '52:54:00:aa:00:02'}
  - type: bond
    name: pair
    mac_address: '02:00:00:00:00:0b'
    mtu: 1600
    accept-ra: 'no'
    bond_interfaces: [left, right]
    params: {bond-mode: active-backup, bond_primary: left, bond-slaves: none, bond-mii_status: up}
    subnets: [{type: static, address: 192.0.2.9/24}]
  - {type: vlan, name: pair.30, vlan_link: pair, vlan_id: 30, mtu: 1500, mac_address: '02:00:00:00:00:0c',
     subnets: [{type: dhcp4}]}
",
            applied: &[
                "left: card mac=52:54:00:aa:00:01",
                "right: card mac=52:54:00:aa:00:02",
                "pair: active-backup bond of left+right primary=left mtu=1600 sets=02:00:00:00:00:0b 192.0.2.9/24",
                "pair.30: vlan 30 on pair mtu=1500 sets=02:00:00:00:00:0c dhcp4",
            ],
            left_out: &[
                "config[2].params.bond-mii-status is not supported yet, and is left out",
                "config[2].accept-ra is not supported yet, and is left out",
            ],
        },
        Case {
            text: "
version: 1
config:
  - type: bridge
    name: hub
    bridge_interfaces: [port1, port2]
    params: {bridge-stp: 'on', bridge_fd: 4, bridge_bridgeprio: 100, bridge_ageing: 250, bridge_waitport: 1 hub,
             bridge_hw: '02:00:00:00:00:0d', bridge_ports: port1 port2}
    subnets: [{type: dhcp4}]
  - {type: bridge, name: flat, bridge_interfaces: [port3], params: {bridge_stp: 'off', bridge_hello: 2}}
",
            applied: &[
                "hub: bridge of port1+port2 stp=true dhcp4",
                "flat: bridge of port3 stp=false",
            ],
            left_out: &[
                "config[0].params.bridge_ageing is not supported yet, and is left out",
                "config[0].params.bridge_hw is not supported yet, and is left out",
                "config[0].params.bridge_ports is not supported yet, and is left out",
                "config[0].params.bridge_fd is not supported yet, and is left out; \
                 the spanning tree has the settings of the kernel",
                "config[0].params.bridge_bridgeprio is not supported yet, and is left out; \
                 the spanning tree has the settings of the kernel",
            ],
        },
    ]);
}

#[test]
fn version_2_cards_are_matched_and_other_systems_settings_are_named() {
    check(&[
        Case {
            text: "
network:
  version: 2
  renderer: networkd
  ethernets:
    by-mac: {match: {macaddress: '52:54:00:aa:00:01'}, set-name: up0, wakeonlan: true, dhcp4: 'yes', optional: true}
    by-name: {match: {name: 'ens*'}, wakeonlan: false, dhcp6: on, critical: true, renderer: NetworkManager}
    by-driver: {match: {driver: [virtio_net, 'mlx5*']}, dhcp-identifier: duid, accept-ra: false, emit-lldp: true}
    one-driver: {match: {driver: igb, name: 'eno?'}, dhcp-identifier: mac, accept-ra: true, emit-lldp: false}
    eno7: {optional-addresses: [ipv4-ll], link-local: [ipv6], ipv6-privacy: true, activation-mode: manual}
",
            applied: &[
                "by-driver: card driver=virtio_net|mlx5*",
                "by-mac: card mac=52:54:00:aa:00:01 dhcp4",
                "by-name: card name=ens* dhcp6",
                "eno7: card",
                "one-driver: card name=eno? driver=igb",
            ],
            left_out: &[
                "network.ethernets.by-mac.set-name is left out: the link keeps the node's name for it",
                "network.ethernets.by-mac.wakeonlan is left out: set wakeOnLan in an EthernetConfig of the machine \
                 config",
                "network.ethernets.by-driver.accept-ra is not supported yet, and is left out",
                "network.ethernets.by-driver.dhcp-identifier is not supported yet, and is left out",
                "network.ethernets.by-driver.emit-lldp is not supported yet, and is left out",
                "network.ethernets.eno7.link-local is not supported yet, and is left out",
                "network.ethernets.eno7.ipv6-privacy is not supported yet, and is left out",
                "network.ethernets.eno7.activation-mode is not supported yet, and is left out",
            ],
        },
        Case {
            text: "
version: 2
ethernets:
  a:
    dhcp4: true
    dhcp4-overrides: {route-metric: 70, use-routes: false, use-hostname: 'no', use-dns: true, use-domains: true,
                      use-mtu: true, use-ntp: true, send-hostname: false}
    dhcp6: true
    dhcp6-overrides: {use-dns: false, use-domains: route, use-mtu: false, use-ntp: 'off', send-hostname: true,
                      hostname: box}
tunnels: {he: {mode: sit}}
wifis: {wl0: {dhcp4: true}}
vrfs: {red: {table: 9}}
",
            applied: &["a: card dhcp4/metric=70/no-routes/no-name dhcp6"],
            left_out: &[
                "ethernets.a.dhcp6-overrides.hostname is not supported yet, and is left out",
                "ethernets.a.dhcp6-overrides.use-dns is not supported yet, and is left out",
                "ethernets.a.dhcp6-overrides.use-domains is not supported yet, and is left out",
                "ethernets.a.dhcp6-overrides.use-mtu is not supported yet, and is left out",
                "ethernets.a.dhcp6-overrides.use-ntp is not supported yet, and is left out",
                "ethernets.a.dhcp6-overrides.send-hostname is not supported yet, and is left out",
                "tunnels is not supported yet, and is left out",
                "wifis is not supported yet, and is left out",
                "vrfs is not supported yet, and is left out",
            ],
        },
    ]);
}

#[test]
fn version_2_addresses_routes_rules_and_names_are_applied() {
    check(&[Case {
        text: "
version: 2
ethernets:
  a:
    mtu: 1450
    macaddress: 02:00:00:00:00:0e
    addresses:
      - 192.0.2.30/24
      - '2001:db8::30/64': {label: 'a:one', lifetime: 0}
    gateway4: 192.0.2.1
    gateway6: 2001:db8::1
    nameservers: {addresses: [192.0.2.53], search: [lab.example]}
    routes:
      - {to: default, via: 192.0.2.2, metric: 500}
      - {to: 0.0.0.0/0, via: 198.51.100.1, on-link: true, table: 12}
      - {to: 203.0.113.0/24, via: 192.0.2.3, from: 192.0.2.30, mtu: 1300, type: unicast, scope: global}
      - {to: 10.99.0.0/16, type: blackhole}
      - {to: 10.98.0.0/16, via: 192.0.2.4, advertised-mss: 1200}
    routing-policy:
      - {from: 192.0.2.0/24, table: 12, priority: 40, mark: 5}
      - {to: 203.0.113.7, table: 12}
      - {from: 192.0.2.0/24, table: 13, type-of-service: 8}
",
        applied: &[
            "a: card mtu=1450 sets=02:00:00:00:00:0e 192.0.2.30/24 2001:db8::30/64 [default via 192.0.2.1] \
             [default via 2001:db8::1] [default via 192.0.2.2 metric 500] \
             [default via 198.51.100.1 table 12 on-link] \
             [203.0.113.0/24 via 192.0.2.3 from 192.0.2.30 mtu 1300] [10.98.0.0/16 via 192.0.2.4]",
            "rule inet4 table 12 from 192.0.2.0/24 priority 40 mark 5",
            "rule inet4 table 12 to 203.0.113.7/32",
            "dns 192.0.2.53",
            "search lab.example",
        ],
        left_out: &[
            "ethernets.a.addresses[1].label is not supported yet, and is left out",
            "ethernets.a.addresses[1].lifetime is not supported yet, and is left out",
            "ethernets.a.routes[3].type is not supported yet; the route is left out",
            "ethernets.a.routes[4].advertised-mss is not supported yet, and is left out",
            "ethernets.a.routing-policy[2].type-of-service is not supported yet; the rule is left out",
        ],
    }]);
}

#[test]
fn version_2_bonds_bridges_and_vlans_are_applied() {
    check(&[Case {
        text: "
version: 2
ethernets:
  left: {match: {macaddress: '52:54:00:aa:00:01'}}
  right: {match: {macaddress: '52:54:00:aa:00:02'}}
bonds:
  pair:
    interfaces: [left, right]
    parameters: {mode: active-backup, primary: right, mii-monitor-interval: 50}
    dhcp4: true
bridges:
  hub: {interfaces: [pair], parameters: {priority: 9, path-cost: {pair: 70}, ageing-time: 40}, addresses: [192.0.2.1/24]}
  flat: {parameters: {stp: false, max-age: 9}}
vlans:
  pair.8: {id: 8, link: pair, dhcp6: true, dhcp6-overrides: {route-metric: 9}}
",
        applied: &[
            "left: card mac=52:54:00:aa:00:01",
            "right: card mac=52:54:00:aa:00:02",
            "pair: active-backup bond of left+right primary=right dhcp4",
            "flat: bridge of  stp=false",
            "hub: bridge of pair stp=true 192.0.2.1/24",
            "pair.8: vlan 8 on pair dhcp6/metric=9",
        ],
        left_out: &[
            "bridges.hub.parameters.ageing-time is not supported yet, and is left out",
            "bridges.hub.parameters.priority is not supported yet, and is left out; \
             the spanning tree has the settings of the kernel",
            "bridges.hub.parameters.path-cost is not supported yet, and is left out; \
             the spanning tree has the settings of the kernel",
        ],
    }]);
}

/// A bond's settings in each version, and the same in the machine config.
const BOND_SETTINGS: [&str; 3] = [
    "
version: 1
config:
  - type: bond
    name: pair
    bond_interfaces: [left, right]
    params: {bond_mode: 802.3ad, bond_miimon: 110, bond-updelay: 220, down-delay: 330, bond-min_links: 2,
             bond-xmit_hash_policy: layer2+3, bond-lacp-rate: fast, bond_ad_select: count, bond-fail_over_mac: active,
             bond-primary-reselect: better, bond-arp_validate: none, bond-arp_all_targets: all,
             bond-arp_ip_target: [192.0.2.1, 192.0.2.2], bond-all_slaves_active: 1, bond-num_grat_arp: 3,
             bond-packets_per_slave: 4, bond-lp_interval: 5, bond-resend_igmp: 6}
",
    "
version: 2
bonds:
  pair:
    interfaces: [left, right]
    parameters: {mode: 802.3ad, mii-monitor-interval: 110, up-delay: 220, down-delay: 330, min-links: 2,
                 transmit-hash-policy: layer2+3, lacp-rate: fast, ad-select: count, fail-over-mac-policy: active,
                 primary-reselect-policy: better, arp-validate: none, arp-all-targets: all,
                 arp-ip-targets: [192.0.2.1, 192.0.2.2], all-slaves-active: true, gratuitous-arp: 3,
                 packets-per-slave: 4, learn-packet-interval: 5, resend-igmp: 6}
",
    "
apiVersion: v1alpha1
kind: BondConfig
name: pair
links: [left, right]
bondMode: 802.3ad
miimon: 110
updelay: 220
downdelay: 330
minLinks: 2
xmitHashPolicy: layer2+3
lacpRate: fast
adSelect: count
failOverMac: active
primaryReselect: better
arpValidate: none
arpAllTargets: all
arpIpTargets: [192.0.2.1, 192.0.2.2]
allSlavesActive: 1
numPeerNotif: 3
packetsPerSlave: 4
lpInterval: 5
resendIGMP: 6
",
];

/// A machine config without a network.
const CONFIG: &str = "version: v1alpha1
machine: {type: worker, token: abcdef.0123456789abcdef, ca: {crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}}
cluster: {controlPlane: {endpoint: 'https://10.0.2.15:6443'}}
";

#[test]
fn settings_of_a_bond_are_those_of_the_machine_config() {
    let [first, second, config] = BOND_SETTINGS;
    let document = Document::parse(format!("{CONFIG}---{config}").as_bytes()).unwrap();
    let expected = BondConfig {
        name: Default::default(),
        links: Vec::new(),
        ..document.all::<BondConfig>().next().unwrap().clone()
    };
    for text in [first, second] {
        let found = network(text.as_bytes());
        let found = found.unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        let found = found.unwrap();
        assert_eq!(found.left_out, [""; 0]);
        let SeedShape::Bond { config, .. } = &found.links[0].shape else {
            panic!("{found:?}")
        };
        assert_eq!(**config, expected, "{text}");
    }
}

#[test]
fn left_out_settings_have_their_place_and_are_bounded() {
    let text = "version: 2\nethernets:\n  a:\n    set-name: b\n";
    let found = network(text.as_bytes()).unwrap().unwrap();
    let place = "line 4, column 15: ethernets.a.set-name is left out";
    assert!(found.left_out[0].starts_with(place), "{:?}", found.left_out);
    let many: String = (0..250)
        .map(|at| format!("  e{at}: {{emit-lldp: true}}\n"))
        .collect();
    let text = format!("version: 2\nethernets:\n{many}");
    let found = network(text.as_bytes()).unwrap().unwrap();
    assert_eq!((found.links.len(), found.left_out.len()), (250, 100));
    assert!(found.left_out[0].ends_with(LEFT_OUT));
}
