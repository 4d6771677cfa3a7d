//! Credentials and bootstrap over the wire.

use std::fs;
use std::time::{Duration, SystemTime};

use corten_api::machine as api;
use corten_config::Document;
use corten_pki::{certificates_from_pem, organizations, validity, verify_client};
use corten_resources::Draft;
use corten_types::clock::TimeStatus;
use tonic::Code;

use super::{DEADLINE, World, config_text, set_time, world};
use crate::node::{Apply, Begin, Node as _};
use crate::operator;

fn configured(text: &str) -> World {
    let world = world();
    let document = Document::parse(text.as_bytes()).unwrap();
    world.node.apply_config(document, Apply::Now).unwrap();
    world
}

fn request(roles: &[&str], seconds: i64) -> api::GenerateClientConfigurationRequest {
    api::GenerateClientConfigurationRequest {
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        crt_ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
    }
}

#[tokio::test]
async fn an_operator_gets_a_certificate_of_the_nodes_ca() {
    let text = config_text().replace("cluster:\n", "cluster:\n  clusterName: mine\n");
    let mut world = configured(&text);
    let reply = world
        .client
        .generate_client_configuration(request(&["os:reader", "os:unheard-of"], 3600))
        .await
        .unwrap();
    let reply = reply.into_inner().messages.remove(0);
    let chain = certificates_from_pem(&reply.crt).unwrap();
    assert_eq!(organizations(&chain[0]).unwrap(), ["os:reader"]);
    let ends = validity(&chain[0]).unwrap().1;
    let left = ends.duration_since(SystemTime::now()).unwrap();
    assert!(left <= Duration::from_secs(3600) && left > Duration::from_secs(1800));
    let cas = certificates_from_pem(&reply.ca).unwrap();
    verify_client(&chain, &cas, SystemTime::now()).unwrap();
    let file = String::from_utf8(reply.talosconfig).unwrap();
    let start = "context: \"reader@mine\"\ncontexts:\n    \"reader@mine\":\n        endpoints: []\n        ca: ";
    assert!(file.starts_with(start), "{file}");
    assert!(reply.key.starts_with(b"-----BEGIN "));

    let both = request(&["os:operator", "os:meta:writer"], 60);
    let reply = world
        .client
        .generate_client_configuration(both)
        .await
        .unwrap();
    let file = reply.into_inner().messages.remove(0).talosconfig;
    assert!(file.starts_with(b"context: \"mine\"\n"));
}

#[tokio::test]
async fn impossible_credentials_are_refused_with_their_field() {
    let mut world = configured(&config_text());
    for (request, field) in [
        (request(&["os:admin"], 0), "crt_ttl"),
        (request(&["os:admin"], -5), "crt_ttl"),
        (request(&["os:admin"], i64::MAX), "crt_ttl"),
        (request(&["os:admin"], i64::MIN), "crt_ttl"),
        (request(&[], 60), "roles"),
        (request(&["root"], 60), "roles"),
        (
            request(&["os:admin", "os:reader", "os:operator"], 60),
            "roles",
        ),
    ] {
        let refused = world.client.generate_client_configuration(request).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(field), "{refused}");
    }
    let mut unconfigured = super::world();
    let without = unconfigured
        .client
        .generate_client_configuration(request(&["os:admin"], 60));
    assert_eq!(without.await.unwrap_err().code(), Code::Unimplemented);
}

async fn bootstrap(world: &mut World) -> (Code, String) {
    let request = api::BootstrapRequest::default();
    let refused = world.client.bootstrap(request).await.unwrap_err();
    (refused.code(), refused.message().to_owned())
}

#[tokio::test]
async fn bootstrap_names_its_missing_preconditions() {
    assert_eq!(bootstrap(&mut world()).await.0, Code::FailedPrecondition);
    let (code, text) = bootstrap(&mut configured(&config_text())).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("cluster.etcd.ca"), "{text}");
    let mut world = configured(&(config_text() + &etcd()));
    set_time(&world.node, true);
    // Existing etcd data makes the node a member.
    let data = world.directory.path().join("etcd");
    fs::create_dir_all(data.join("member/wal")).unwrap();
    fs::write(data.join("member/wal/0.wal"), "").unwrap();
    let (code, text) = bootstrap(&mut world).await;
    assert_eq!(*world.node.begun.lock().unwrap(), None);
    assert_eq!(code, Code::AlreadyExists);
    assert!(text.contains("has data"), "{text}");
    // A start that never reached its cluster leaves no log.
    fs::remove_file(data.join("member/wal/0.wal")).unwrap();
    let begun = world.client.bootstrap(api::BootstrapRequest::default());
    begun.await.unwrap();
    assert_eq!(*world.node.begun.lock().unwrap(), Some(Begin::Empty));
    // A recovery needs a snapshot.
    let from_snapshot = api::BootstrapRequest {
        recover_etcd: true,
        recover_skip_hash_check: true,
    };
    let refused = world.client.bootstrap(from_snapshot).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    fs::write(data.with_extension("snapshot"), "a database").unwrap();
    world.client.bootstrap(from_snapshot).await.unwrap();
    let skip_hash_check = true;
    let begun = Some(Begin::Snapshot { skip_hash_check });
    assert_eq!(*world.node.begun.lock().unwrap(), begun);
}

#[tokio::test]
async fn bootstrap_waits_for_the_time_with_a_timeout() {
    let world = configured(&(config_text() + &etcd()));
    let data = world.directory.path().join("etcd");
    set_time(&world.node, false);
    let request = api::BootstrapRequest::default();
    let bootstrap = |patience| operator::bootstrap(world.node.as_ref(), &request, &data, patience);
    let refused = bootstrap(Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().starts_with("time is not in sync yet"),
        "{refused}"
    );
    // The time becomes synchronized while the call waits.
    let (begun, ()) = tokio::join!(bootstrap(DEADLINE), async {
        tokio::task::yield_now().await;
        let status = TimeStatus {
            synced: true,
            epoch: 1,
            sync_disabled: false,
        };
        let draft = Draft::new(TimeStatus::ID, status);
        world
            .node
            .store()
            .put(draft, "time.SyncController")
            .unwrap();
    });
    begun.unwrap();
}

/// A CA of etcd; here it is the API's.
pub(super) fn etcd() -> String {
    let text = config_text();
    let pair: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("    crt: ") || line.starts_with("    key: "))
        .collect();
    format!("  etcd:\n    ca:\n  {}\n  {}\n", pair[0], pair[1])
}
