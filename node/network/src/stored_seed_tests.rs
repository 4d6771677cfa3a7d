//! Tests the file of a cloud's network settings.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use corten_corpus::{hostile, samples};
use corten_seed::{SeedLink, SeedMatch, SeedShape};
use corten_values::{Cidr, Mac};
use proptest::prelude::*;

use super::*;
use crate::links::Present;
use crate::platform_layer::of_seed;

fn seed(address: &str) -> Seed {
    let card = SeedShape::Card(SeedMatch {
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        ..SeedMatch::default()
    });
    Seed {
        network: SeedNetwork {
            links: vec![SeedLink {
                addresses: vec![Cidr::parse(address).unwrap()],
                ..SeedLink::new("eth0", card)
            }],
            dns_servers: vec!["10.0.0.53".parse().unwrap()],
            search_domains: vec!["example.org".to_owned()],
            ..SeedNetwork::default()
        },
        hostname: Some("n1.example.org".to_owned()),
        time_servers: vec!["time.example.org".to_owned(), "fd00::123".to_owned()],
        ..Seed::default()
    }
}

fn place(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

#[test]
fn settings_of_a_platform_are_stored_and_loaded_for_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "digital-ocean");
    assert_eq!(stored.load(), Ok(None));
    for address in ["10.0.0.2/24", "10.0.0.3/24"] {
        stored.save(&seed(address)).unwrap();
        assert_eq!(stored.load(), Ok(Some(seed(address))));
    }
    let mode = fs::metadata(place(directory.path())).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);

    let moved = StoredSeed::new(directory.path(), "vultr");
    let why = moved.load().unwrap_err();
    let expected = "platform-network.json: they are those of the platform \"digital-ocean\"";
    assert!(why.ends_with(expected), "{why}");
    moved.save(&seed("10.0.0.4/24")).unwrap();
    assert_eq!(moved.load(), Ok(Some(seed("10.0.0.4/24"))));
    stored.load().unwrap_err();
}

#[test]
fn same_settings_are_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "vultr");
    let number = || fs::metadata(place(directory.path())).unwrap().ino();
    stored.save(&seed("10.0.0.2/24")).unwrap();
    let first = number();
    stored.save(&seed("10.0.0.2/24")).unwrap();
    assert_eq!(number(), first);
    // A replacement is another file; both exist for a moment.
    stored.save(&seed("10.0.0.3/24")).unwrap();
    assert_ne!(number(), first);
}

#[test]
fn damaged_file_is_an_error_with_its_name_and_the_next_answer_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "vultr");
    stored.save(&seed("10.0.0.2/24")).unwrap();
    let whole = fs::read_to_string(place(directory.path())).unwrap();
    let half = whole.split_at(whole.len() / 2).0.to_owned();
    let twice = r#"{"id":"b","shape":{"bridge":{"members":["eth0","eth0"],"stp":false}}}"#;
    for (text, expected) in [
        (String::new(), "EOF"),
        ("\0".repeat(64), "expected value"),
        (half, "EOF"),
        (
            whole.replace("10.0.0.2/24", "10.0.0.2/64"),
            "is not an address",
        ),
        (
            whole.replace("n1.example.org", "n1\\nx"),
            "hostname is not a host name",
        ),
        (
            whole.replace("\"network\"", "\"other\""),
            "missing field `network`",
        ),
        (
            whole.replace("\"links\":[", &format!("\"links\":[{twice},")),
            "the network has the link \"eth0\" twice",
        ),
        (
            format!("{whole}{}", " ".repeat(LONGEST)),
            "larger than 1024 KiB",
        ),
    ] {
        fs::write(place(directory.path()), &text).unwrap();
        let why = stored.load().unwrap_err();
        assert!(
            why.contains("platform-network.json: ") && why.contains(expected),
            "{why}"
        );
        stored.save(&seed("10.0.0.2/24")).unwrap();
        assert_eq!(fs::read_to_string(place(directory.path())).unwrap(), whole);
    }
}

#[test]
fn file_of_a_newer_version_is_used_without_what_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "vultr");
    stored.save(&seed("10.0.0.2/24")).unwrap();
    let text = fs::read_to_string(place(directory.path())).unwrap();
    let text = text.replacen('{', r#"{"age":{"days":1},"#, 1);
    fs::write(place(directory.path()), text).unwrap();
    assert_eq!(stored.load(), Ok(Some(seed("10.0.0.2/24"))));
}

#[test]
fn names_that_no_resolver_can_use_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "opennebula");
    let mut odd = seed("10.0.0.2/24");
    odd.network
        .search_domains
        .push("a\nnameserver 10.9.9.9".to_owned());
    odd.time_servers.push("a b".to_owned());
    stored.save(&odd).unwrap();
    assert_eq!(stored.load(), Ok(Some(seed("10.0.0.2/24"))));
}

#[test]
fn too_many_settings_are_not_stored_and_the_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let stored = StoredSeed::new(directory.path(), "vultr");
    stored.save(&seed("10.0.0.2/24")).unwrap();
    let mut large = seed("10.0.0.3/24");
    large.network.search_domains = vec!["a".repeat(LONGEST)];
    let why = stored.save(&large).unwrap_err().to_string();
    assert_eq!(why, "larger than 1024 KiB");
    assert_eq!(stored.load(), Ok(Some(seed("10.0.0.2/24"))));
}

#[test]
fn corpus_samples_are_loaded() {
    let directory = tempfile::tempdir().unwrap();
    for sample in samples("stored-network") {
        fs::write(place(directory.path()), &sample.bytes).unwrap();
        let stored = StoredSeed::new(directory.path(), "vultr");
        let found = stored
            .load()
            .unwrap_or_else(|why| panic!("{}: {why}", sample.name));
        assert!(!found.unwrap().network.links.is_empty(), "{}", sample.name);
    }
}

proptest! {
    #[test]
    fn hostile_stored_networks_become_specs_or_an_error(bytes in hostile("stored-network")) {
        let content = serde_json::from_slice::<Content>(&bytes);
        let found = content.map_err(|error| error.to_string());
        if let Ok(seed) = found.and_then(|content| content.seed_of("vultr")) {
            let (specs, _) = of_seed(&seed, &Present::new());
            prop_assert!(specs.routes.iter().all(|route| route.dst == route.dst.network()));
            let domains = specs.resolver.map(|resolver| resolver.search_domains);
            prop_assert!(domains.unwrap_or_default().iter().all(|name| is_host_name(name)));
        }
    }
}
