//! Nodes for tests: apid on a loopback port in front of a scripted machined; and their clients.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use corten_api::common::Data;
use corten_api::machine as api;
use corten_daemon::{Bounds, Places};
use corten_pki::{Algorithm, Ca, CertificateAndKey, NODE_LIFETIME};
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tonic::Status;

use super::client::{Client, tls};
use crate::answerer::Answerers;
use crate::audit::Audit;
use crate::fanout::PATIENCE;
use crate::frames::framed;
use crate::identity::Identity;
use crate::peers::{Dial, Peers};
use crate::proxy::Proxy;
use crate::quota::Quota;
use crate::reply::{Body, BoxError};
use crate::server::{BOUNDS, Server};
use crate::upstream::Upstream;
use crate::{CALLS, MEMORY, REQUESTS};

/// Behaviour of a machined.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// Answers; `Memory` reports this amount.
    Answer(i64),
    /// Accepts the call and never answers.
    Silent,
    /// Does not even accept the call.
    Mute,
    /// Sends these bytes and a successful status.
    Bytes(Vec<Bytes>),
    /// Repeats this message for ever.
    Endless(Bytes),
}

/// A call as machined received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) roles: String,
    pub(crate) proxied: bool,
    /// The caller as machined is told.
    pub(crate) caller: Option<String>,
    /// Number of the caller's certificates with the call, and the first one.
    pub(crate) certificates: (usize, Option<HeaderValue>),
    /// Length of the first message, if it was read.
    pub(crate) length: usize,
}

/// machined of a test node.
#[derive(Debug, Clone)]
pub(crate) struct Machined {
    manner: Arc<Mutex<Manner>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Number of calls being answered.
    pub(crate) answering: watch::Sender<usize>,
}

/// Counts an answer until it is dropped.
struct Answering(watch::Sender<usize>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Machined {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn now(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn serve(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let this = this.clone();
                let service = service_fn(move |request| this.clone().answer(request));
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new())
                        .max_concurrent_streams(None)
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path().to_owned();
        let roles = request.headers().get_all("talos-role").iter();
        let roles: Vec<_> = roles.map(|role| role.to_str().unwrap()).collect();
        let roles = roles.join(" ");
        let proxied = request.headers().contains_key("proxyfrom");
        let caller = request.headers().get("corten-caller");
        let caller = caller.map(|caller| caller.to_str().unwrap().to_owned());
        let shown = request.headers().get_all("corten-certificate-bin");
        let certificates = (shown.iter().count(), shown.iter().next().cloned());
        let body = request.into_body().collect().await?.to_bytes();
        let length = body.len().saturating_sub(5);
        let seen = Seen {
            path: path.clone(),
            roles: roles.clone(),
            proxied,
            caller,
            certificates,
            length,
        };
        self.seen.lock().unwrap().push(seen);
        self.answering.send_modify(|count| *count += 1);
        let answering = Answering(self.answering.clone());
        let manner = self.manner.lock().unwrap().clone();
        if matches!(manner, Manner::Mute) {
            std::future::pending::<()>().await;
        }
        let ok = Status::new(tonic::Code::Ok, "");
        let (frames, status): (stream::BoxStream<'static, Bytes>, _) = match manner {
            Manner::Silent | Manner::Mute => (stream::pending().boxed(), ok),
            Manner::Endless(message) => (stream::repeat(framed(&message)).boxed(), ok),
            Manner::Bytes(bytes) => (stream::iter(bytes).boxed(), ok),
            Manner::Answer(memory) => {
                let (messages, status) = answer(&path, &roles, memory, length);
                let frames = messages.into_iter().map(|message| framed(&message));
                (stream::iter(frames.collect::<Vec<_>>()).boxed(), status)
            }
        };
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        let frames = frames
            .map(|bytes| Ok(Frame::data(bytes)))
            .chain(stream::iter([Ok(Frame::trailers(trailers))]))
            .map(move |frame: Result<_, BoxError>| {
                let _ = &answering;
                frame
            });
        let mut response = Response::new(Body::new(StreamBody::new(frames)));
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }
}

/// The answer of a machined that works.
fn answer(path: &str, roles: &str, memory: i64, length: usize) -> (Vec<Vec<u8>>, Status) {
    let ok = Status::new(tonic::Code::Ok, "");
    match path.rsplit('/').next().unwrap() {
        "Hostname" => {
            let hostname = api::Hostname {
                metadata: None,
                hostname: roles.to_owned(),
            };
            let reply = api::HostnameResponse {
                messages: vec![hostname],
            };
            (vec![reply.encode_to_vec()], ok)
        }
        "Memory" => (vec![memory_reply(memory)], ok),
        "Dmesg" => {
            let lines = ["one\n", "two\n"].map(|text| data(text.as_bytes()));
            (lines.into(), Status::aborted("enough"))
        }
        "ApplyConfiguration" => {
            let reply = api::ApplyConfiguration {
                mode_details: length.to_string(),
                ..Default::default()
            };
            let reply = api::ApplyConfigurationResponse {
                messages: vec![reply],
            };
            (vec![reply.encode_to_vec()], ok)
        }
        _ => (vec![Vec::new()], ok),
    }
}

pub(crate) fn memory_reply(total: i64) -> Vec<u8> {
    let meminfo = api::MemInfo {
        memtotal: total.unsigned_abs(),
        ..Default::default()
    };
    let memory = api::Memory {
        metadata: None,
        meminfo: Some(meminfo),
    };
    api::MemoryResponse {
        messages: vec![memory],
    }
    .encode_to_vec()
}

pub(crate) fn data(bytes: &[u8]) -> Vec<u8> {
    let data = Data {
        metadata: None,
        bytes: bytes.to_vec(),
    };
    data.encode_to_vec()
}

/// Properties of a node.
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) maintenance: bool,
    pub(crate) control_plane: bool,
    pub(crate) manner: Manner,
    pub(crate) bounds: Bounds,
    pub(crate) calls: (usize, usize, usize),
    pub(crate) patience: Duration,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            name: "node",
            maintenance: false,
            control_plane: true,
            manner: Manner::Answer(4096),
            bounds: BOUNDS,
            calls: CALLS,
            patience: PATIENCE,
        }
    }
}

/// Nodes of one CA, which find each other by name.
pub(crate) struct Cluster {
    pub(crate) ca: Ca,
    addresses: Arc<Mutex<HashMap<String, SocketAddr>>>,
}

/// A running node.
pub(crate) struct Node {
    pub(crate) directory: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) machined: Machined,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) places: Places,
    pub(crate) audit: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn new_ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap()
}

/// Writes the files that machined gives apid.
pub(crate) fn write_identity(directory: &Path, ca: &Ca, name: &str, control_plane: bool) {
    let names = ["127.0.0.1".to_owned(), name.to_owned()];
    let now = SystemTime::now();
    let server = ca.server(name, &names, now, NODE_LIFETIME).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    if control_plane {
        let client = ca.client(&["os:impersonator"], now, NODE_LIFETIME).unwrap();
        write("client.key", &client.key);
        write("client.crt", &client.crt);
    }
    write("ca.crt", &ca.pem().crt);
    write("server.key", &server.key);
    write("server.crt", &server.crt);
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster {
            ca: new_ca(),
            addresses: Arc::default(),
        }
    }

    /// The same nodes under another CA.
    pub(crate) fn with_new_ca(&self) -> Cluster {
        Cluster {
            ca: new_ca(),
            addresses: self.addresses.clone(),
        }
    }

    fn dial(&self) -> Dial {
        let addresses = self.addresses.clone();
        Arc::new(move |node| {
            let address = addresses.lock().unwrap().get(node).copied();
            Box::pin(async move {
                TcpStream::connect(address.ok_or(io::ErrorKind::HostUnreachable)?).await
            })
        })
    }

    /// Sets the address of a name.
    pub(crate) fn name(&self, name: &str, address: SocketAddr) {
        let mut addresses = self.addresses.lock().unwrap();
        addresses.insert(name.to_owned(), address);
    }

    pub(crate) async fn node(&self, setup: Setup) -> Node {
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path(), &self.ca, setup.name, setup.control_plane);
        let socket = directory.path().join("machined.sock");
        let machined = Machined {
            manner: Arc::new(Mutex::new(setup.manner)),
            seen: Arc::default(),
            answering: watch::Sender::new(0),
        };
        machined.serve(&socket);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.name(setup.name, address);
        let audit = Arc::new(Mutex::new(Vec::new()));
        let lines = audit.clone();
        let proxy = Proxy {
            identity: Identity::load(directory.path().into(), setup.maintenance).unwrap(),
            answerers: Arc::new(Answerers {
                upstream: Upstream::new(socket),
                peers: Peers::new(self.dial()),
            }),
            calls: Quota::new(setup.calls.0, setup.calls.1, setup.calls.2),
            memory: Quota::new(MEMORY.0, MEMORY.1, 0),
            requests: Quota::new(REQUESTS.0, REQUESTS.1, 0),
            patience: setup.patience,
            audit: Audit::to(move |line| lines.lock().unwrap().push(line.to_owned())),
            maintenance: setup.maintenance,
        };
        let server = Server::new(proxy, setup.bounds);
        let (proxy, places) = (server.proxy(), server.places());
        tokio::spawn(async move { server.run(listener).await });
        Node {
            directory,
            address,
            machined,
            proxy,
            places,
            audit,
        }
    }

    pub(crate) fn certificate(&self, roles: &[&str]) -> CertificateAndKey {
        let now = SystemTime::now();
        self.ca.client(roles, now, NODE_LIFETIME).unwrap()
    }

    /// A client of `node` with these roles.
    pub(crate) async fn client(&self, node: &Node, roles: &[&str]) -> Client {
        let own = self.certificate(roles);
        let tls = tls(Some(&self.ca), Some(&own));
        Client::connect(node.address, tls).await.unwrap()
    }
}

impl Node {
    /// Waits until no call is left, here and at machined.
    pub(crate) async fn is_quiet(&self) {
        let mut answering = self.machined.answering.subscribe();
        answering.wait_for(|count| *count == 0).await.unwrap();
        let Proxy {
            calls,
            memory,
            requests,
            ..
        } = &*self.proxy;
        while calls.in_use() + memory.in_use() + requests.in_use() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
