//! Results of calls that another node forwarded.

use std::future::Future;

use corten_api::cosi::resource as cosi;
use corten_api::cosi::resource::state_client::StateClient;
use corten_api::machine as api;
use corten_api::metadata::{FORWARDER, NOT_FORWARDED};
use corten_config::Document;
use corten_resources::{Draft, Spec as _};
use corten_types::config::MachineConfig;
use corten_types::kubernetes_components::ApiServerConfig;
use corten_types::network::HostnameStatus;
use tonic::{Code, Request, Response, Status};

use super::{World, config_text, world};
use crate::node::{Apply, Node as _};

fn configured(more: &str) -> World {
    let world = world();
    let document = Document::parse(format!("{}{more}", config_text()).as_bytes());
    let document = document.unwrap_or_else(|problems| panic!("{problems}"));
    world
        .node
        .apply_config(document.clone(), Apply::Now)
        .unwrap();
    let store = world.node.store();
    store.register::<MachineConfig>().unwrap();
    store.register::<HostnameStatus>().unwrap();
    let config = MachineConfig {
        source: format!("{}{more}", config_text()),
    };
    store
        .put(Draft::new(MachineConfig::ID, config), "")
        .unwrap();
    world
}

/// Marks a call as forwarded, like apid.
fn forwarded<B>(body: B) -> Request<B> {
    let mut request = Request::new(body);
    let node = tonic::metadata::MetadataValue::from_bytes(b"the node's certificate");
    request.metadata_mut().insert_bin(FORWARDER, node);
    request
}

async fn streamed<T>(
    called: impl Future<Output = Result<Response<tonic::Streaming<T>>, Status>>,
) -> Result<(), Status> {
    let mut frames = called.await?.into_inner();
    while frames.message().await?.is_some() {}
    Ok(())
}

fn config_of_node() -> cosi::GetRequest {
    cosi::GetRequest {
        namespace: MachineConfig::DEFINITION.default_namespace.to_owned(),
        r#type: MachineConfig::DEFINITION.type_name.to_owned(),
        id: MachineConfig::ID.to_owned(),
        options: None,
    }
}

fn watch_of_configs() -> cosi::WatchRequest {
    cosi::WatchRequest {
        namespace: config_of_node().namespace,
        r#type: config_of_node().r#type,
        id: None,
        options: Some(cosi::WatchOptions {
            tail_events: -1,
            ..Default::default()
        }),
        api_version: 1,
    }
}

/// Each call that would return a secret, and its result.
async fn secrets(
    world: &World,
    path: &str,
    is_forwarded: bool,
) -> Vec<(&'static str, Result<(), Status>)> {
    fn put<T>(is_forwarded: bool, body: T) -> Request<T> {
        if is_forwarded {
            forwarded(body)
        } else {
            Request::new(body)
        }
    }
    let mut client = world.client.clone();
    let mut state = StateClient::new(world.channel.clone());
    let roles = vec!["os:admin".to_owned()];
    let asked = api::GenerateClientConfigurationRequest {
        roles,
        crt_ttl: Some(prost_types::Duration {
            seconds: 60,
            nanos: 0,
        }),
    };
    let read = api::ReadRequest {
        path: path.to_owned(),
    };
    let copy = api::CopyRequest {
        root_path: path.to_owned(),
    };
    let kind = cosi::ListRequest {
        namespace: config_of_node().namespace,
        r#type: config_of_node().r#type,
        options: None,
    };
    vec![
        (
            "client config",
            client
                .generate_client_configuration(put(is_forwarded, asked))
                .await
                .map(drop),
        ),
        (
            "kubeconfig",
            streamed(client.kubeconfig(put(is_forwarded, ()))).await,
        ),
        (
            "etcd snapshot",
            streamed(
                world
                    .client
                    .clone()
                    .etcd_snapshot(put(is_forwarded, api::EtcdSnapshotRequest {})),
            )
            .await,
        ),
        (
            "read",
            streamed(world.client.clone().read(put(is_forwarded, read))).await,
        ),
        (
            "copy",
            streamed(world.client.clone().copy(put(is_forwarded, copy))).await,
        ),
        (
            "config",
            state
                .get(put(is_forwarded, config_of_node()))
                .await
                .map(drop),
        ),
        (
            "configs",
            streamed(state.list(put(is_forwarded, kind))).await,
        ),
        (
            "watched",
            streamed(
                StateClient::new(world.channel.clone())
                    .watch(put(is_forwarded, watch_of_configs())),
            )
            .await,
        ),
    ]
}

fn is_withheld(outcome: &Result<(), Status>) -> bool {
    outcome.as_ref().is_err_and(|status| {
        status.code() == Code::PermissionDenied && status.message().starts_with(NOT_FORWARDED)
    })
}

#[tokio::test]
async fn secrets_are_answered_to_direct_callers_and_not_through_other_nodes() {
    let world = configured("");
    let file = world.directory.path().join("key");
    std::fs::write(&file, "a key").unwrap();
    let path = file.to_str().unwrap();
    for (what, outcome) in secrets(&world, path, true).await {
        assert!(is_withheld(&outcome), "{what}: {outcome:?}");
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("-e NODE -n NODE"), "{text}");
    }
    for (what, outcome) in secrets(&world, path, false).await {
        assert!(!is_withheld(&outcome), "{what}: {outcome:?}");
    }
}

#[tokio::test]
async fn calls_without_secrets_are_answered_through_other_nodes() {
    let world = configured("");
    let mut client = world.client.clone();
    client.version(forwarded(())).await.unwrap();
    let read = api::ReadRequest {
        path: "/proc/meminfo".to_owned(),
    };
    streamed(client.read(forwarded(read))).await.unwrap();
    let kind = cosi::ListRequest {
        namespace: HostnameStatus::DEFINITION.default_namespace.to_owned(),
        r#type: HostnameStatus::DEFINITION.type_name.to_owned(),
        options: None,
    };
    let mut state = StateClient::new(world.channel.clone());
    streamed(state.list(forwarded(kind))).await.unwrap();
}

#[tokio::test]
async fn config_can_allow_secrets_through_other_nodes() {
    let world = configured("---\napiVersion: v1alpha1\nkind: ForwardingConfig\nsecrets: accept\n");
    let file = world.directory.path().join("key");
    std::fs::write(&file, "a key").unwrap();
    for (what, outcome) in secrets(&world, file.to_str().unwrap(), true).await {
        assert!(!is_withheld(&outcome), "{what}: {outcome:?}");
    }
}

#[tokio::test]
async fn settings_go_through_other_nodes_without_values_that_may_be_secret() {
    let world = configured("");
    let store = world.node.store();
    store.register::<ApiServerConfig>().unwrap();
    let config = ApiServerConfig {
        image: "an image".to_owned(),
        environment_variables: [("NAME".to_owned(), "a secret".to_owned())].into(),
        ..ApiServerConfig::default()
    };
    store
        .put(Draft::new(ApiServerConfig::ID, config), "")
        .unwrap();
    let kind = cosi::ListRequest {
        namespace: ApiServerConfig::DEFINITION.default_namespace.to_owned(),
        r#type: ApiServerConfig::DEFINITION.type_name.to_owned(),
        options: None,
    };
    let spec = async |request: Request<cosi::ListRequest>| {
        let mut state = StateClient::new(world.channel.clone());
        let mut found = state.list(request).await.unwrap().into_inner();
        let found = found.message().await.unwrap().unwrap();
        found.resource.unwrap().spec.unwrap()
    };
    let direct = spec(Request::new(kind.clone())).await;
    assert!(direct.yaml_spec.contains("a secret"));
    let through = spec(forwarded(kind)).await;
    assert!(through.yaml_spec.contains("an image"));
    for part in [through.yaml_spec.as_bytes(), &through.proto_spec] {
        let text = String::from_utf8_lossy(part);
        assert!(
            text.contains("NAME") && !text.contains("a secret"),
            "{text}"
        );
    }
}
