//! The resource API on a real socket.

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::EventType;
use corten_api::cosi::resource::label_term::Operation;
use corten_api::cosi::resource::state_client::StateClient;
use corten_api::talos::resource::definitions::network::HostnameStatusSpec;
use corten_resources::{Column, Definition, Draft, Pointer, Sensitivity, Spec};
use corten_types::network::HostnameStatus;
use prost::Message as _;
use serde::Serialize;
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};

use super::{World, world};
use crate::node::Node as _;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Secret {
    token: &'static str,
}

impl Spec for Secret {
    const DEFINITION: Definition = Definition {
        type_name: "Secrets.test.corten",
        default_namespace: "secrets",
        aliases: &[],
        columns: &[Column {
            name: "Token",
            path: ".token",
        }],
        sensitivity: Sensitivity::Sensitive,
        only_declared_aliases: false,
    };

    type Message = ();

    fn message(&self) {}
}

fn name(hostname: &str) -> Draft {
    let status = HostnameStatus {
        hostname: hostname.to_owned(),
        domainname: String::new(),
    };
    Draft::new(HostnameStatus::ID, status).label("by", hostname)
}

fn prepared() -> (World, StateClient<Channel>) {
    let world = world();
    let store = world.node.store();
    store.register::<HostnameStatus>().unwrap();
    store.register::<Secret>().unwrap();
    store.put(name("first"), "me").unwrap();
    store
        .put(Draft::new("one", Secret { token: "t" }), "")
        .unwrap();
    let client = StateClient::new(world.channel.clone());
    (world, client)
}

fn get(type_name: &str, namespace: &str, id: &str) -> api::GetRequest {
    api::GetRequest {
        namespace: namespace.to_owned(),
        r#type: type_name.to_owned(),
        id: id.to_owned(),
        options: None,
    }
}

const HOSTNAMES: &str = HostnameStatus::DEFINITION.type_name;

#[tokio::test]
async fn resource_is_returned_with_its_metadata_and_spec() {
    let (_world, mut client) = prepared();
    let reply = client.get(get(HOSTNAMES, "network", "hostname")).await;
    let resource = reply.unwrap().into_inner().resource.unwrap();
    let metadata = resource.metadata.unwrap();
    assert_eq!(
        (&*metadata.version, &*metadata.owner, &*metadata.phase),
        ("1", "me", "running")
    );
    assert_eq!(metadata.labels["by"], "first");
    assert!(metadata.created.is_some());
    let spec = resource.spec.unwrap();
    assert_eq!(spec.yaml_spec, "hostname: first\ndomainname: \"\"\n");
    let typed = HostnameStatusSpec::decode(spec.proto_spec.as_slice()).unwrap();
    assert_eq!(typed.hostname, "first");
}

#[tokio::test]
async fn missing_resources_types_and_namespaces_have_distinct_errors() {
    let (_world, mut client) = prepared();
    for (request, code) in [
        (get(HOSTNAMES, "network", "other"), Code::NotFound),
        (get("Nothings.test", "network", "a"), Code::PermissionDenied),
        (
            get(HOSTNAMES, "nowhere", "hostname"),
            Code::PermissionDenied,
        ),
    ] {
        let status = client.get(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
    }
    let status = client.get(get("x.y", "meta", "a")).await.unwrap_err();
    assert_eq!(
        status.message(),
        "resource type \"x.y\" is not supported; `get rd` lists the types"
    );
}

#[tokio::test]
async fn only_administrators_read_secret_resources() {
    let (_world, mut client) = prepared();
    let secret = || get(Secret::DEFINITION.type_name, "secrets", "one");
    client.get(secret()).await.unwrap();
    for role in ["os:reader", "os:operator"] {
        let mut request = Request::new(secret());
        let role = role.parse().unwrap();
        request
            .metadata_mut()
            .insert(corten_api::metadata::ROLE, role);
        let status = client.get(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("os:admin"), "{status}");
    }
}

#[tokio::test]
async fn a_client_finds_types_by_their_definitions() {
    let (_world, mut client) = prepared();
    let request = api::ListRequest {
        namespace: "meta".to_owned(),
        r#type: "ResourceDefinitions.meta.cosi.dev".to_owned(),
        options: None,
    };
    let mut found = client.list(request).await.unwrap().into_inner();
    let mut definitions = Vec::new();
    while let Some(reply) = found.message().await.unwrap() {
        let spec = reply.resource.unwrap().spec.unwrap();
        let message = api::meta::ResourceDefinitionSpec::decode(&*spec.proto_spec).unwrap();
        assert!(
            spec.yaml_spec
                .contains(&format!("type: {}\n", message.resource_type))
        );
        definitions.push(message);
    }
    let hostname = definitions
        .iter()
        .find(|found| found.resource_type == HOSTNAMES)
        .unwrap();
    assert_eq!(hostname.default_namespace, "network");
    assert!(hostname.all_aliases.contains(&"hostname".to_owned()));
    assert_eq!(hostname.print_columns[0].json_path, "{.hostname}");
    let secret = definitions
        .iter()
        .find(|found| found.default_namespace == "secrets");
    let sensitive = api::meta::resource_definition_spec::Sensitivity::Sensitive;
    assert_eq!(secret.unwrap().sensitivity(), sensitive);
}

fn watching(options: api::WatchOptions) -> api::WatchRequest {
    api::WatchRequest {
        namespace: "network".to_owned(),
        r#type: HOSTNAMES.to_owned(),
        id: None,
        options: Some(options),
        api_version: 1,
    }
}

/// The next non-empty frame: type, version, bookmark.
async fn next(stream: &mut Streaming<api::WatchResponse>) -> (EventType, String, Option<Vec<u8>>) {
    let frame = stream.message().await.unwrap().unwrap();
    let [event] = frame.event.as_slice() else {
        panic!("{frame:?}");
    };
    let metadata = event.resource.as_ref().unwrap().metadata.as_ref().unwrap();
    (
        event.event_type(),
        metadata.version.clone(),
        event.bookmark.clone(),
    )
}

#[tokio::test]
async fn watch_begins_with_an_empty_frame_and_resumes_from_a_bookmark() {
    let (world, mut client) = prepared();
    let options = api::WatchOptions {
        bootstrap_contents: true,
        ..Default::default()
    };
    let mut stream = client.watch(watching(options)).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.event, []);
    assert_eq!(next(&mut stream).await.0, EventType::Created);
    let (bootstrapped, _, bookmark) = next(&mut stream).await;
    assert_eq!(bootstrapped, EventType::Bootstrapped);
    drop(stream);
    let store = world.node.store();
    store.put(name("second"), "me").unwrap();
    store
        .destroy(&Pointer::of::<HostnameStatus>("hostname"), "me")
        .unwrap();
    let options = api::WatchOptions {
        start_from_bookmark: bookmark,
        ..Default::default()
    };
    let mut stream = client.watch(watching(options)).await.unwrap().into_inner();
    stream.message().await.unwrap();
    let (updated, version, _) = next(&mut stream).await;
    assert_eq!((updated, &*version), (EventType::Updated, "2"));
    assert_eq!(next(&mut stream).await.0, EventType::Destroyed);
}

#[tokio::test]
async fn watch_of_a_missing_resource_reports_its_absence() {
    let (_world, mut client) = prepared();
    let mut request = watching(api::WatchOptions::default());
    request.id = Some("other".to_owned());
    let mut stream = client.watch(request.clone()).await.unwrap().into_inner();
    stream.message().await.unwrap();
    let (destroyed, version, _) = next(&mut stream).await;
    assert_eq!((destroyed, &*version), (EventType::Destroyed, "undefined"));
    request.options = Some(api::WatchOptions {
        bootstrap_contents: true,
        ..Default::default()
    });
    let status = client.watch(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn invalid_watches_are_refused_with_their_status_code() {
    let (_world, mut client) = prepared();
    let two = api::WatchOptions {
        tail_events: 1,
        bootstrap_contents: true,
        ..Default::default()
    };
    let gone = api::WatchOptions {
        start_from_bookmark: Some(b"gone".to_vec()),
        ..Default::default()
    };
    let expression = api::WatchOptions {
        id_query: Some(api::IdQuery {
            regexp: "(".to_owned(),
        }),
        ..Default::default()
    };
    let program = api::WatchOptions {
        id_query: Some(api::IdQuery {
            regexp: "(?:a{999}){999}".to_owned(),
        }),
        ..Default::default()
    };
    let terms = api::WatchOptions {
        label_query: vec![api::LabelQuery {
            terms: vec![api::LabelTerm::default(); 1000],
        }],
        ..Default::default()
    };
    for (options, code, word) in [
        (two, Code::InvalidArgument, "choose one"),
        (gone, Code::FailedPrecondition, "bookmark"),
        (expression, Code::InvalidArgument, "id_query.regexp"),
        (program, Code::InvalidArgument, "id_query.regexp"),
        (terms, Code::InvalidArgument, "label_query"),
    ] {
        let status = client.watch(watching(options)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(word), "{status}");
    }
}

#[tokio::test]
async fn lists_take_label_queries() {
    let (_world, mut client) = prepared();
    for (op, invert, expected) in [(Operation::Equal, false, 1), (Operation::Equal, true, 0)] {
        let term = api::LabelTerm {
            key: "by".to_owned(),
            op: op.into(),
            value: vec!["first".to_owned()],
            invert,
        };
        let request = api::ListRequest {
            namespace: "network".to_owned(),
            r#type: HOSTNAMES.to_owned(),
            options: Some(api::ListOptions {
                label_query: vec![api::LabelQuery { terms: vec![term] }],
                id_query: None,
            }),
        };
        let mut found = client.list(request).await.unwrap().into_inner();
        let mut count = 0;
        while found.message().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, expected);
    }
}

#[tokio::test]
async fn resource_writes_are_refused() {
    let (world, mut client) = prepared();
    let request = get(HOSTNAMES, "network", "hostname");
    let there = client.get(request).await.unwrap().into_inner().resource;
    let (namespace, kind, id) = ("network", HOSTNAMES, "hostname");
    let create = api::CreateRequest {
        resource: there.clone(),
        options: None,
    };
    let update = api::UpdateRequest {
        new_resource: there,
        options: None,
    };
    let destroy = api::DestroyRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        id: id.to_owned(),
        options: None,
    };
    let teardown = api::TeardownRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        id: id.to_owned(),
        options: None,
    };
    let both = api::TeardownAndDestroyRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        id: id.to_owned(),
        options: None,
    };
    for status in [
        client.create(create).await.unwrap_err(),
        client.update(update).await.unwrap_err(),
        client.destroy(destroy).await.unwrap_err(),
        client.teardown(teardown).await.unwrap_err(),
        client.teardown_and_destroy(both).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    }
    let after = world.node.store().get_as::<HostnameStatus>(id).unwrap();
    assert_eq!(after.metadata().version.to_string(), "1");
    assert_eq!(after.metadata().phase.to_string(), "running");
}
