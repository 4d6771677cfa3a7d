//! A log that is followed while its reader pauses, as a pager does.

use std::future::poll_fn;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use corten_api::common::Data;
use h2::{Ping, PingPong, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use prost::Message as _;
use rustls::crypto::ring;
use rustls::{ServerConfig, version};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::support::{certificate, generate};

/// More lines than the windows and pipes on the way hold.
const LINES: usize = 60_000;
/// Number of answered pings without progress after which the client counts as blocked.
const ROUNDS: usize = 20;
/// Timeout of a ping's answer.
const PATIENCE: Duration = Duration::from_secs(60);

fn line(number: usize) -> String {
    format!("2026-11-22T18:07:20Z kubelet: a line as programs write them, number {number:>8}\n")
}

/// A message with one line.
fn message(number: usize) -> tonic::codegen::Bytes {
    let data = Data {
        metadata: None,
        bytes: line(number).into_bytes(),
    };
    let data = data.encode_to_vec();
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &data].concat().into()
}

fn acceptor(directory: &Path) -> TlsAcceptor {
    let (_, own) = certificate(directory, &["127.0.0.1"]);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
            corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Accepts the single call; returns its answer stream, and pings of its connection.
async fn called(
    listener: TcpListener,
    tls: TlsAcceptor,
) -> (SendStream<tonic::codegen::Bytes>, PingPong) {
    let (stream, _) = listener.accept().await.unwrap();
    let stream = tls.accept(stream).await.unwrap();
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let ping = connection.ping_pong().unwrap();
    let (request, mut respond) = connection.accept().await.unwrap().unwrap();
    assert_eq!(request.uri().path(), "/machine.MachineService/Logs");
    let mut head = Response::new(());
    let kind = HeaderValue::from_static("application/grpc");
    head.headers_mut().insert("content-type", kind);
    let answer = respond.send_response(head, false).unwrap();
    tokio::spawn(async move { while connection.accept().await.is_some() {} });
    (answer, ping)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_reader_gets_every_line_of_a_log() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cortenctl"))
        .arg("--cortenconfig")
        .arg(directory.path().join("cortenconfig"))
        .args(["-e", &listener.local_addr().unwrap().to_string()])
        .args(["logs", "-f", "kubelet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut answer, mut ping) = called(listener, acceptor(directory.path())).await;
    // The test does not read the child's output, so that the child blocks. The node must still get
    // answers to its pings.
    let (mut sent, mut stands) = (0, 0);
    while stands < ROUNDS {
        let message = message(sent);
        answer.reserve_capacity(message.len());
        if answer.capacity() >= message.len() {
            answer.send_data(message, false).unwrap();
            (sent, stands) = (sent + 1, 0);
        } else {
            let heard = timeout(PATIENCE, ping.ping(Ping::opaque())).await;
            heard.unwrap().unwrap();
            stands += 1;
        }
    }
    assert!(sent < LINES, "{sent} lines went nowhere");
    let mut output = child.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    });
    for number in sent..LINES {
        let message = message(number);
        answer.reserve_capacity(message.len());
        while answer.capacity() < message.len() {
            let more = poll_fn(|context| answer.poll_capacity(context)).await;
            more.unwrap().unwrap();
        }
        answer.send_data(message, false).unwrap();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    answer.send_trailers(trailers).unwrap();
    let text = reading.await.unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let lines: String = (0..LINES).map(line).collect();
    assert!(text == lines, "{} bytes of {}", text.len(), lines.len());
}
