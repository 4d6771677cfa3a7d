//! Tests the merge of several layers.

use std::net::IpAddr;

use corten_types::network_names::ResolverSpec;
use corten_types::network_spec::{Layer, LinkSpec, RouteSpec};
use corten_types::network_wireguard::Wireguard;
use corten_types::prefix::Prefix;

use super::default_layer::dhcp;
use super::layers::*;

fn prefix(text: &str, length: u8) -> Prefix {
    let address = text.parse().unwrap();
    Prefix { address, length }
}

fn link(layer: Layer) -> LinkSpec {
    Specs::default().link(layer, "eth0").clone()
}

fn only<S: Layered>(specs: &[(&str, S)]) -> S {
    let merged = merge(specs.iter().map(|(id, spec)| (*id, spec)));
    assert_eq!(merged.len(), 1, "{merged:?}");
    merged.into_values().next().unwrap()
}

#[test]
fn links_are_merged_field_by_field() {
    let by_dhcp = LinkSpec {
        mtu: 1400,
        ..link(Layer::Operator)
    };
    let by_config = LinkSpec {
        up: Some(false),
        bond_name: "bond0".to_owned(),
        ..link(Layer::Configuration)
    };
    let merged = only(&[
        ("configuration/eth0", by_config.clone()),
        ("default/eth0", link(Layer::Default)),
        ("operator/dhcp4/eth0/eth0", by_dhcp),
    ]);
    assert_eq!((merged.mtu, merged.up), (1400, Some(false)));
    assert_eq!(merged.master(), Some("bond0"));
    assert_eq!(merged.layer, Layer::Configuration);
    let with_mtu = LinkSpec {
        mtu: 9000,
        ..by_config
    };
    let by_dhcp = LinkSpec {
        mtu: 1400,
        ..link(Layer::Operator)
    };
    assert_eq!(with_mtu.over(&by_dhcp).mtu, 9000);
}

#[test]
fn virtual_link_keeps_its_kind_when_dhcp_changes_it() {
    let bond = LinkSpec {
        logical: true,
        kind: "bond",
        ..link(Layer::Cmdline)
    };
    let by_dhcp = LinkSpec {
        mtu: 1400,
        ..link(Layer::Operator)
    };
    let merged = only(&[
        ("cmdline/eth0", bond),
        ("operator/dhcp4/eth0/eth0", by_dhcp),
    ]);
    assert_eq!(
        (merged.kind, merged.logical, merged.mtu),
        ("bond", true, 1400)
    );
}

#[test]
fn wireguard_link_keeps_its_keys_when_another_layer_changes_it() {
    let tunnel = LinkSpec {
        logical: true,
        kind: "wireguard",
        wireguard: Some(Wireguard {
            listen_port: 51820,
            ..Wireguard::default()
        }),
        ..link(Layer::Cmdline)
    };
    let by_config = LinkSpec {
        mtu: 1380,
        ..link(Layer::Configuration)
    };
    let merged = only(&[
        ("cmdline/eth0", tunnel.clone()),
        ("configuration/eth0", by_config),
    ]);
    assert_eq!((merged.mtu, merged.kind), (1380, "wireguard"));
    assert_eq!(merged.wireguard, tunnel.wireguard);
}

#[test]
fn host_name_of_the_config_wins_over_other_layers() {
    let by = |layer, name| hostname(layer, name);
    let all = [
        ("cmdline/hostname", by(Layer::Cmdline, "parameter")),
        (
            "configuration/hostname",
            by(Layer::Configuration, "c.example.org"),
        ),
        ("default/hostname", by(Layer::Default, "corten-1")),
        ("operator/dhcp4/eth0/hostname", by(Layer::Operator, "dhcp0")),
        ("operator/dhcp4/eth1/hostname", by(Layer::Operator, "dhcp1")),
    ];
    let named = only(&all);
    assert_eq!((&*named.hostname, &*named.domainname), ("c", "example.org"));
    let [cmdline, _, default, first, second] = all;
    // Of two DHCP servers, the one of the first link wins.
    assert_eq!(
        only(&[cmdline, default.clone(), first, second]).hostname,
        "dhcp0"
    );
    assert_eq!(only(&[default]).hostname, "corten-1");
}

#[test]
fn resolvers_of_one_layer_are_merged_and_replaced_by_a_higher_layer() {
    let by = |layer, server: [u8; 4], search: &str| ResolverSpec {
        dns_servers: vec![server.into()],
        layer,
        search_domains: vec![search.to_owned()],
        ..ResolverSpec::default()
    };
    let dhcp = [
        ("default/resolvers", by(Layer::Default, [1, 1, 1, 1], "d")),
        (
            "operator/dhcp4/eth0/resolvers",
            by(Layer::Operator, [10, 0, 0, 1], "a"),
        ),
        (
            "operator/dhcp4/eth1/resolvers",
            by(Layer::Operator, [10, 1, 0, 1], "a"),
        ),
    ];
    let merged = only(&dhcp);
    let expected: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 1, 0, 1].into()];
    assert_eq!(merged.dns_servers, expected);
    assert_eq!(merged.search_domains, ["a"]);
    let mut config = by(Layer::Configuration, [9, 9, 9, 9], "c");
    config.search_domains.clear();
    let both = config.clone().over(&merged);
    assert_eq!(both.dns_servers, [IpAddr::from([9, 9, 9, 9])]);
    assert_eq!(both.search_domains, ["a"]);
    config.search_domains = vec!["c".to_owned()];
    assert_eq!(config.over(&merged).search_domains, ["c"]);
}

#[test]
fn specs_of_ignored_links_are_removed() {
    let mut specs = Specs::default();
    for link in ["eth0", "eth1"] {
        specs.link(Layer::Platform, link);
        specs.address(Layer::Platform, link, prefix("10.0.0.2", 24), 0);
        let gateway = Some("10.0.0.1".parse().unwrap());
        let everywhere = prefix("0.0.0.0", 0);
        specs
            .routes
            .push(route(Layer::Platform, link, everywhere, gateway));
        specs.operators.push(dhcp(Layer::Platform, "dhcp4", link));
    }
    let nowhere = route(Layer::Platform, "", prefix("10.9.0.0", 16), None);
    specs.routes.push(nowhere);
    let specs = specs.without(&["eth0".to_owned()].into());
    let links: Vec<&str> = specs.links.iter().map(|spec| &*spec.name).collect();
    let through: Vec<&str> = specs
        .routes
        .iter()
        .map(|spec| &*spec.out_link_name)
        .collect();
    assert_eq!((links, through), (vec!["eth1"], vec!["eth1", ""]));
    assert_eq!(specs.addresses[0].link_name, "eth1");
    assert_eq!(specs.operators[0].link_name, "eth1");
    assert_eq!((specs.addresses.len(), specs.operators.len()), (1, 1));
}

#[test]
fn routes_differ_by_gateway_destination_and_metric() {
    let everywhere = prefix("0.0.0.0", 0);
    let gateway = Some("10.0.0.1".parse().unwrap());
    let one = route(Layer::Operator, "eth0", everywhere, gateway);
    assert_eq!(one.id(), "inet4/10.0.0.1//1024");
    let six = route(Layer::Operator, "eth0", prefix("fd00::5", 64), None);
    assert_eq!(six.id(), "eth0/inet6//fd00::/64/1024");
    let other = RouteSpec {
        table: 100,
        ..one.clone()
    };
    assert_eq!(other.id(), "100/inet4/10.0.0.1//1024");
    let merged = merge([("a", &one), ("b", &other), ("c", &six)]);
    assert_eq!(merged.len(), 3);
}
