//! A node joins: trustd as a process, called over loopback by the worker's code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use corten_credentials::join::{Asked, ask};
use corten_pki::{Algorithm, Ca, NODE_LIFETIME, certificates_from_pem};
use corten_values::Secret;

use support::Port;
use tokio::time::sleep;

mod support;

const TOKEN: &str = "abcdef.0123456789abcdef";
const WRONG: &str = "wrong0.0123456789abcdef";
/// Timeout of a step; an idle machine needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checking that trustd is still running while it starts.
const LOOK: Duration = Duration::from_millis(200);

fn new_ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap()
}

/// trustd and its output.
struct Trustd {
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    port: Port,
    ca: Ca,
    directory: tempfile::TempDir,
}

impl Drop for Trustd {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

fn write(directory: &Path, ca: &Ca, accepted: &str) {
    let names = ["127.0.0.1", "10.0.0.1"].map(str::to_owned);
    let server = ca
        .server("cp-1", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    for (name, text) in [
        ("ca.crt", format!("{}\n{accepted}", ca.pem().crt)),
        ("ca.key", ca.pem().key.clone()),
        ("token", TOKEN.to_owned()),
        ("names", "network 10.0.0.1/24\n".to_owned()),
        ("server.key", server.key),
        ("server.crt", server.crt),
    ] {
        let new = directory.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, directory.join(name)).unwrap();
    }
}

impl Trustd {
    /// Starts trustd on a port and waits until it reports that it is ready.
    fn start() -> Trustd {
        Trustd::start_with(|process, port| {
            process.args(["--listen", &port.address.to_string()]);
        })
    }

    fn start_with(listen: impl FnOnce(&mut Command, &Port)) -> Trustd {
        let directory = tempfile::tempdir().unwrap();
        let ca = new_ca();
        write(directory.path(), &ca, "");
        let socket = directory.path().join("notify");
        let notify = UnixDatagram::bind(&socket).unwrap();
        notify.set_read_timeout(Some(LOOK)).unwrap();
        let port = Port::keep();
        let mut process = Command::new(env!("CARGO_BIN_EXE_corten-node"));
        process.arg("trustd").arg("--pki").arg(directory.path());
        listen(&mut process, &port);
        let mut process = process
            .env("NOTIFY_SOCKET", &socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (speaker, lines) = channel();
        let out = process.stdout.take().unwrap();
        let err = process.stderr.take().unwrap();
        let listen = |stream: Box<dyn std::io::Read + Send>| {
            let speaker = speaker.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = speaker.send(line);
                }
            });
        };
        listen(Box::new(out));
        listen(Box::new(err));
        drop(speaker);
        let mut trustd = Trustd {
            process,
            lines,
            said: Vec::new(),
            port,
            ca,
            directory,
        };
        let mut word = [0; 64];
        let begin = Instant::now();
        while notify.recv(&mut word).is_err() {
            let ended = trustd.process.try_wait().unwrap().is_some();
            if ended || begin.elapsed() > PATIENCE {
                let _ended = trustd.process.kill();
                // Both outputs are read to their end.
                let said: Vec<String> = trustd.lines.iter().collect();
                panic!("trustd does not say that it is ready: {said:#?}");
            }
        }
        assert!(word.starts_with(b"READY=1"));
        trustd
    }

    /// Waits for a line that contains all of these parts.
    fn hear(&mut self, parts: &[&str]) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {parts:?} in {:?}", self.said));
            self.said.push(line.clone());
            if parts.iter().all(|part| line.contains(part)) {
                return;
            }
        }
    }

    fn asked(&self, token: &str, cas: &str) -> Asked {
        Asked {
            endpoints: vec!["127.0.0.1".to_owned()],
            port: self.port.address.port(),
            cas: cas.to_owned(),
            token: Secret::new(token),
            common_name: "worker-1".to_owned(),
            names: ["10.0.0.7", "worker-1", "10.0.0.1"]
                .map(str::to_owned)
                .to_vec(),
        }
    }
}

#[tokio::test]
async fn right_token_gets_a_certificate_and_is_logged() {
    let mut trustd = Trustd::start();
    let asked = trustd.asked(TOKEN, &trustd.ca.pem().crt);
    let joined = ask(&asked, SystemTime::now()).await.unwrap();
    assert_eq!(joined.endpoint, "127.0.0.1");
    let chain = certificates_from_pem(joined.issued.crt.as_bytes()).unwrap();
    // The control plane's own address is not in the certificate.
    assert_eq!(
        corten_pki::names(&chain[0]).unwrap(),
        ["10.0.0.7", "worker-1"]
    );
    trustd.hear(&[
        "127.0.0.1",
        "certificate for \"worker-1\"",
        "10.0.0.7",
        "left out",
        "10.0.0.1",
    ]);
    assert!(!trustd.said.concat().contains(TOKEN));
}

#[tokio::test]
async fn on_demand_trustd_serves_a_passed_socket_and_ends_without_connections() {
    let mut trustd = Trustd::start_with(|process, port| {
        let listener = TcpListener::bind(port.address).unwrap();
        process.arg("--on-demand").stdin(OwnedFd::from(listener));
    });
    let asked = trustd.asked(TOKEN, &trustd.ca.pem().crt);
    ask(&asked, SystemTime::now()).await.unwrap();
    let begin = Instant::now();
    let ended = loop {
        if let Some(ended) = trustd.process.try_wait().unwrap() {
            break ended;
        }
        assert!(begin.elapsed() < PATIENCE);
        sleep(LOOK).await;
    };
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_never_logged() {
    let mut trustd = Trustd::start();
    let asked = trustd.asked(WRONG, &trustd.ca.pem().crt);
    let why = ask(&asked, SystemTime::now()).await.unwrap_err();
    assert!(why.contains("the token is wrong"), "{why}");
    trustd.hear(&["127.0.0.1", "refused: its token is wrong"]);
    let said = trustd.said.concat();
    for secret in [TOKEN, WRONG] {
        assert!(
            !said.contains(secret) && !why.contains(secret),
            "{said} {why}"
        );
    }
}

#[tokio::test]
async fn control_plane_of_another_ca_is_not_trusted() {
    let trustd = Trustd::start();
    let asked = trustd.asked(TOKEN, &new_ca().pem().crt);
    let why = ask(&asked, SystemTime::now()).await.unwrap_err();
    assert!(
        why.contains("cannot connect") && why.contains("certificate"),
        "{why}"
    );
    // The name is checked, too: another node of the cluster cannot pose as the control plane.
    let mut asked = trustd.asked(TOKEN, &trustd.ca.pem().crt);
    asked.endpoints = vec!["localhost".to_owned()];
    let why = ask(&asked, SystemTime::now()).await.unwrap_err();
    assert!(
        why.contains("cannot connect") && why.contains("certificate"),
        "{why}"
    );
}

#[tokio::test]
async fn rotated_ca_is_followed_by_nodes_that_accept_both() {
    let trustd = Trustd::start();
    let (old, new) = (trustd.ca.pem().crt.clone(), new_ca());
    let both = format!("{old}\n{}", new.pem().crt);
    ask(&trustd.asked(TOKEN, &both), SystemTime::now())
        .await
        .unwrap();
    write(trustd.directory.path(), &new, &old);
    let joined = ask(&trustd.asked(TOKEN, &both), SystemTime::now())
        .await
        .unwrap();
    let anchors = certificates_from_pem(new.pem().crt.as_bytes()).unwrap();
    corten_pki::verify_issued(&joined.issued, &anchors, SystemTime::now()).unwrap();
    // A node that knows only the old CA rejects the new one.
    ask(&trustd.asked(TOKEN, &old), SystemTime::now())
        .await
        .unwrap_err();
}
