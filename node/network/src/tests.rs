//! Tests the network settings of a machine config.

use std::net::IpAddr;

use corten_base::sample;
use corten_config::Document;
use corten_types::network::LinkStatus;
use corten_types::network_names::OperatorSpec;
use corten_types::prefix::Prefix;

use super::config_layer::{Said, layer_from_config};
use super::layers::Layered as _;
use super::links::Present;

/// `network` is the content of `machine.network`, in flow style.
fn document(network: &str, others: &str) -> Document {
    sample::config(&format!("network: {network}"), others)
}

fn device(mac: &str, driver: &str, other_name: &str) -> LinkStatus {
    LinkStatus {
        alt_names: vec![other_name.to_owned()],
        hardware_addr: mac.to_owned(),
        permanent_addr: mac.to_owned(),
        bus_path: "0000:00:03.0".to_owned(),
        pci_id: "1af4:1000".to_owned(),
        driver: driver.to_owned(),
        ..LinkStatus::with_device()
    }
}

fn present() -> Present {
    Present::from([
        (
            "eth0".to_owned(),
            device("52:54:00:00:00:01", "virtio_net", "enp0s3"),
        ),
        (
            "eth1".to_owned(),
            device("52:54:00:00:00:02", "e1000", "enp0s4"),
        ),
    ])
}

fn all(said: &Said) -> Vec<String> {
    let specs = &said.specs;
    let link = |link: &corten_types::network_spec::LinkSpec| {
        let master = link.master().map(|master| format!(" in {master}"));
        format!("{} {}{}", link.name, link.kind, master.unwrap_or_default())
    };
    let links = specs.links.iter().map(link);
    let addresses = specs.addresses.iter().map(|spec| spec.id());
    let routes = specs.routes.iter().map(|spec| spec.id());
    let operators = specs.operators.iter().map(|spec| spec.id());
    links
        .chain(addresses)
        .chain(routes)
        .chain(operators)
        .collect()
}

#[test]
fn v1alpha1_network_fields_become_specs() {
    let network = "{interfaces: [
        {interface: enp0s3, mtu: 9000, addresses: [10.0.0.5/24], routes: [{network: 0.0.0.0/0, gateway: 10.0.0.1, metric: 7}],
         vlans: [{vlanId: 5, dhcp: true}]},
        {deviceSelector: {hardwareAddr: '52:54:*:02'}, dhcp: true, dhcpOptions: {routeMetric: 10, ipv6: true}},
        {interface: bond0, bond: {mode: 802.3ad, interfaces: [eth7], deviceSelectors: [{driver: 'e1*'}]}},
        {interface: d0, dummy: true}, {interface: eth9, ignore: true}]}";
    let said = layer_from_config(&document(network, ""), &present());
    let expected = [
        "eth0 ",
        "eth0.5 vlan",
        "eth1  in bond0",
        "bond0 bond",
        "eth7  in bond0",
        "d0 dummy",
        "eth0/10.0.0.5/24",
        "inet4/10.0.0.1//7",
        "dhcp4/eth0.5",
        "dhcp4/eth1",
        "dhcp6/eth1",
    ];
    assert_eq!(all(&said), expected);
    assert_eq!(said.specs.links[0].mtu, 9000);
    assert_eq!(said.specs.links[1].parent_name, "eth0");
    assert_eq!(said.specs.operators[1].dhcp.route_metric, 10);
    assert!(said.ignored.contains("eth9"));
}

#[test]
fn shared_addresses_leave_the_links_settings_alone() {
    let network = "{interfaces: [{interface: enp0s4, vip: {ip: 10.0.0.8}, vlans: [{vlanId: 5, vip: {ip: 10.1.0.8}}]}]}";
    let shared = "---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.9\nlink: enp0s3\n";
    let key = "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBQUEKLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=";
    let text = sample::text(&format!("network: {network}"), shared);
    let text = text.replace("type: worker", "type: controlplane");
    let text = text.replacen("crt: ", &format!("key: {key}, crt: "), 1);
    let said = layer_from_config(&sample::read(&text), &present());
    let expected = [
        "eth1 ",
        "eth1.5 vlan",
        "vip/eth1/10.0.0.8",
        "vip/eth1.5/10.1.0.8",
        "vip/eth0/10.0.0.9",
    ];
    assert_eq!(all(&said), expected);
}

#[test]
fn vlan_of_a_link_with_a_long_name_gets_a_short_one() {
    let network = "{interfaces: [{interface: enp129s0f0np0, vlans: [{vlanId: 100, dhcp: true}]}]}";
    let said = layer_from_config(&document(network, ""), &present());
    let expected = [
        "enp129s0f0np0 ",
        "enp15c0f63.100 vlan",
        "dhcp4/enp15c0f63.100",
    ];
    assert_eq!(all(&said), expected);
    assert_eq!(said.specs.links[1].parent_name, "enp129s0f0np0");
}

#[test]
fn metric_0_means_the_default_metric() {
    let network = "{interfaces: [
        {interface: enp0s3, routes: [{network: 'fd01::/64', gateway: 'fe80::1', metric: 0}], dhcp: true, dhcpOptions: {routeMetric: 0}}]}";
    let others = "---
apiVersion: v1alpha1
kind: LinkConfig
name: eth1
routes: [{destination: 'fd02::/64', gateway: 'fe80::1', metric: 0}]
---
apiVersion: v1alpha1
kind: BlackholeRouteConfig
name: fd66::/16
metric: 0
---
apiVersion: v1alpha1
kind: DHCPv6Config
name: eth1
routeMetric: 0
";
    let said = layer_from_config(&document(network, others), &present());
    let routes = said.specs.routes.iter().map(|route| route.priority);
    assert_eq!(routes.collect::<Vec<_>>(), [1024; 3]);
    let operators = said.specs.operators.iter();
    let metrics = operators.map(|operator| operator.dhcp.route_metric);
    assert_eq!(metrics.collect::<Vec<_>>(), [1024; 2]);
}

#[test]
fn network_documents_become_specs() {
    let others = "---
apiVersion: v1alpha1
kind: LinkConfig
name: eth0
up: false
addresses: [{address: 10.0.0.5/24, routePriority: 3}]
routes: [{destination: 10.9.0.0/16, gateway: 10.0.0.1, table: 100}]
---
apiVersion: v1alpha1
kind: VLANConfig
name: storage
vlanID: 9
vlanMode: 802.1ad
parent: br0
---
apiVersion: v1alpha1
kind: BridgeConfig
name: br0
links: [enp0s4]
stp: {enabled: true}
---
apiVersion: v1alpha1
kind: DHCPv4Config
name: storage
clientIdentifier: duid
duidRaw: '00:01:02'
---
apiVersion: v1alpha1
kind: BlackholeRouteConfig
name: 10.66.0.0/16
---
apiVersion: v1alpha1
kind: StaticHostConfig
name: 10.0.0.9
hostnames: [db, db.example.org]
---
apiVersion: v1alpha1
kind: ResolverConfig
nameservers: [{address: 10.0.0.3}]
searchDomains: {domains: [example.org], disableDefault: true}
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: n1.example.com
---
apiVersion: v1alpha1
kind: TimeSyncConfig
ptp: {devices: [/dev/ptp0]}
";
    let said = layer_from_config(&document("{}", others), &present());
    let expected = [
        "eth0 ",
        "br0 bridge",
        "eth1  in br0",
        "storage vlan",
        "eth0/10.0.0.5/24",
        "100/inet4/10.0.0.1/10.9.0.0/16/1024",
        "inet4//10.66.0.0/16/1024",
        "dhcp4/storage",
    ];
    assert_eq!(all(&said), expected);
    assert_eq!(said.specs.links[0].up, Some(false));
    assert_eq!(said.specs.addresses[0].priority, 3);
    let identifier = &said.specs.operators[0].dhcp.client_identifier;
    assert_eq!(
        (identifier.client_identifier, &*identifier.duid),
        ("duid", "000102")
    );
    assert_eq!(said.hosts["db"], ["10.0.0.9".parse::<IpAddr>().unwrap()]);
    assert_eq!(said.hosts.len(), 2);
    let devices = said.specs.time_servers.unwrap().time_servers;
    assert_eq!(devices, ["/dev/ptp0"]);
    let resolver = said.specs.resolver.unwrap();
    assert!(resolver.no_own_domain);
    assert_eq!(resolver.search_domains, ["example.org"]);
    assert_eq!(said.specs.hostname.unwrap().domainname, "example.com");
}

#[test]
fn wireguard_link_is_equal_in_both_forms() {
    const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const TWO: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
    let tunnel = format!(
        "privateKey: {ONE}, listenPort: 51820, firewallMark: 64, peers: [
            {{publicKey: {TWO}, endpoint: '192.0.2.1:51820', persistentKeepaliveInterval: 25s,
             allowedIPs: [10.8.0.2/24, 'fd00::/64']}}]"
    );
    let old = format!(
        "{{interfaces: [{{interface: wg0, mtu: 1380, addresses: [10.8.0.1/24], wireguard: {{{tunnel}}}}}]}}"
    );
    let others = format!(
        "---\n{{apiVersion: v1alpha1, kind: WireguardConfig, name: wg0, mtu: 1380,
          addresses: [{{address: 10.8.0.1/24}}], {tunnel}}}\n"
    );
    let old = layer_from_config(&document(&old, ""), &present());
    let new = layer_from_config(&document("{}", &others), &present());
    assert_eq!(old.specs.links, new.specs.links);
    assert_eq!(all(&new), ["wg0 wireguard", "wg0/10.8.0.1/24"]);
    let link = &new.specs.links[0];
    assert_eq!(
        (link.logical, link.link_type, link.mtu),
        (true, "nohdr", 1380)
    );
    let tunnel = link.wireguard.as_ref().unwrap();
    assert_eq!((tunnel.listen_port, tunnel.firewall_mark), (51820, 64));
    let peer = &tunnel.peers[0];
    assert_eq!((peer.public_key.0, peer.keepalive), ([2; 32], 25));
    let allowed: Vec<String> = peer.allowed_ips.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["10.8.0.0/24", "fd00::/64"]);
}

#[test]
fn config_without_network_settings_gives_no_specs() {
    let said = layer_from_config(&document("{}", ""), &present());
    assert_eq!(said, Said::default());
}

#[test]
fn dns_cache_addresses_are_host_only() {
    let old = "  features: {hostDNS: {enabled: true, forwardKubeDNSToHost: true}}\n\
               cluster:\n  controlPlane: {endpoint: 'https://10.0.0.1:6443'}\n  \
               network: {podSubnets: [10.244.0.0/16, 'fd00:10::/64']}\n";
    let by_kind = "---\napiVersion: v1alpha1\nkind: ResolverConfig\n\
                   hostDNS: {enabled: true, forwardKubeDNSToHost: true}\n\
                   ---\napiVersion: v1alpha1\nkind: KubeClusterConfig\nclusterName: a\n\
                   endpoint: https://10.0.0.1:6443\n\
                   ---\napiVersion: v1alpha1\nkind: KubeNetworkConfig\n\
                   podSubnets: [10.244.0.0/16, 'fd00:10::/64']\n\
                   serviceSubnets: [10.96.0.0/12, 'fd00:20::/112']\n";
    for form in [old, by_kind] {
        let document = sample::read(&format!("{}{form}", sample::machine("")));
        let said = layer_from_config(&document, &present());
        let found: Vec<(String, &str)> = said
            .specs
            .addresses
            .iter()
            .map(|spec| (spec.id(), spec.scope))
            .collect();
        let expected = [
            ("lo/169.254.116.108/32", "host"),
            ("lo/fd54:616c:6f73:0:204f:5320:444e:531/128", "host"),
        ];
        assert_eq!(found, expected.map(|(id, scope)| (id.to_owned(), scope)));
    }
}

fn alias(name: &str, expression: &str) -> String {
    format!(
        "---\napiVersion: v1alpha1\nkind: LinkAliasConfig\nname: {name}\nselector: {{match: '{expression}'}}\n"
    )
}

fn called(said: &Said) -> Vec<(&str, &str)> {
    let all = said.aliases.iter();
    all.map(|(link, alias)| (&**link, &**alias)).collect()
}

#[test]
fn link_alias_is_resolved_in_every_document() {
    let others = alias("uplink", "link.driver == \"e1000\"")
        + "---
apiVersion: v1alpha1
kind: LinkConfig
name: uplink
addresses: [{address: 10.0.0.5/24}]
---
apiVersion: v1alpha1
kind: VLANConfig
name: storage
vlanID: 9
parent: uplink
---
apiVersion: v1alpha1
kind: DHCPv4Config
name: uplink
---
apiVersion: v1alpha1
kind: RoutingRuleConfig
name: '100'
iifName: uplink
table: 7
";
    let old = "{interfaces: [{interface: uplink, mtu: 9000}]}";
    let said = layer_from_config(&document(old, &others), &present());
    assert_eq!(called(&said), [("eth1", "uplink")]);
    let expected = ["eth1 ", "storage vlan", "eth1/10.0.0.5/24", "dhcp4/eth1"];
    assert_eq!(all(&said), expected);
    assert_eq!(said.specs.links[1].parent_name, "eth1");
    assert_eq!(said.specs.rules[0].rule.iif_name, "eth1");
    assert_eq!(said.complaints, [""; 0]);
}

#[test]
fn aliases_are_numbered_by_hardware_address_and_unique_per_link() {
    let of = |others: &str| layer_from_config(&document("{}", others), &present());
    let both = "link.type == 1u";
    assert_eq!(
        called(&of(&alias("net%d", both))),
        [("eth0", "net0"), ("eth1", "net1")]
    );
    let first = alias(
        "uplink",
        "mac(link.permanent_addr) == \"52:54:00:00:00:01\"",
    );
    let said = of(&(first.clone() + &alias("net%d", both)));
    assert_eq!(called(&said), [("eth0", "uplink"), ("eth1", "net0")]);
    // A document that cannot be followed is reported, and the others still apply.
    for (wrong, why) in [
        (
            alias("other", both),
            "LinkAliasConfig other: the selector matches several links: eth0, eth1",
        ),
        (
            alias("other", "link.driver == \"virtio_net\""),
            "LinkAliasConfig other: eth0 already has the alias uplink",
        ),
        (
            alias("enp0s3", "link.driver == \"e1000\""),
            "LinkAliasConfig enp0s3: another link already has the name enp0s3",
        ),
    ] {
        let said = of(&(first.clone() + &wrong));
        assert_eq!(called(&said), [("eth0", "uplink")]);
        assert_eq!(said.complaints, [why]);
    }
    assert!(called(&of(&alias("none", "false"))).is_empty());
}

#[test]
fn alias_of_a_preferred_port_is_resolved_in_both_forms() {
    let others = alias("uplink", "link.driver == \"e1000\"")
        + "---
apiVersion: v1alpha1
kind: BondConfig
name: bond0
links: [uplink]
bondMode: active-backup
primary: uplink
";
    let old = "{interfaces: [{interface: bond1, bond: {mode: active-backup, interfaces: [enp0s3], primary: enp0s3}},
        {interface: bond2, bond: {mode: active-backup, interfaces: [eth8]}}]}";
    let said = layer_from_config(&document(old, &others), &present());
    let bonds = said.specs.links.iter();
    let bonds = bonds.filter_map(|link| Some((&*link.name, &*link.bond_master.as_ref()?.primary)));
    let expected = [("bond1", "eth0"), ("bond2", ""), ("bond0", "eth1")];
    assert_eq!(bonds.collect::<Vec<_>>(), expected);
}

#[test]
fn rule_for_every_address_has_the_family_alone() {
    let rule = |number: u32, fields: &str| {
        format!(
            "---\napiVersion: v1alpha1\nkind: RoutingRuleConfig\nname: '{number}'\n{fields}\ntable: 7\n"
        )
    };
    let others = rule(100, "src: 0.0.0.0/0") + &rule(101, "src: fd00::/8\ndst: ::/0");
    let said = layer_from_config(&document("{}", &others), &present());
    let rules = said.specs.rules.iter().map(|spec| &spec.rule);
    let text = |prefix: &Prefix| prefix.to_string();
    let found: Vec<_> = rules
        .map(|rule| {
            let (src, dst) = (rule.src.as_ref().map(text), rule.dst.as_ref().map(text));
            (rule.family, src, dst)
        })
        .collect();
    let expected = [
        ("inet4", None, None),
        ("inet6", Some("fd00::/8".to_owned()), None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_link_in_a_bond_keeps_the_alias_of_its_address() {
    let mut present = present();
    let second = "mac(link.hardware_addr) == \"52:54:00:00:00:02\"";
    for link in present.values_mut() {
        link.master_index = 9;
        "52:54:00:00:00:01".clone_into(&mut link.hardware_addr);
    }
    let said = layer_from_config(&document("{}", &alias("uplink", second)), &present);
    assert_eq!(called(&said), [("eth1", "uplink")]);
}

#[test]
fn alias_of_an_earlier_config_is_not_resolved() {
    let mut present = present();
    "uplink".clone_into(&mut present.get_mut("eth1").unwrap().alias);
    let network = "{interfaces: [{interface: uplink, mtu: 9000}]}";
    let said = layer_from_config(&document(network, ""), &present);
    assert_eq!(all(&said), ["uplink "]);
}

#[test]
fn dhcp_client_identifier_comes_from_the_config_or_the_dhcpv6_default() {
    let others = "---
apiVersion: v1alpha1
kind: DHCPv4Config
name: eth0
---
apiVersion: v1alpha1
kind: DHCPv6Config
name: eth0
---
apiVersion: v1alpha1
kind: DHCPv6Config
name: eth1
clientIdentifier: mac
---
apiVersion: v1alpha1
kind: DHCPv6Config
name: eth2
duidRaw: '00:01:02'
";
    let said = layer_from_config(&document("{}", others), &present());
    let who = |spec: &OperatorSpec| {
        let identifier = &spec.dhcp.client_identifier;
        (identifier.client_identifier, identifier.duid.clone())
    };
    let found: Vec<_> = said.specs.operators.iter().map(who).collect();
    let wanted = [("mac", ""), ("none", ""), ("mac", ""), ("duid", "000102")];
    assert_eq!(found, wanted.map(|(kind, duid)| (kind, duid.to_owned())));
}
