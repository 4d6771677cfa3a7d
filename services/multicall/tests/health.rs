//! The image's daemons as processes: a working daemon passes its health check, a hanging one does not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use corten_pki::{Algorithm, Ca, NODE_LIFETIME};
use corten_supervisor::health::{HealthCheck, Probe};
use corten_sys::process::{Signal, signal};

use support::Port;

mod support;

/// Timeout of a step; an idle machine needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout for a daemon that never answers.
const SOON: Duration = Duration::from_millis(200);

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Daemon {
    /// Starts the daemon and waits until it reports that it is ready.
    fn start(directory: &Path, arguments: &[&str]) -> Daemon {
        let notify = directory.join("notify");
        let _none_yet = fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).unwrap();
        ready.set_read_timeout(Some(PATIENCE)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_corten-node"))
            .args(arguments)
            .env("NOTIFY_SOCKET", &notify)
            .spawn()
            .unwrap();
        let daemon = Daemon(process);
        let mut word = [0; 64];
        ready
            .recv(&mut word)
            .unwrap_or_else(|error| panic!("{arguments:?} is not ready: {error}"));
        assert!(word.starts_with(b"READY=1"));
        daemon
    }

    fn signal(&self, which: Signal) {
        signal(self.0.id(), which).unwrap();
    }
}

/// Writes the files that apid and trustd read.
fn write_pki(directory: &Path) {
    let now = SystemTime::now();
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", now).unwrap();
    let names = ["127.0.0.1".to_owned()];
    let server = ca.server("cp-1", &names, now, NODE_LIFETIME).unwrap();
    for (name, text) in [
        ("ca.crt", ca.pem().crt.clone()),
        ("ca.key", ca.pem().key.clone()),
        ("names", String::new()),
        ("token", "abcdef.0123456789abcdef".to_owned()),
        ("server.key", server.key),
        ("server.crt", server.crt),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
}

async fn ask(probe: &Probe, timeout: Duration) -> Result<(), String> {
    let check = HealthCheck {
        probe: probe.clone(),
        initial_delay: Duration::ZERO,
        interval: Duration::ZERO,
        timeout,
        restart_after: None,
    };
    check.run().await
}

/// Checks a daemon that works, hangs, and works again.
async fn holds(directory: &Path, arguments: &[&str], probe: Probe) {
    let daemon = Daemon::start(directory, arguments);
    assert_eq!(ask(&probe, PATIENCE).await, Ok(()), "{arguments:?}");
    daemon.signal(Signal::STOP);
    let hangs = ask(&probe, SOON).await.unwrap_err();
    assert_eq!(hangs, "no answer within 200ms", "{arguments:?}");
    daemon.signal(Signal::CONT);
    assert_eq!(ask(&probe, PATIENCE).await, Ok(()), "{arguments:?}");
}

#[tokio::test]
async fn hung_daemon_fails_its_health_check_and_a_working_one_passes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let path = |name: &str| at.join(name).to_str().unwrap().to_owned();
    write_pki(at);
    let pki = at.to_str().unwrap();
    for daemon in ["apid", "trustd"] {
        let port = Port::keep();
        let listen = port.address.to_string();
        let arguments = [daemon, "--pki", pki, "--listen", &listen];
        holds(at, &arguments, Probe::Tcp(port.address)).await;
    }
    let port = Port::keep();
    let listen = port.address.to_string();
    let arguments = ["registryd", "serve", "--root", pki, "--listen", &listen];
    holds(at, &arguments, Probe::Http(port.address, "/healthz")).await;
    let (log, socket) = (path("log"), path("syslogd.sock"));
    let arguments = [
        "syslogd",
        "--kmsg",
        "none",
        "--config",
        "none",
        "--dev-log",
        &log,
        "--socket",
        &socket,
    ];
    holds(at, &arguments, Probe::Unix(socket.clone().into())).await;
}
