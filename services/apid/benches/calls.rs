//! `cargo bench -p apid`: calls a second through mTLS to a machined that answers at once, at 1 and 64
//! connections, and one call merged from 1,000 simulated nodes. It prints; it judges nothing but the answers.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a failing step is a failing benchmark, and its numbers are small"
)]

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use apid::Dial;
use bytes::Bytes;
use corten_api::machine as api;
use corten_pki::{Algorithm, Ca, NODE_LIFETIME};
use futures_util::future::join_all;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const MEMORY: &str = "https://127.0.0.1:50000/machine.MachineService/Memory";
const CALLS: usize = 20_000;
const NODES: usize = 1_000;
const ROUNDS: usize = 5;

type Sender = SendRequest<Full<Bytes>>;

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (calls, nodes, rounds) = if is_test {
        (64, 20, 1)
    } else {
        (CALLS, NODES, ROUNDS)
    };
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    let own = client(&ca, "os:reader");
    let nodes_at = simulate_nodes(&ca);
    let address = serve(directory.path(), &ca, nodes_at);
    on_a_thread(move || async move {
        for connections in [1, 64] {
            unary(address, &own, connections, calls).await;
        }
        fan_out(address, &own, nodes, rounds).await;
    })
    .join()
    .unwrap();
    println!("process at most {}, clients and nodes included", resident());
}

fn on_a_thread<F: Future<Output = ()>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(work());
    })
}

/// apid as the image runs it, before a machined that answers at once.
fn serve(directory: &Path, ca: &Ca, nodes_at: SocketAddr) -> SocketAddr {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let now = SystemTime::now();
    let server = ca
        .server("node", &["127.0.0.1".into()], now, NODE_LIFETIME)
        .unwrap();
    let client = ca.client(&["os:impersonator"], now, NODE_LIFETIME).unwrap();
    write("ca.crt", &ca.pem().crt);
    write("server.crt", &server.crt);
    write("server.key", &server.key);
    write("client.crt", &client.crt);
    write("client.key", &client.key);
    let socket = directory.join("machined.sock");
    let (listening, address) = mpsc::channel();
    let directory = directory.to_owned();
    on_a_thread(move || async move {
        let machined = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = machined.accept().await.unwrap();
                tokio::spawn(answering(stream));
            }
        });
        let dial: Dial = Arc::new(move |_| Box::pin(TcpStream::connect(nodes_at)));
        let server = apid::server(directory, socket, false, dial).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listening.send(listener.local_addr().unwrap()).unwrap();
        server.run(listener).await;
    });
    address.recv().unwrap()
}

/// The apids of all other nodes: one listener that has every name.
fn simulate_nodes(ca: &Ca) -> SocketAddr {
    let names = ["*.nodes.test".to_owned()];
    let own = ca
        .server("nodes", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
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
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listening, address) = mpsc::channel();
    on_a_thread(move || async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listening.send(listener.local_addr().unwrap()).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answering(stream).await;
                }
            });
        }
    });
    address.recv().unwrap()
}

/// Answers every call with a node's memory.
async fn answering<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T) {
    let service = service_fn(|_: Request<Incoming>| async {
        let memory = api::Memory {
            metadata: None,
            meminfo: Some(api::MemInfo {
                memtotal: 4096,
                ..Default::default()
            }),
        };
        let reply = api::MemoryResponse {
            messages: vec![memory],
        };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let frames = [
            Frame::data(framed(&reply.encode_to_vec())),
            Frame::trailers(trailers),
        ];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
        Ok::<_, Infallible>(Response::new(body))
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

fn client(ca: &Ca, role: &str) -> Arc<ClientConfig> {
    let own = ca
        .client(&[role], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut roots = RootCertStore::empty();
    for root in corten_pki::certificates_from_pem(ca.pem().crt.as_bytes()).unwrap() {
        roots.add(root).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
            corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

async fn connect(address: SocketAddr, own: &Arc<ClientConfig>) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
    let stream = TlsConnector::from(own.clone())
        .connect(name, stream)
        .await
        .unwrap();
    let (sender, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    sender
}

/// One call; its reply's rows.
async fn call(sender: &Sender, nodes: &[String]) -> Vec<api::Memory> {
    let mut request = Request::post(MEMORY).header("content-type", "application/grpc");
    for node in nodes {
        request = request.header("nodes", node);
    }
    let request = request.body(Full::new(framed(&[]))).unwrap();
    let response = sender.clone().send_request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    let reply = api::MemoryResponse::decode(&body.to_bytes()[5..]).unwrap();
    reply.messages
}

/// Each connection makes one call after the other.
async fn unary(address: SocketAddr, own: &Arc<ClientConfig>, connections: usize, calls: usize) {
    let start = Instant::now();
    let connecting = (0..connections).map(|_| connect(address, own));
    let senders = join_all(connecting).await;
    let connected = start.elapsed();
    let start = Instant::now();
    join_all(senders.iter().map(async |sender| {
        for _ in 0..calls / connections {
            assert_eq!(call(sender, &[]).await.len(), 1);
        }
    }))
    .await;
    let rate = calls as f64 / start.elapsed().as_secs_f64();
    println!(
        "unary, {connections} connections: {rate:.0} calls/s; connected in {} ms",
        connected.as_millis()
    );
}

async fn fan_out(address: SocketAddr, own: &Arc<ClientConfig>, nodes: usize, rounds: usize) {
    let sender = connect(address, own).await;
    let names: Vec<_> = (0..nodes).map(|n| format!("n{n}.nodes.test")).collect();
    for round in 1..=rounds {
        let start = Instant::now();
        let rows = call(&sender, &names).await;
        assert_eq!(rows.len(), nodes);
        assert!(rows.iter().all(|row| row.meminfo.is_some()));
        println!(
            "one call to {nodes} nodes, round {round}: {} ms",
            start.elapsed().as_millis()
        );
    }
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.map_or("?".to_owned(), |line| line[6..].trim().to_owned())
}
