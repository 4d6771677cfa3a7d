//! Links that change their destination, or lose it, with a change of config.

use corten_config::testing::{doc, document, good, with_interfaces};

use super::plan::{address_of_eth0, plan, told, with};

#[test]
fn lost_bridge_members_and_changes_of_both_veth_ends_are_reported() {
    let bridge = doc("BridgeConfig", "name: br0\nlinks: [eth0, eth1]");
    let pair = "name: v0\npeer: {name: v1, addresses: [{address: 10.9.0.5/24}]}";
    let pair = doc("VethConfig", pair);
    for (old, new, risk) in [
        (
            bridge.clone(),
            bridge.replace("eth0, eth1", "eth1"),
            "eth0 is no longer part of br0",
        ),
        (
            pair.clone(),
            pair.replace("10.9.0.5", "10.9.0.6"),
            "v1 loses the address 10.9.0.5/24",
        ),
        (pair, doc("HostnameConfig", "hostname: x"), "v1 is removed"),
    ] {
        told(&old, &new, risk);
    }
}

#[test]
fn competing_routes_are_reported_in_every_spelling() {
    let two = format!(
        "{}{}",
        address_of_eth0(),
        doc("LinkConfig", "name: eth1\nroutes: [ROUTE]")
    );
    let without = two.replace("ROUTE", "");
    for route in [
        "{gateway: 10.1.0.1, metric: 5}",
        "{gateway: 10.1.0.1, destination: 0.0.0.0/0}",
        "{gateway: 10.1.0.1, table: 0}",
        "{destination: 0.0.0.0/0}",
    ] {
        let risk = "packets take another route: eth1 gets the default route";
        told(&without, &two.replace("ROUTE", route), risk);
    }
    let other = two.replace("ROUTE", "{gateway: 'fd00::1'}");
    assert_eq!(risks(&with(&without), &with(&other)), [""; 0]);
}

fn risks(old: &corten_config::Document, new: &corten_config::Document) -> Vec<String> {
    plan(Some(old), new).risks
}

fn interface(item: &str) -> corten_config::Document {
    document(&with_interfaces(item))
}

#[test]
fn link_moved_between_the_two_forms_is_no_change() {
    for (kind, fields, item) in [
        (
            "LinkConfig",
            "name: eth0\naddresses: [{address: 10.0.0.5/24}]\nroutes: [{gateway: 10.0.0.1}]",
            "{interface: eth0, mtu: 0, addresses: [10.0.0.5/24], routes: [{network: 0.0.0.0/0, gateway: 10.0.0.1}]}",
        ),
        (
            "DHCPv4Config",
            "name: eth0\nrouteMetric: 5",
            "{interface: eth0, dhcp: true, dhcpOptions: {routeMetric: 5}}",
        ),
        (
            "DHCPv6Config",
            "name: eth0\nduidRaw: '00010203'",
            "{interface: eth0, dhcp: true, dhcpOptions: {ipv4: false, ipv6: true, duidv6: '00010203'}}",
        ),
        (
            "BondConfig",
            "name: b\nlinks: [a]\nbondMode: 802.3ad\nmiimon: 100",
            "{interface: b, bond: {interfaces: [a], mode: 802.3ad, miimon: 100}}",
        ),
        (
            "VLANConfig",
            "name: eth0.5\nvlanID: 5\nparent: eth0",
            "{interface: eth0, vlans: [{vlanId: 5, mtu: 0}]}",
        ),
        (
            "VLANConfig",
            "name: enp15c0f63.100\nvlanID: 100\nparent: enp129s0f0np0",
            "{interface: enp129s0f0np0, vlans: [{vlanId: 100}]}",
        ),
    ] {
        let document = document(&(good() + &doc(kind, fields)));
        let interface = interface(item);
        assert_eq!(risks(&interface, &document), [""; 0], "{kind}");
    }
}

#[test]
fn settings_removed_from_the_v1alpha1_fields_are_reported() {
    let chosen = "{deviceSelector: {driver: e1000}, addresses: [10.0.0.5/24]}";
    let ignored = "{interface: eth0, vlans: [{vlanId: 5}], ignore: true}";
    let bond = "{interface: b, bond: {interfaces: [a], adActorSystem: '02:00:00:00:00:01'}}";
    for (old, new, risk) in [
        (
            chosen.to_owned(),
            chosen.replace("e1000", "igb"),
            "the address 10.0.0.5/24 moves from the link with driver e1000 to the link with driver igb",
        ),
        (
            ignored.replace("true", "false"),
            ignored.to_owned(),
            "eth0.5 is switched off",
        ),
        (
            bond.to_owned(),
            bond.replace("00:01", "00:02"),
            "b works with other settings",
        ),
        (
            bond.to_owned(),
            bond.replace("ad", "mode: 802.3ad, ad"),
            "b is created with other settings",
        ),
        (
            "{interface: eth0, dhcp: true}".to_owned(),
            "{interface: eth0, dhcp: true, dhcpOptions: {ipv4: false}}".to_owned(),
            "eth0 no longer uses DHCP",
        ),
    ] {
        let risks = risks(&interface(&old), &interface(&new));
        assert!(risks.iter().any(|told| told == risk), "{risk}: {risks:?}");
    }
}

/// As on the node: for a link in both forms the document with a kind wins.
#[test]
fn document_wins_for_a_link_given_in_both_forms() {
    let both = |mtu: &str| {
        let text = with_interfaces(&format!("{{interface: eth0, mtu: {mtu}}}"));
        document(&(text + &doc("LinkConfig", "name: eth0\nmtu: 1400")))
    };
    assert_eq!(risks(&both("1300"), &both("1200")), [""; 0]);
}
