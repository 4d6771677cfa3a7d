//! Services, started and stopped over the wire.

use std::sync::atomic::Ordering;

use corten_api::machine as api;
use corten_api::machine::apply_configuration_request::Mode;
use corten_base::alone::in_a_process;
use corten_base::panics;
use corten_base::runtime::{BLOCKING_THREADS, WORKERS};
use tonic::Code;

use super::{applying, config_text, world};
use crate::node::Control;

#[tokio::test]
async fn control_of_permitted_services_reaches_the_node() {
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
async fn control_of_system_services_is_refused() {
    let mut world = world();
    for (id, code) in [
        ("udevd", Code::FailedPrecondition),
        ("kubelet", Code::FailedPrecondition),
        ("nosuch", Code::NotFound),
        ("", Code::NotFound),
        // Accepted, but then the node ended.
        ("ext-lost", Code::Unavailable),
    ] {
        let request = api::ServiceStopRequest { id: id.to_owned() };
        let refused = world.client.service_stop(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let controls = world.node.controls.lock().unwrap().clone();
    assert_eq!(controls, [("ext-lost".to_owned(), Control::Stop)]);
}

/// With machined's panic hook, in a process that the hook could end.
#[test]
fn panicking_call_is_answered_and_affects_no_other_call() {
    let test = "server::tests::services::panicking_call_is_answered_and_affects_no_other_call";
    let said = in_a_process(test, || {
        panics::install_hook();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut world = world();
            for _ in 0..3 {
                world.node.has_a_bug.store(true, Ordering::SeqCst);
                let bug = world.client.service_list(()).await.unwrap_err();
                assert_eq!(bug.code(), Code::Internal);
                assert!(bug.message().contains("a bug of machined"), "{bug}");
                // On a blocking thread, once per such thread.
                for _ in 0..BLOCKING_THREADS {
                    let config = config_text().replace("hostname: first", "hostname: buggy");
                    let request = api::ApplyConfigurationRequest {
                        dry_run: true,
                        ..applying(&config, Mode::Auto)
                    };
                    let bug = world.client.apply_configuration(request).await;
                    assert_eq!(bug.unwrap_err().code(), Code::Internal);
                }
                world.node.has_a_bug.store(false, Ordering::SeqCst);
                world.client.service_list(()).await.unwrap();
            }
        });
    });
    let Some(said) = said else { return };
    assert!(said.contains("machined has a bug: panicked at "), "{said}");
}
