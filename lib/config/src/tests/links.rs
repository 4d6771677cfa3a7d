//! Invalid links, in documents of their own kinds and in `machine.network.interfaces`: both follow the same rules.

use super::{doc, future_problems, with, with_interfaces};

/// The problems of a config with an additional document, without the line and the name of the document.
fn in_document(kind: &str, fields: &str) -> Vec<String> {
    let told = told(&with(kind, fields)).into_iter();
    let without_name = told.map(|what| match what.split_once(": ") {
        Some((document, what)) if document.starts_with(kind) => what.to_owned(),
        _ => what,
    });
    without_name.collect()
}

/// The problems of these items of `machine.network.interfaces`.
fn in_interfaces(items: &str) -> Vec<String> {
    told(&with_interfaces(items))
}

fn told(text: &str) -> Vec<String> {
    let problems = future_problems(text).into_iter();
    let without_line = problems.map(|problem| {
        let (_, what) = problem.split_once(": ").unwrap();
        what.to_owned()
    });
    without_line.collect()
}

/// The same link in a document of its own, as an interface, and as a VLAN: each problem has its path.
fn are_told(fields: &[&str], expected: &[&str]) {
    let behind = |path: &str| -> Vec<String> {
        let expected = expected.iter();
        expected.map(|what| format!("{path}{what}")).collect()
    };
    let (lines, items) = (fields.join("\n"), fields.join(", "));
    let found = in_document("LinkConfig", &format!("name: e\n{lines}"));
    assert_eq!(found, behind(""), "{items}");
    let found = in_interfaces(&format!("{{interface: e, {items}}}"));
    let path = "machine.network.interfaces[0].";
    assert_eq!(found, behind(path), "{items}");
    let vlan = format!("{{interface: e, vlans: [{{vlanId: 5, {items}}}]}}");
    let found = in_interfaces(&vlan);
    assert_eq!(found, behind(&format!("{path}vlans[0].")), "{items}");
}

#[test]
fn route_mtu_is_bounded_by_address_family_and_link() {
    for (gateway, mtu, least) in [
        ("10.0.0.1", "67", "68"),
        ("10.0.0.1", "65536", "68"),
        ("'fd00::1'", "1279", "1280"),
        ("'fd00::1'", "65536", "1280"),
    ] {
        let routes = format!("routes: [{{gateway: {gateway}, mtu: {mtu}}}]");
        let expected = format!("routes[0].mtu must be from {least} to 65535");
        are_told(&[&routes], &[&expected]);
    }
    let smallest = "{gateway: 10.0.0.1, mtu: 68}, {gateway: 'fd00::1', mtu: 1280}";
    let largest = "{gateway: 10.0.0.1, mtu: 65535}, {gateway: 'fd00::1', mtu: 65535}";
    are_told(&[&format!("routes: [{smallest}, {largest}]")], &[]);
    are_told(
        &["mtu: 65536", &format!("routes: [{smallest}, {largest}]")],
        &[],
    );
    are_told(
        &["mtu: 1280", &format!("routes: [{largest}, {smallest}]")],
        &[
            "routes[0].mtu must not be above the link's own, 1280",
            "routes[1].mtu must not be above the link's own, 1280",
        ],
    );
    // All problems at once; an invalid MTU of the link is not compared with those of the routes.
    are_told(
        &[
            "mtu: 67",
            "routes: [{gateway: 10.0.0.1, mtu: 70}, {gateway: 10.0.0.2, mtu: 1}]",
        ],
        &[
            "mtu must be from 68 to 65536",
            "routes[1].mtu must be from 68 to 65535",
        ],
    );
}

/// Some clients write every field.
#[test]
fn mtu_zero_in_v1alpha1_fields_means_the_default() {
    let items = "mtu: 0, routes: [{gateway: 10.0.0.1, mtu: 0}]";
    let vlan = format!("vlans: [{{vlanId: 5, {items}}}]");
    assert_eq!(
        in_interfaces(&format!("{{interface: e, {items}, {vlan}}}")),
        [""; 0]
    );
    let refused = in_document("LinkConfig", "name: e\nmtu: 0");
    assert_eq!(refused, ["mtu must be from 68 to 65536"]);
}

/// A bond's setting in a document of its own, the equivalent in the old form if its name differs, and the expected
/// problem. An empty equivalent means that there is none.
const SETTINGS: &[(&str, Option<&str>, &str)] = &[
    (
        "miimon: 2147483648",
        Some(""),
        "miimon must be from 0 to 2147483647",
    ),
    (
        "updelay: 2147483648",
        Some(""),
        "updelay must be from 0 to 2147483647",
    ),
    (
        "downdelay: 2147483648",
        Some(""),
        "downdelay must be from 0 to 2147483647",
    ),
    (
        "arpInterval: 2147483648",
        Some(""),
        "arpInterval must be from 0 to 2147483647",
    ),
    (
        "minLinks: 2147483648",
        Some(""),
        "minLinks must be from 0 to 2147483647",
    ),
    (
        "lpInterval: 0",
        Some(""),
        "lpInterval must be from 1 to 2147483647",
    ),
    (
        "packetsPerSlave: 65536",
        Some(""),
        "packetsPerSlave must be from 0 to 65535",
    ),
    (
        "allSlavesActive: 2",
        Some(""),
        "allSlavesActive must be from 0 to 1",
    ),
    (
        "adActorSysPrio: 0",
        Some(""),
        "adActorSysPrio must be from 1 to 65535",
    ),
    (
        "adUserPortKey: 1024",
        Some(""),
        "adUserPortKey must be from 0 to 1023",
    ),
    (
        "resendIGMP: 256",
        Some("resendIgmp"),
        "must be from 0 to 255",
    ),
    (
        "tlbLogicalLb: 2",
        Some("tlbDynamicLb"),
        "must be from 0 to 1",
    ),
    (
        "peerNotifDelay: 300001",
        Some("peerNotifyDelay"),
        "must be from 0 to 300000",
    ),
    ("missedMax: 0", None, "missedMax must be from 1 to 255"),
    (
        "arpIpTargets: ['fd00::1']",
        Some("arpIPTarget"),
        "takes IPv4 addresses only",
    ),
    (
        "nsIp6Targets: [10.0.0.1]",
        None,
        "nsIp6Targets takes IPv6 addresses only",
    ),
    ("primary: c", Some(""), "primary must be one of LINKS"),
];

#[test]
fn invalid_bond_settings_are_refused_in_both_forms() {
    for (setting, old, why) in SETTINGS {
        let (name, value) = setting.split_once(": ").unwrap();
        let of = |name: &str, links: &str| {
            let why = why.replace("LINKS", links);
            match why.strip_prefix(name) {
                Some(_) => why,
                None => format!("{name} {why}"),
            }
        };
        let bond = format!("name: b\nlinks: [a]\nbondMode: balance-rr\n{setting}");
        let expected = of(name, "links");
        assert_eq!(in_document("BondConfig", &bond), [expected], "{setting}");
        let Some(old) = old else { continue };
        let old = if old.is_empty() { name } else { old };
        let bond = format!("interfaces: [a], mode: balance-rr, {old}: {value}");
        let found = in_interfaces(&format!("{{interface: b, bond: {{{bond}}}}}"));
        let expected = of(old, "interfaces");
        let path = "machine.network.interfaces[0].bond";
        assert_eq!(found, [format!("{path}.{expected}")], "{setting}");
    }
}

#[test]
fn every_problem_of_a_bond_is_reported_at_once() {
    let targets: Vec<String> = (1..=17).map(|n| format!("10.0.0.{n}")).collect();
    let targets = targets.join(", ");
    let found = in_document(
        "BondConfig",
        &format!(
            "name: b\nlinks: [a]\nbondMode: active-backup\nmiimon: 100\narpInterval: 100\n\
             arpValidate: all\narpIpTargets: [{targets}]\nprimary: c\nlpInterval: 0"
        ),
    );
    let expected = [
        "arpInterval excludes miimon",
        "arpValidate excludes miimon",
        "arpIpTargets must have at most 16 addresses",
        "primary must be one of links",
        "lpInterval must be from 1 to 2147483647",
    ];
    assert_eq!(found, expected);
    let bond = format!(
        "miimon: 100, arpInterval: 100, arpValidate: all, arpIPTarget: [{targets}], primary: c, lpInterval: 0, \
         adActorSystem: '01:00:00:00:00:01'"
    );
    let found = in_interfaces(&format!("{{interface: b, bond: {{{bond}}}}}"));
    let path = "machine.network.interfaces[0].bond";
    let mut expected: Vec<String> = expected
        .iter()
        .map(|what| what.replace("arpIpTargets", "arpIPTarget"))
        .map(|what| format!("{path}.{}", what.replace("of links", "of interfaces")))
        .collect();
    expected.insert(0, format!("{path} needs interfaces or deviceSelectors"));
    expected.push(format!(
        "{path}.adActorSystem must be the address of one device: its first byte is even"
    ));
    assert_eq!(found, expected);
}

#[test]
fn bond_settings_at_their_bounds_are_accepted() {
    let most = "miimon: 2147483647, updelay: 2147483647, downdelay: 0, minLinks: 2147483647, lpInterval: 1, \
        packetsPerSlave: 65535, allSlavesActive: 1, adActorSysPrio: 65535, adUserPortKey: 1023, lacpRate: fast, \
        arpInterval: 0, arpValidate: none, primary: a, numPeerNotif: 255";
    let old = "resendIgmp: 255, tlbDynamicLb: 1, peerNotifyDelay: 300000, adActorSystem: '02:00:00:00:00:01'";
    for mode in ["802.3ad", "active-backup", "balance-alb"] {
        let bond = format!("interfaces: [a], mode: {mode}, {most}, {old}");
        assert_eq!(
            in_interfaces(&format!("{{interface: b, bond: {{{bond}}}}}")),
            [""; 0]
        );
    }
    // With selectors the members are unknown, so any primary link is accepted.
    let chosen = "deviceSelectors: [{driver: e1000}], primary: c";
    assert_eq!(
        in_interfaces(&format!("{{interface: b, bond: {{{chosen}}}}}")),
        [""; 0]
    );
}

#[test]
fn link_belongs_to_one_bond_or_bridge_across_both_forms() {
    let path = "machine.network.interfaces";
    let found = in_interfaces(
        "{interface: b, bond: {interfaces: [a, b]}}, {interface: c, bridge: {interfaces: [a, c]}}",
    );
    let [itself, twice, bridge] = found.as_slice() else {
        panic!("{found:?}");
    };
    let expected = "[0].bond.interfaces: the link b is part of itself; remove it";
    assert_eq!(itself, &format!("{path}{expected}"));
    let expected = "[1].bridge.interfaces: the link a belongs to two links; first on line";
    assert!(twice.starts_with(&format!("{path}{expected}")), "{twice}");
    let expected = "[1].bridge.interfaces: the link c is part of itself; remove it";
    assert_eq!(bridge, &format!("{path}{expected}"));

    let bridge = "{interface: br, bridge: {interfaces: [a]}}";
    let port = "{interface: a, bridgePort: {master: MASTER}}";
    for (master, expected) in [
        ("br", None),
        ("other", Some("the link a belongs to two links; first on")),
        ("a", Some("the link a belongs to two links; first on")),
    ] {
        let port = port.replace("MASTER", master);
        for items in [format!("{bridge}, {port}"), format!("{port}, {bridge}")] {
            let found = in_interfaces(&items);
            let is_told = |what: &str| found.iter().any(|told| told.contains(what));
            assert!(expected.is_none_or(is_told), "{items}: {found:?}");
            assert_eq!(found.is_empty(), expected.is_none(), "{items}: {found:?}");
        }
    }
    let found = in_interfaces(&port.replace("MASTER", "a"));
    let expected = "[0].bridgePort: the link a is part of itself; remove it";
    assert_eq!(found, [format!("{path}{expected}")]);

    let found = in_document("BondConfig", "name: b\nlinks: [a, b]\nbondMode: balance-rr");
    assert_eq!(found, ["the link b is part of itself; remove it"]);
    // Both forms together.
    let old = with_interfaces("{interface: old, bond: {interfaces: [a]}}");
    let new = doc("BondConfig", "name: b\nlinks: [a]\nbondMode: balance-rr");
    let found = told(&(old + &new));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("the link a belongs to two links; first on line"));
}

#[test]
fn wireguard_field_excludes_other_link_kinds() {
    let with = |link: &str| {
        let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let wireguard = format!("{{privateKey: {key}, peers: [{{publicKey: {key}}}]}}");
        in_interfaces(&format!("{{{link}, wireguard: {wireguard}}}"))
    };
    assert_eq!(with("interface: wg0"), [""; 0]);
    for other in [
        "interface: wg0, dummy: true",
        "deviceSelector: {driver: e1000}",
    ] {
        let found = with(other);
        let why = "interfaces[0].wireguard excludes bond, bridge, dummy and deviceSelector";
        assert!(found.iter().any(|p| p.contains(why)), "{other}: {found:?}");
    }
}

#[test]
fn duid_field_must_be_hexadecimal() {
    let with = |duid: &str| {
        let asked = format!("{{ipv6: true, duidv6: '{duid}'}}");
        in_interfaces(&format!(
            "{{interface: eth0, dhcp: true, dhcpOptions: {asked}}}"
        ))
    };
    assert_eq!(with("00:01:AB"), [""; 0]);
    for wrong in ["xyz", "000"] {
        let found = with(wrong);
        let why = "interfaces[0].dhcpOptions.duidv6 must be hexadecimal";
        assert!(found.iter().any(|p| p.contains(why)), "{wrong}: {found:?}");
    }
}
