//! The network in META 0x0a, and limits of all lists.

use corten_config::kinds::BondMode;
use corten_corpus::{hostile, sample};
use proptest::prelude::*;

use crate::{PlatformNetwork, PlatformOperatorKind, network};

#[test]
fn platform_network_in_meta_has_the_fields_of_the_resources() {
    let found = PlatformNetwork::from_meta(&sample("platform-network", "static.yaml")).unwrap();
    assert_eq!((found.addresses.len(), found.links.len()), (2, 3));
    let bond = found.links[1].bond_master.as_ref().unwrap().config();
    assert_eq!((bond.mode, bond.miimon), (BondMode::Lacp, Some(100)));
    assert_eq!(found.routes[1].table.unwrap().0, 100);
    let found = PlatformNetwork::from_meta(&sample("platform-network", "dhcp.yaml")).unwrap();
    assert_eq!(found.operators[0].kind, PlatformOperatorKind::Dhcp4);
    assert_eq!(found.operators[0].dhcp4.route_metric, Some(512));
    for nothing in ["", "---\n", "null\n"] {
        let found = PlatformNetwork::from_meta(nothing.as_bytes()).unwrap();
        assert_eq!(found, PlatformNetwork::default(), "{nothing}");
    }
}

/// Invalid networks in META, and the expected problem.
const WRONG_IN_META: &[(&str, &str)] = &[
    ("value", "must be a map of fields"),
    (
        "adresses: [1]",
        "unknown field: adresses; did you mean \"addresses\"?",
    ),
    (
        "addresses: [{address: 10.0.0.1/24}]",
        "addresses[0].linkName is required",
    ),
    (
        "addresses: [{address: a, linkName: a, announceWithARP: true}]",
        "announceWithARP is not supported yet",
    ),
    (
        "links: [{name: v, logical: true, kind: vlan}]",
        "links[0].parentName is required for a VLAN",
    ),
    (
        "links: [{name: v, kind: dummy}]",
        "links[0].kind is required with logical: true",
    ),
    ("links: [{name: a}, {name: a}]", "links has a twice"),
    (
        "links: [{name: w, wireguard: {listenPort: 1}}]",
        "not supported yet: links[0].wireguard",
    ),
    (
        "routes: [{outLinkName: a}]",
        "routes[0] needs dst or gateway",
    ),
    (
        "routes: [{gateway: 10.0.0.1}]",
        "routes[0].outLinkName is required",
    ),
    (
        "routes: [{gateway: 10.0.0.1, outLinkName: a, table: x}]",
        "routes[0].table must be main, default, local or a number",
    ),
    (
        "operators: [{operator: vip, linkName: a}]",
        "operators[0].operator must be one of dhcp4, dhcp6",
    ),
    ("externalIPs: [10.0.0.1]", "not supported yet: externalIPs"),
    (
        "operators: [{operator: dhcp4, linkName: a, dhcp4: {clientIdentifier: {duidRawHex: abc}}}]",
        "duidRawHex must be hexadecimal",
    ),
    (
        "operators: [{operator: dhcp4, linkName: a, dhcp4: {clientIdentifier: {clientIdentifier: duid, duidRawHex: ''}}}]",
        "dhcp4.clientIdentifier.duidRawHex is required with clientIdentifier: duid",
    ),
    (
        "links: [{name: v, logical: true, kind: vlan, parentName: a, vlan: {}}]",
        "links[0].vlan is required for a VLAN",
    ),
    (
        "links: [{name: v, logical: true, kind: vlan, parentName: a, vlan: {vlanID: 4095}}]",
        "links[0].vlan.vlanID must be from 1 to 4094",
    ),
    (
        "links: [{name: v, logical: true, kind: vrf, vrfMaster: {}}]",
        "links[0].vrfMaster is required for a VRF",
    ),
    (
        "links: [{name: a, mtu: 12}]",
        "links[0].mtu must be from 68 to 65536",
    ),
    (
        "routes: [{gateway: 10.0.0.1, outLinkName: a, mtu: 12}]",
        "routes[0].mtu must be from 68 to 65535",
    ),
    (
        "routes: [{gateway: 'fd00::1', outLinkName: a, mtu: 1279}]",
        "routes[0].mtu must be from 1280 to 65535",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, bondMaster: {resendIgmp: 256}}]",
        "links[0].bondMaster.resendIgmp must be from 0 to 255",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, bondMaster: {peerNotifyDelay: 300001}}]",
        "links[0].bondMaster.peerNotifyDelay must be from 0 to 300000",
    ),
    (
        "routes: [{gateway: 10.0.0.1, outLinkName: a, src: 'fd00::1'}]",
        "routes[0] mixes IPv4 and IPv6",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, bondMaster: {miimon: 1, arpInterval: 1}}]",
        "links[0].bondMaster.arpInterval excludes miimon",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, bondMaster: {arpIpTargets: ['fd00::1']}}]",
        "links[0].bondMaster.arpIpTargets takes IPv4 addresses only",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, bondMaster: {nsIp6Targets: [10.0.0.1]}}]",
        "links[0].bondMaster.nsIp6Targets takes IPv6 addresses only",
    ),
    (
        "links: [{name: v, logical: true, kind: vlan, parentName: v, masterName: v, vlan: {vlanID: 1}}]",
        "the link \"v\", which is on or part of itself",
    ),
    (
        "links: [{name: b, logical: true, kind: bond, masterName: c}, {name: c, logical: true, kind: bond, masterName: b}, {name: a, masterName: b}]",
        "the link \"b\", which is on or part of itself",
    ),
];

#[test]
fn problems_in_meta_are_reported_with_their_field() {
    for (text, expected) in WRONG_IN_META {
        let told = PlatformNetwork::from_meta(text.as_bytes()).unwrap_err();
        assert!(told.to_string().contains(expected), "{text}: {told}");
    }
}

/// A list of 257 items.
fn many(one: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..257).map(one).collect();
    all.join(", ")
}

#[test]
fn every_list_of_a_platform_network_is_bounded() {
    let address = |n| format!("10.0.{}.{}", n / 256, n % 256);
    let (addresses, names) = (many(address), many(|n| format!("a{n}.example")));
    for (text, expected) in [
        (
            format!(
                "ethernets: {{{}}}",
                many(|n| format!("e{n}: {{dhcp4: true}}"))
            ),
            "256 links",
        ),
        // A bond that contains itself and more: the search for cycles must be bounded.
        (
            format!(
                "bonds: {{b: {{interfaces: [b, {}]}}}}",
                many(|n| format!("a{n}"))
            ),
            "256 links in bonds",
        ),
        (
            format!("ethernets: {{a: {{nameservers: {{addresses: [{addresses}]}}}}}}"),
            "256 name servers",
        ),
        (
            format!("ethernets: {{a: {{nameservers: {{search: [{names}]}}}}}}"),
            "256 search domains",
        ),
        (
            format!(
                "bonds: {{b: {{interfaces: [a], parameters: {{arp-ip-targets: [{addresses}]}}}}}}"
            ),
            "256 targets of ARP probes",
        ),
    ] {
        let told = network(format!("version: 2\n{text}\n").as_bytes()).unwrap_err();
        let told = told.to_string();
        assert!(
            told.contains(&format!("must have at most {expected}")),
            "{told}"
        );
    }
    for (text, expected) in [
        (
            format!("hostnames: [{}]", many(|n| format!("{{hostname: a{n}}}"))),
            "256 hostnames",
        ),
        (
            format!("resolvers: [{}]", many(|_| "{layer: x}".to_owned())),
            "256 resolvers",
        ),
        (
            format!("resolvers: [{{dnsServers: [{addresses}]}}]"),
            "256 name servers",
        ),
        (
            format!("resolvers: [{{searchDomains: [{names}]}}]"),
            "256 search domains",
        ),
        (
            format!("timeServers: [{{timeServers: [{names}]}}]"),
            "256 time servers",
        ),
        (
            format!(
                "links: [{{name: b, logical: true, kind: bond, bondMaster: {{arpIpTargets: [{addresses}]}}}}]"
            ),
            "256 targets of ARP probes",
        ),
    ] {
        let told = PlatformNetwork::from_meta(text.as_bytes()).unwrap_err();
        let told = told.to_string();
        assert!(
            told.contains(&format!("must have at most {expected}")),
            "{told}"
        );
    }
}

proptest! {
    #[test]
    fn hostile_platform_networks_never_panic(bytes in hostile("platform-network")) {
        if let Ok(said) = PlatformNetwork::from_meta(&bytes) {
            let is_link = |name: &str| (1..=15).contains(&name.len());
            prop_assert!(said.links.iter().all(|link| is_link(&link.name)));
        }
    }
}
