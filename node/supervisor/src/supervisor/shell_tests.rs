//! Services that come up and later stop answering.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::ServiceSpec;
use crate::health::{HealthCheck, Probe};
use crate::supervisor::testing::{spec, world};
use crate::view::{ServiceState, ServiceView};

/// A service with continuous health checks on this socket.
fn checked(id: &str, socket: &Path, restart_after: Option<u32>) -> ServiceSpec {
    let mut spec = spec(id);
    let often = Duration::from_millis(1);
    spec.limits.health = Some(HealthCheck {
        probe: Probe::Unix(socket.to_owned()),
        initial_delay: often,
        interval: often,
        timeout: Duration::from_secs(60),
        restart_after,
    });
    spec
}

/// A working server.
fn serve(socket: PathBuf) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} })
}

#[tokio::test]
async fn unresponsive_service_is_reported_and_not_restarted_without_a_limit() {
    let world = world();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let server = serve(socket.clone());
    world.supervisor.declare(checked("x", &socket, None));
    world.until_up("x").await;
    fs::remove_file(&socket).unwrap();
    server.abort();
    let is_bad = |view: &ServiceView| {
        view.healthy == Some(false) && view.health_message.contains("No such file")
    };
    let said = world.until("x", is_bad).await;
    assert!(said.starts_with("Health check failed: "), "{said}");
    world
        .until("x", |view| view.state == ServiceState::Running)
        .await;
    let dependent = ServiceSpec {
        depends_on: vec!["x".into()],
        ..spec("y")
    };
    world.supervisor.declare(dependent);
    let waits = "Waiting for service \"x\" to be \"up\"";
    world.until_said("y", waits).await;
    let _server = serve(socket);
    assert_eq!(world.until_up("x").await, "Health check successful");
    world.until_up("y").await;
    // It was never restarted.
    assert_eq!(world.fake.change(|state| state.running["x"].1), 101);
}

#[tokio::test]
async fn unresponsive_service_restarts_after_its_failure_limit() {
    let world = world();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    world.supervisor.declare(checked("x", &socket, Some(3)));
    let failed = "Health check failed 3 times in a row: No such file or directory (os error 2); \
                  restarting";
    world.until_said("x", failed).await;
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
}
