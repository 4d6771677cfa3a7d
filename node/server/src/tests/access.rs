//! Authorization, request limits, and missing methods.

use corten_api::machine as api;
use corten_api::machine::debug_service_client::DebugServiceClient;
use corten_api::requests::SMALL;
use tonic::{Code, Request};

use super::{World, world};

#[tokio::test]
async fn unimplemented_method_names_its_missing_feature() {
    let World {
        directory: _directory,
        mut client,
        channel,
        ..
    } = world();
    let nothing = tokio_stream::empty::<api::DebugContainerRunRequest>();
    let missing = DebugServiceClient::new(channel)
        .container_run(nothing)
        .await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.code(), Code::Unimplemented);
    assert_eq!(
        missing.message(),
        "machine.DebugService/ContainerRun needs containers for debugging, which this version of the node does not \
         have"
    );
    let logs = api::LogsRequest {
        id: "udevd".into(),
        ..Default::default()
    };
    assert_eq!(
        client.logs(logs).await.unwrap_err().code(),
        Code::Unavailable
    );
    let pod = api::LogsRequest {
        namespace: "k8s.io".into(),
        id: "x".into(),
        ..Default::default()
    };
    assert_eq!(
        client.logs(pod).await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn metadata_up_to_the_limit_of_apid_is_accepted() {
    let World {
        directory: _directory,
        mut client,
        ..
    } = world();
    let mut request = Request::new(());
    let (most, some) = ("x".repeat(8 * 1024), "y".repeat(8 * 1024));
    request
        .metadata_mut()
        .insert("x-most", most.parse().unwrap());
    request
        .metadata_mut()
        .insert("corten-caller", some.parse().unwrap());
    client.version(request).await.unwrap();
}

#[tokio::test]
async fn roles_are_checked_on_the_socket() {
    let World {
        directory: _directory,
        mut client,
        ..
    } = world();
    let mut request = Request::new(api::RebootRequest::default());
    request
        .metadata_mut()
        .append("talos-role", "os:reader".parse().unwrap());
    assert_eq!(
        client.reboot(request).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

/// A request is in memory for as long as its caller takes to send it, so its length is limited.
#[tokio::test]
async fn hostile_requests_are_refused_beyond_the_size_limit_of_their_method() {
    let World {
        directory: _directory,
        mut client,
        ..
    } = world();
    let named = |length| api::LogsRequest {
        id: "x".repeat(length),
        ..Default::default()
    };
    // The log does not exist, but the request is read.
    let longest = client.logs(named(SMALL - 4)).await.unwrap_err();
    assert_eq!(longest.code(), Code::Unavailable, "{longest:?}");
    for length in [SMALL, 4 * SMALL] {
        let refused = client.logs(named(length)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("64 KiB"), "{refused:?}");
    }
    // A request that is small on the wire but large in memory.
    let paths = vec![String::new(); 1 << 20];
    let usage = api::DiskUsageRequest {
        paths,
        ..Default::default()
    };
    let refused = client.disk_usage(usage).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    // A config and META's values may be longer.
    let config = api::ApplyConfigurationRequest {
        data: vec![b'#'; 8 * SMALL],
        ..Default::default()
    };
    let read = client.apply_configuration(config).await.unwrap_err();
    assert_eq!(read.code(), Code::InvalidArgument, "{read:?}");
    let meta = api::MetaWriteRequest {
        key: 10,
        value: vec![0; 2 * SMALL],
    };
    let read = client.meta_write(meta).await.unwrap_err();
    assert_eq!(read.code(), Code::FailedPrecondition, "{read:?}");
}

#[tokio::test]
async fn hostile_lists_of_paths_and_types_are_refused() {
    let World {
        directory,
        mut client,
        ..
    } = world();
    let file = directory.path().join("file");
    std::fs::write(&file, "abc").unwrap();
    let file = file.to_str().unwrap().to_owned();
    for (count, expected) in [(64, Code::Ok), (65, Code::InvalidArgument)] {
        let request = api::DiskUsageRequest {
            paths: vec![file.clone(); count],
            ..Default::default()
        };
        let mut usage = client.disk_usage(request).await.unwrap().into_inner();
        let code = loop {
            match usage.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break Code::Ok,
                Err(status) => break status.code(),
            }
        };
        assert_eq!(code, expected, "{count}");
    }
    let request = api::ListRequest {
        types: vec![0; 17],
        ..Default::default()
    };
    let mut list = client.list(request).await.unwrap().into_inner();
    let refused = list.message().await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("types: "), "{refused}");
}
