//! Who may call, and what is not answered.

use corten_api::machine as api;
use tonic::{Code, Request};

use super::{World, world};

#[tokio::test]
async fn what_is_missing_is_said_in_a_sentence() {
    let World {
        directory: _directory,
        mut client,
        ..
    } = world();
    let missing = client.etcd_status(()).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unimplemented);
    assert_eq!(
        missing.message(),
        "machine.MachineService/EtcdStatus waits for etcd, which this version of the node does not have"
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
        Code::Unimplemented
    );
}

#[tokio::test]
async fn as_much_metadata_as_apid_hands_on_is_taken() {
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
