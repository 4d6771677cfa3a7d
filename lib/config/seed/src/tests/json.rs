//! Networks as JSON, which a node stores for its next boot.

use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondConfig, BondMode, FailOverMac,
    LacpRate, LinkRoute, PrimaryReselect, XmitHashPolicy,
};
use corten_corpus::samples;
use corten_values::{Cidr, Mac};

use crate::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedRule, SeedShape, network};

fn read(text: &str) -> Result<SeedNetwork, serde_json::Error> {
    serde_json::from_str(text)
}

/// A bond with every setting, none of which has its default.
fn bond() -> BondConfig {
    BondConfig {
        mode: BondMode::Lacp,
        miimon: Some(100),
        updelay: Some(200),
        downdelay: Some(300),
        use_carrier: Some(true),
        xmit_hash_policy: Some(XmitHashPolicy::Layer34),
        arp_interval: Some(400),
        arp_ip_targets: vec!["10.0.0.1".parse().unwrap()],
        ns_ip6_targets: vec!["fd00::1".parse().unwrap()],
        arp_validate: Some(ArpValidate::FilterBackup),
        arp_all_targets: Some(ArpAllTargets::All),
        lacp_rate: Some(LacpRate::Fast),
        fail_over_mac: Some(FailOverMac::Follow),
        ad_select: Some(AdSelect::Count),
        ad_actor_sys_prio: Some(500),
        ad_user_port_key: Some(6),
        ad_lacp_active: Some(AdLacpActive::Off),
        primary_reselect: Some(PrimaryReselect::Failure),
        resend_igmp: Some(7),
        min_links: Some(8),
        lp_interval: Some(9),
        packets_per_slave: Some(10),
        num_peer_notif: Some(11),
        tlb_logical_lb: Some(1),
        all_slaves_active: Some(1),
        peer_notif_delay: Some(12),
        missed_max: Some(13),
        ..BondConfig::default()
    }
}

fn route(on_link: bool) -> SeedRoute {
    SeedRoute {
        route: LinkRoute {
            destination: Cidr::parse("10.9.0.0/16"),
            gateway: Some("10.0.0.1".parse().unwrap()),
            source: Some("10.0.0.2".parse().unwrap()),
            metric: Some(50),
            mtu: Some(1400),
            table: Some(100),
        },
        on_link,
    }
}

/// A network with a link of every kind, and every field in use.
fn every_kind() -> SeedNetwork {
    let card = SeedLink {
        mtu: Some(1450),
        hardware_addr: Some(Mac([2, 0, 0, 0, 0, 9])),
        dhcp4: Some(SeedDhcp {
            route_metric: Some(512),
            skip_routes: true,
            skip_hostname: true,
        }),
        dhcp6: Some(SeedDhcp::default()),
        addresses: vec![
            Cidr::parse("10.0.0.2/24").unwrap(),
            Cidr::parse("fd00::2/64").unwrap(),
        ],
        routes: vec![route(true), SeedRoute::default()],
        ..SeedLink::new(
            "eth0",
            SeedShape::Card(SeedMatch {
                mac: Some(Mac([2, 0, 0, 0, 0, 1])),
                name: Some("en*".to_owned()),
                drivers: vec!["virtio_net".to_owned()],
            }),
        )
    };
    let bond = SeedShape::Bond {
        members: vec!["eth0".to_owned(), "eth1".to_owned()],
        primary: Some("eth1".to_owned()),
        config: Box::new(bond()),
    };
    let bridge = SeedShape::Bridge {
        members: vec!["bond0".to_owned()],
        stp: true,
    };
    let vlan = SeedShape::Vlan {
        parent: "br0".to_owned(),
        id: 7,
    };
    let rule = |families| SeedRule {
        families,
        from: Cidr::parse("10.0.0.0/24"),
        to: Cidr::parse("10.1.0.0/24"),
        table: 100,
        priority: Some(1000),
        mark: Some(5),
    };
    SeedNetwork {
        links: vec![
            card,
            SeedLink::new("bond0", bond),
            SeedLink::new("br0", bridge),
            SeedLink::new("vlan7", vlan),
        ],
        routes: vec![route(false)],
        rules: vec![
            rule(&["inet4"]),
            rule(&["inet6"]),
            rule(&["inet4", "inet6"]),
        ],
        dns_servers: vec!["10.0.0.53".parse().unwrap(), "fd00::53".parse().unwrap()],
        search_domains: vec!["example.org".to_owned()],
        left_out: Vec::new(),
    }
}

#[test]
fn every_kind_of_link_is_the_same_after_writing_and_reading() {
    let written = serde_json::to_string(&every_kind()).unwrap();
    assert_eq!(read(&written).unwrap(), every_kind(), "{written}");
    for sample in samples("network-config") {
        let mut said = network(&sample.bytes).unwrap().unwrap();
        said.left_out.clear();
        let written = serde_json::to_string(&said).unwrap();
        assert_eq!(read(&written).unwrap(), said, "{}", sample.name);
    }
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_have_their_defaults() {
    let text = r#"{
        "links": [
            {"id": "eth0", "shape": {"card": {"age": 3}}, "colour": "red", "dhcp4": {"speed": 1}},
            {"id": "bond0", "shape": {"bond": {"members": ["eth0"], "config": {"weight": 1}}}}
        ],
        "rules": [{"families": ["inet6"], "table": 9, "kind": "new"}],
        "routes": [{"route": {"gateway": "10.0.0.1", "hops": 2}}],
        "tunnels": []
    }"#;
    let found = read(text).unwrap();
    let card = SeedShape::Card(SeedMatch::default());
    let bond = SeedShape::Bond {
        members: vec!["eth0".to_owned()],
        primary: None,
        config: Box::default(),
    };
    let expected = SeedNetwork {
        links: vec![
            SeedLink {
                dhcp4: Some(SeedDhcp::default()),
                ..SeedLink::new("eth0", card)
            },
            SeedLink::new("bond0", bond),
        ],
        routes: vec![SeedRoute::from(LinkRoute {
            gateway: Some("10.0.0.1".parse().unwrap()),
            ..LinkRoute::default()
        })],
        rules: vec![SeedRule {
            families: &["inet6"],
            table: 9,
            ..SeedRule::default()
        }],
        ..SeedNetwork::default()
    };
    assert_eq!(found, expected);
}

#[test]
fn impossible_value_is_an_error() {
    let link = |shape: &str, rest: &str| {
        format!(r#"{{"links": [{{"id": "a", "shape": {shape}{rest}}}]}}"#)
    };
    let bond = |config: &str| {
        link(
            &format!(r#"{{"bond": {{"members": [], "config": {config}}}}}"#),
            "",
        )
    };
    let card = r#"{"card": {}}"#;
    for (text, expected) in [
        (
            link(card, r#", "addresses": ["10.0.0.1/33"]"#),
            "\"10.0.0.1/33\" is not an address",
        ),
        (link(card, r#", "mtu": -1"#), "invalid value"),
        (link(r#"{"tunnel": {}}"#, ""), "unknown variant `tunnel`"),
        (bond(r#"{"mode": "fast"}"#), "unknown word \"fast\""),
        (bond(r#"{"lacp_rate": "warp"}"#), "unknown word \"warp\""),
        (
            r#"{"rules": [{"families": ["inet5"]}]}"#.to_owned(),
            "the families of a rule",
        ),
        (
            r#"{"dns_servers": ["10.0.0"]}"#.to_owned(),
            "invalid IP address",
        ),
    ] {
        let why = read(&text).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
}
