//! Tests failures that all platforms share, and hostile metadata.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::{any, prop_assert, proptest};
use proptest::sample::select;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::{Client, LARGEST, is_local};
use crate::documents::{Documents, Given};
use crate::follow::{News, Pace, follow};
use crate::platforms::{PLATFORMS, find};
use crate::request::Need;
use crate::round::{self, Stage};
use crate::testing::{Reply, Script};

const PACE: Pace = Pace {
    first: Duration::from_millis(5),
    longest: Duration::from_millis(10),
    again: Duration::from_millis(20),
};
const BASE: &str = "http://169.254.169.254/hetzner/v1";

fn script() -> Script {
    Script::new()
        .get("/hetzner/v1/userdata", "machine: {}")
        .get("/hetzner/v1/metadata/instance-id", "42")
        .get("/hetzner/v1/metadata/hostname", "node-1")
}

/// Follows a server whose script may change.
async fn heard(
    script: &Script,
    patience: Duration,
) -> (mpsc::UnboundedReceiver<News>, Arc<Mutex<Script>>) {
    let (server, shared) = script.serve().await;
    let (sender, news) = mpsc::unbounded_channel();
    let client = Client::of_test(server, patience);
    let local = Arc::new(script.clone());
    tokio::spawn(async move {
        let tell = |one| drop(sender.send(one));
        follow(find("hcloud").unwrap(), client, local, PACE, Vec::new, tell).await;
    });
    (news, shared)
}

async fn next(news: &mut mpsc::UnboundedReceiver<News>) -> News {
    timeout(Duration::from_secs(20), news.recv())
        .await
        .unwrap()
        .unwrap()
}

/// Waits for an instance. Also returns the earlier events.
async fn said(news: &mut mpsc::UnboundedReceiver<News>) -> (crate::Instance, Vec<String>) {
    let mut before = Vec::new();
    loop {
        match next(news).await {
            News::Said(instance) => return (*instance, before),
            News::Waiting(what) | News::Wrong(what) => before.push(what),
        }
    }
}

#[test]
fn every_platform_queries_private_addresses_only() {
    for platform in PLATFORMS {
        assert_eq!(find(platform.name).unwrap().name, platform.name);
        for base in platform.bases {
            let url: http::Uri = base.parse().unwrap();
            assert!(!base.ends_with('/'), "{base}");
            let host = url.host().unwrap().trim_matches(['[', ']']);
            match host.parse() {
                Ok(address) => assert!(is_local(address), "{base}"),
                // The client checks the resolved address or the certificate.
                Err(_) => assert!(matches!(
                    host,
                    "data-server" | "metadata.platformequinix.com"
                )),
            }
        }
        for request in platform.requests {
            assert!(request.path.starts_with('/'), "{}", request.path);
        }
    }
    assert!(find("metal").is_none() && find("AWS").is_none());
}

#[tokio::test]
async fn failing_metadata_server_is_queried_until_it_answers() {
    let needed = "GET /hetzner/v1/metadata/instance-id";
    for (reply, why) in [
        (Reply::Status(404), "the answer is 404"),
        (Reply::Status(500), "the answer is 500"),
        (Reply::Status(401), "the answer is 401"),
        (Reply::Silence, "no complete answer within"),
        (Reply::Raw(Vec::new()), "connection closed"),
        (Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec()), ""),
        (Reply::Raw(b"220 mail.example ESMTP\r\n".to_vec()), "invalid HTTP"),
        (Reply::Body(vec![b'x'; LARGEST + 1]), "the answer is larger than 1024 KiB"),
        (
            Reply::Raw(b"HTTP/1.1 302 x\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n".to_vec()),
            "the answer redirects to another host, which is not allowed",
        ),
        (
            Reply::Raw(
                b"HTTP/1.1 302 x\r\nlocation: /hetzner/v1/metadata/instance-id\r\ncontent-length: 0\r\n\r\n"
                    .to_vec(),
            ),
            "more than 3 redirects",
        ),
        (
            Reply::Raw([b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'x'; 1 << 20]].concat()),
            "",
        ),
    ] {
        let script = script().reply(needed, reply.clone());
        let (mut news, shared) = heard(&script, Duration::from_millis(500)).await;
        for _ in 0..2 {
            let News::Waiting(what) = next(&mut news).await else {
                panic!("{reply:?}");
            };
            assert!(what.starts_with(&format!("{BASE}/metadata/instance-id: {why}")), "{what}");
            assert!(what.contains("; asking again in "), "{what}");
        }
        let whole = shared.lock().unwrap().clone().get("/hetzner/v1/metadata/instance-id", "42");
        *shared.lock().unwrap() = whole;
        let (instance, _) = said(&mut news).await;
        assert_eq!(instance.metadata.instance_id, "42");
    }
}

#[tokio::test]
async fn failing_optional_document_is_skipped_after_a_bounded_time() {
    let script = script().reply(
        "GET /hetzner/v1/metadata/network-config",
        Reply::Status(500),
    );
    let (mut news, _) = heard(&script, Duration::from_secs(5)).await;
    let (instance, before) = said(&mut news).await;
    let left_out =
        format!("{BASE}/metadata/network-config: the answer is 500; going on without it");
    assert_eq!(before.len(), 3, "{before:?}");
    assert_eq!(before[2], left_out);
    assert!(instance.config.is_some());
}

#[tokio::test]
async fn unavailable_machine_config_never_counts_as_absent() {
    for reply in [
        Reply::Status(500),
        Reply::Status(429),
        Reply::Raw(Vec::new()),
        Reply::Silence,
    ] {
        let script = script().reply("GET /hetzner/v1/userdata", reply.clone());
        let (mut news, shared) = heard(&script, Duration::from_millis(200)).await;
        for _ in 0..6 {
            let News::Waiting(what) = next(&mut news).await else {
                panic!("{reply:?}");
            };
            assert!(what.starts_with(&format!("{BASE}/userdata: ")), "{what}");
        }
        // Nor does the failure of another optional document delay it.
        let network = "GET /hetzner/v1/metadata/network-config";
        let whole = shared.lock().unwrap().clone();
        *shared.lock().unwrap() = whole
            .get("/hetzner/v1/userdata", "machine: {}")
            .reply(network, Reply::Status(500));
        let (instance, _) = said(&mut news).await;
        assert_eq!(instance.config.as_deref(), Some(b"machine: {}".as_slice()));
    }
}

#[tokio::test]
async fn unavailable_user_data_delay_no_metadata_of_a_node_with_a_config() {
    let script = script()
        .reply("GET /hetzner/v1/userdata", Reply::Status(500))
        .with_config();
    let (mut news, _) = heard(&script, Duration::from_secs(5)).await;
    let (instance, before) = said(&mut news).await;
    let left_out = format!("{BASE}/userdata: the answer is 500; going on without it");
    assert_eq!((before.len(), &before[2]), (3, &left_out));
    assert_eq!(instance.metadata.instance_id, "42");
}

#[tokio::test]
async fn user_data_are_absent_unusable_or_the_config() {
    let cut: &[u8] = &[0x1f, 0x8b, 8, 0];
    let base64 = b"I2Nsb3VkLWNvbmZpZwo=";
    for (reply, has_config, is_unusable) in [
        (Reply::Status(404), false, false),
        (Reply::Status(204), false, false),
        (Reply::Body(b" \n".to_vec()), false, false),
        (Reply::Body(b"#cloud-config\n".to_vec()), false, false),
        (Reply::Body(base64.to_vec()), false, false),
        (Reply::Body(b"#!/bin/sh\n".to_vec()), false, true),
        (Reply::Body(cut.to_vec()), false, true),
        (Reply::Body(b"machine: {}".to_vec()), true, false),
    ] {
        let script = script().reply("GET /hetzner/v1/userdata", reply.clone());
        let (instance, notes) = script.ask(find("hcloud").unwrap()).await;
        let found = (instance.config.is_some(), instance.unusable.is_some());
        assert_eq!(found, (has_config, is_unusable), "{reply:?}");
        assert!(instance.unusable.iter().all(|why| notes.contains(why)));
    }
}

#[test]
fn every_metadata_service_has_one_document_for_the_config() {
    for platform in PLATFORMS {
        let requests = platform.requests.iter();
        let configs = requests.filter(|request| request.need == Need::Config);
        let names: Vec<&str> = configs.map(|request| &*request.document).collect();
        let expected: &[&str] = if platform.bases.is_empty() {
            &[]
        } else {
            &["user-data"]
        };
        assert_eq!(names, expected, "{}", platform.name);
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_followed() {
    let to = b"HTTP/1.1 301 x\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n";
    let (instance, notes) = script()
        .reply(
            "GET /hetzner/v1/metadata/instance-id",
            Reply::Raw(to.to_vec()),
        )
        .get("/elsewhere", "43")
        .ask(find("hcloud").unwrap())
        .await;
    assert_eq!((notes.len(), &*instance.metadata.instance_id), (0, "43"));
}

#[tokio::test]
async fn metadata_change_at_run_time_is_reported_once() {
    let (mut news, shared) = heard(&script(), Duration::from_secs(5)).await;
    let (first, _) = said(&mut news).await;
    assert_eq!(first.network.external, Vec::<std::net::IpAddr>::new());
    let changed = shared
        .lock()
        .unwrap()
        .clone()
        .get("/hetzner/v1/metadata/public-ipv4", "203.0.113.7");
    *shared.lock().unwrap() = changed;
    let (second, before) = said(&mut news).await;
    assert_eq!((second.network.external.len(), before.len()), (1, 0));
    // A field that becomes invalid is reported once, and the accepted answer stays.
    for broken in [Reply::Body(b"a".to_vec()), Reply::Status(500)] {
        let wrong = shared
            .lock()
            .unwrap()
            .clone()
            .reply("GET /hetzner/v1/metadata/public-ipv4", broken);
        *shared.lock().unwrap() = wrong;
        let heard = next(&mut news).await;
        let (News::Wrong(what) | News::Waiting(what)) = heard else {
            panic!("{heard:?}");
        };
        assert!(
            what.starts_with(&format!("{BASE}/metadata/public-ipv4: ")),
            "{what}"
        );
        timeout(Duration::from_millis(200), news.recv())
            .await
            .unwrap_err();
    }
    let other = shared
        .lock()
        .unwrap()
        .clone()
        .get("/hetzner/v1/metadata/public-ipv4", "203.0.113.8");
    *shared.lock().unwrap() = other;
    let (third, before) = said(&mut news).await;
    assert_eq!((third.network.external.len(), before.len()), (1, 0));
}

#[tokio::test]
async fn field_of_a_wrong_type_is_named_with_its_url_and_left_out() {
    let metadata = r#"{"droplet_id":{},"hostname":"a b","region":"nyc3","tags":"x",
        "dns":{"nameservers":["1",2]},"interfaces":{"public":[{"ipv4":{"ip_address":"192.0.2.1",
        "netmask":"255.0.255.0"},"mac":"zz"}],"private":7}}"#;
    let (instance, notes) = Script::new()
        .get("/metadata/v1/user-data", "machine: {}")
        .get("/metadata/v1.json", metadata)
        .ask(find("digital-ocean").unwrap())
        .await;
    let url = "http://169.254.169.254/metadata/v1.json";
    for field in [
        "droplet_id must be one short line of text",
        "tags must be a list",
        "dns.nameservers[0] must be an IP address",
        "dns.nameservers[1] must be an IP address",
        "interfaces.public[0].mac must be a hardware address",
        "interfaces.public[0].ipv4.ip_address and netmask must be an address and its mask",
        "interfaces.private must be a list",
        "the name of the machine is not a valid host name",
    ] {
        assert!(
            notes.contains(&format!("{url}: {field}")),
            "{field}: {notes:#?}"
        );
    }
    assert_eq!(instance.metadata.region, "nyc3");
    assert!(instance.config.is_some() && instance.network.hostname.is_none());
}

#[tokio::test]
async fn metadata_token_is_in_no_message() {
    let script = Script::new()
        .put("/latest/api/token", "c2VjcmV0")
        .reply("GET /latest/meta-data/instance-id", Reply::Status(500));
    let (server, _) = script.serve().await;
    let why = round::ask(
        find("aws").unwrap(),
        &script.sources(server),
        Stage::First(5),
    )
    .await
    .unwrap_err();
    assert!(
        why.contains("instance-id: the answer is 500") && !why.contains("c2VjcmV0"),
        "{why}"
    );
    let mut documents = Documents::default();
    documents.insert("token", "http://x/".to_owned(), b"c2VjcmV0".to_vec());
    assert!(!format!("{documents:?}").contains("c2VjcmV0"));
}

#[tokio::test]
async fn tag_list_cannot_change_the_request_path() {
    let (server, shared) = Script::new()
        .put("/latest/api/token", "t")
        .get("/latest/meta-data/instance-id", "i-1")
        .get(
            "/latest/meta-data/tags/instance",
            "../../user-data .. a?b good %2e%2e a\\b",
        )
        .serve()
        .await;
    let script = Script::new();
    round::ask(
        find("aws").unwrap(),
        &script.sources(server),
        Stage::First(0),
    )
    .await
    .unwrap();
    let asked = shared.lock().unwrap();
    let tags: Vec<&String> = asked
        .all_asked()
        .filter(|one| one.contains("/tags/instance/"))
        .collect();
    assert_eq!(tags, ["GET /latest/meta-data/tags/instance/good"]);
}

proptest! {
    #[test]
    fn hostile_documents_are_read_by_every_platform(
        text in "\\PC{0,200}",
        bytes in any::<Vec<u8>>(),
        cut in 0_usize..2000,
        at in 0_usize..2000,
        platform in select(PLATFORMS),
    ) {
        let names = platform.requests.iter().map(|request| request.document.to_string());
        let files = platform.volume.iter().flat_map(|volume| volume.files);
        let files = files.map(|(name, _)| (*name).to_owned());
        let guest = platform.guestinfo.iter().map(|key| (*key).to_owned());
        for name in names.chain(files).chain(guest) {
            for content in [text.as_bytes().to_vec(), bytes.clone(), broken(cut, at)] {
                let mut documents = Documents::default();
                documents.insert(&name, format!("http://x/{name}"), content);
                let _ = (platform.more)(&documents);
                let given = Given::new(&documents, &[]);
                let instance = (platform.read)(&given);
                prop_assert!(instance.network.seed.problems().is_empty());
                prop_assert!(given.into_notes().len() <= 16);
            }
        }
    }
}

/// A truncated OpenStack document with one byte changed.
fn broken(cut: usize, at: usize) -> Vec<u8> {
    let mut bytes = br#"{"links":[{"id":"a","type":"bond","bond_links":["a","b"],"bond_mode":"4"},
        {"id":"b","type":"vlan","vlan_id":1,"vlan_link":"a"},{"id":"c","type":"phy","mtu":9000}],
        "networks":[{"type":"ipv4","link":"c","ip_address":"10.0.0.1","netmask":"8","gateway":"::1",
        "routes":[{"network":"::","netmask":"0","gateway":"10.0.0.2"}]}],"interfaces":[{"mac":"a"}]}"#
        .to_vec();
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_add(1);
    }
    bytes.truncate(cut);
    bytes
}
