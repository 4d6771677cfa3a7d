use super::{EXAMPLES, bare, future, problems};
use crate::kinds::{
    BondConfig, KINDS, KNOWN, LinkConfig, NetworkRuleConfig, VolumeConfig, WireguardConfig,
};

fn all() -> String {
    format!("{}---\n{EXAMPLES}", bare("controlplane"))
}

#[test]
fn every_kind_has_an_example_that_is_read() {
    let document = future(&all());
    for kind in KINDS {
        assert!(
            EXAMPLES.contains(&format!("kind: {}\n", kind.name)),
            "{} has no example",
            kind.name
        );
        assert!(!kind.doc.is_empty());
    }
    let link = document.all::<LinkConfig>().next().unwrap();
    assert_eq!((&*link.name, link.link.mtu), ("enp0s3", Some(9000)));
    assert_eq!(link.link.addresses[1].address.to_string(), "fd00::5/64");
    let bond = document.all::<BondConfig>().next().unwrap();
    assert_eq!((bond.links.len(), bond.miimon), (2, Some(100)));
    let volume = document.all::<VolumeConfig>().next().unwrap();
    let keys = &volume.encryption.as_ref().unwrap().keys;
    assert!(keys[0].node_id.is_some() && keys[1].fixed.is_some());
    let wireguard = document.all::<WireguardConfig>().next().unwrap();
    assert_eq!(
        wireguard.peers[0].endpoint,
        Some("[fd00::9]:51820".parse().unwrap())
    );
    let rule = document.all::<NetworkRuleConfig>().next().unwrap();
    assert!(rule.port_selector.ports[1].contains(8005));
    // Redaction uses every table.
    let redacted = document.redacted();
    for secret in [
        "correct horse",
        "AAAAAAAAAAAA",
        "AgICAg",
        "MONITOR",
        "NFSMount",
        "HIDDEN",
        "SElEREVO",
    ] {
        assert!(!redacted.contains(secret), "{redacted}");
    }
}

#[test]
fn unsupported_kinds_are_each_refused_by_name() {
    let found = problems(&all());
    let later: Vec<_> = KINDS
        .iter()
        .filter(|kind| kind.support == corten_yaml::table::Support::Later)
        .collect();
    for kind in &later {
        let text = format!("not supported yet: documents of kind {}", kind.name);
        assert!(
            found.iter().any(|p| p.ends_with(&text)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn kinds_are_listed_once_and_named_kinds_require_a_name() {
    let mut names: Vec<_> = KINDS.iter().chain(KNOWN).map(|kind| kind.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for kind in KINDS {
        let name = corten_yaml::table::find(kind.table, "name");
        assert_eq!(
            name.is_some_and(|field| field.required),
            kind.named,
            "{}",
            kind.name
        );
    }
    for name in crate::conflicts::names().chain(crate::forms::names()) {
        assert!(KINDS.iter().any(|kind| kind.name == name), "{name}");
    }
}
