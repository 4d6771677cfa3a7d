//! Services, started and stopped over the wire.

use corten_api::machine as api;
use tonic::Code;

use super::world;
use crate::node::Control;

#[tokio::test]
async fn what_callers_may_control_is_handed_to_the_node() {
    let mut world = world();
    let id = || "ext-hello".to_owned();
    let started = world
        .client
        .service_start(api::ServiceStartRequest { id: id() });
    let started = started.await.unwrap().into_inner();
    assert_eq!(started.messages[0].resp, r#"Service "ext-hello" started"#);
    let stopped = world
        .client
        .service_stop(api::ServiceStopRequest { id: id() });
    let stopped = stopped.await.unwrap().into_inner();
    assert_eq!(stopped.messages[0].resp, r#"Service "ext-hello" stopped"#);
    let id = "kubelet".to_owned();
    let restarted = world
        .client
        .service_restart(api::ServiceRestartRequest { id });
    let restarted = restarted.await.unwrap().into_inner();
    assert_eq!(restarted.messages[0].resp, r#"Service "kubelet" restarted"#);
    let expected = [
        ("ext-hello", Control::Start),
        ("ext-hello", Control::Stop),
        ("kubelet", Control::Restart),
    ];
    let expected = expected.map(|(id, control)| (id.to_owned(), control));
    assert_eq!(*world.node.controls.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_the_node_stands_on_is_not_theirs() {
    let mut world = world();
    for (id, code) in [
        ("udevd", Code::FailedPrecondition),
        ("kubelet", Code::FailedPrecondition),
        ("nosuch", Code::NotFound),
        ("", Code::NotFound),
        // Accepted, and then everything ended.
        ("ext-lost", Code::Unavailable),
    ] {
        let request = api::ServiceStopRequest { id: id.to_owned() };
        let refused = world.client.service_stop(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let controls = world.node.controls.lock().unwrap().clone();
    assert_eq!(controls, [("ext-lost".to_owned(), Control::Stop)]);
}
