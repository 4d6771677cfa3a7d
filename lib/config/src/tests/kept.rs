//! Reports of settings that are only kept.

use super::{bare, control_plane, doc, document, good};

/// A control plane node's config that the node acts on completely.
fn plain() -> String {
    let cluster = "cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n";
    format!("{}{cluster}", bare("controlplane"))
}

#[test]
fn fields_without_effect_are_named_once_by_their_section() {
    assert_eq!(document(&plain()).kept(), None);
    let service = "name: a\nendpoint: 'https://d.example.org'";
    let service = doc("DiscoveryServiceConfig", service);
    let kept = document(&(good() + &service)).kept();
    let expected =
        "kept, and not acted on by this version: debug, cluster.id, DiscoveryServiceConfig a";
    assert_eq!(kept.as_deref(), Some(expected));
    // Empty values are not reported, and neither are supported ones.
    let image = format!("registry.example.org/a@sha256:{}", "0".repeat(64));
    let extensions = format!("install: {{disk: '', extensions: [{{image: '{image}'}}]}}");
    let text = plain().replace("    ca:", &format!("    {extensions}\n    ca:"));
    assert_eq!(document(&text).kept(), None);
}

#[test]
fn cas_and_secret_of_the_cluster_are_not_reported_as_kept() {
    let kept = document(&control_plane()).kept().unwrap();
    assert!(
        kept.contains("DiscoveryIdentityConfig: clusterID"),
        "{kept}"
    );
    for used in ["clusterSecret", "issuingCA", "acceptedCAs"] {
        assert!(!kept.contains(used), "{kept}");
    }
}

#[test]
fn list_of_fields_without_effect_is_bounded() {
    let many = |count: usize| {
        let one = |number| {
            let fields = format!("name: service-{number}\nendpoint: 'https://d.example.org'");
            doc("DiscoveryServiceConfig", &fields)
        };
        let all: String = (0..count).map(one).collect();
        document(&(good() + &all)).kept().unwrap()
    };
    let last = "DiscoveryServiceConfig service-29";
    assert!(many(30).ends_with(&format!(", {last}")), "{}", many(30));
    assert!(
        many(32).ends_with(&format!(", {last} and 2 more")),
        "{}",
        many(32)
    );
}
