//! The servers of the benchmark: apid, machined's server and syslogd, each in a process of its own, which is this
//! program with another first argument. A thousand other nodes are one thread of the calling process.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use apid::Dial;
use corten_api::machine as api;
use corten_pki::{Ca, NODE_LIFETIME};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use rustls::crypto::ring;
use rustls::{ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::client::framed;
use crate::still;

/// Timeout for a socket to appear.
const PATIENCE: Duration = Duration::from_secs(60);
const LOG_SOCKET: &str = "syslogd.sock";
const LOG_DATAGRAMS: &str = "log";
const NODE_SOCKET: &str = "machined.sock";

/// A process, killed when this value is dropped.
pub struct Daemon {
    pub name: &'static str,
    process: Child,
    /// Its address, if it reported one.
    pub address: Option<SocketAddr>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Daemon {
    fn start(name: &'static str, directory: &Path, more: &[String]) -> Daemon {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(name)
            .arg(directory)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        says.read_line(&mut line).unwrap();
        Daemon {
            name,
            process,
            address: line.trim().parse().ok(),
        }
    }

    /// Private memory of the process in KiB (proc_pid_smaps(5), `smaps_rollup`), and its peak including pages of the
    /// program file. Those grow as more of the program is used.
    pub fn memory(&self) -> (u64, u64) {
        let kib = |file: &str, field: &str| {
            let path = format!("/proc/{}/{file}", self.process.id());
            let text = std::fs::read_to_string(path).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            let text = line.unwrap().trim().trim_end_matches(" kB");
            text.parse().unwrap()
        };
        (kib("smaps_rollup", "Anonymous:"), kib("status", "VmHWM:"))
    }
}

/// Starts the daemons, and fills a log with `lines` lines.
pub fn start(directory: &Path, ca: &Ca, nodes_at: SocketAddr, lines: usize) -> [Daemon; 3] {
    write_pki(directory, ca);
    let syslogd = Daemon::start("syslogd", directory, &[]);
    let sender = UnixDatagram::unbound().unwrap();
    for n in 0..lines {
        let line = format!("<30>Jan  2 03:04:05 prog[1]: a line as programs write them n={n}");
        let log = directory.join(LOG_DATAGRAMS);
        sender.send_to(line.as_bytes(), log).unwrap();
    }
    let machined = Daemon::start("machined", directory, &[]);
    let apid = Daemon::start("apid", directory, &[nodes_at.to_string()]);
    [apid, machined, syslogd]
}

/// Runs the daemon that the arguments name; false if this is the calling process.
pub fn run_as(words: &[String]) -> bool {
    let [name, directory, more @ ..] = words else {
        return false;
    };
    let directory = Path::new(directory);
    // Like the image's program.
    corten_sys::memory::keep_small().unwrap();
    match name.as_str() {
        "syslogd" => run_syslogd(directory),
        "machined" => {
            let (socket, syslogd) = (directory.join(NODE_SOCKET), directory.join(LOG_SOCKET));
            still::serve(&socket, &syslogd, |_| println!("ready"));
        }
        "apid" => run_apid(directory, more[0].parse().unwrap()),
        _ => return false,
    }
    true
}

fn run_syslogd(directory: &Path) {
    let at = |name: &str| directory.join(name).into_os_string();
    let (log, socket) = (at(LOG_DATAGRAMS), at(LOG_SOCKET));
    let ready = directory.join(LOG_SOCKET);
    thread::spawn(move || {
        for _ in 0..PATIENCE.as_millis() {
            if std::os::unix::net::UnixStream::connect(&ready).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        println!("ready");
    });
    let words = ["syslogd", "--kmsg", "none", "--config", "none"].map(OsString::from);
    let more = ["--dev-log".into(), log, "--socket".into(), socket];
    let _broken = syslogd::run(words.into_iter().chain(more));
}

/// apid as on the image, except that other nodes resolve to `nodes_at`.
fn run_apid(directory: &Path, nodes_at: SocketAddr) {
    let directory = directory.to_owned();
    let socket = directory.join(NODE_SOCKET);
    let work = on_a_thread(move || async move {
        let dial: Dial = Arc::new(move |_| Box::pin(TcpStream::connect(nodes_at)));
        let server = apid::server(directory, socket, false, dial).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        server.run(listener).await;
    });
    work.join().unwrap();
}

fn write_pki(directory: &Path, ca: &Ca) {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let now = SystemTime::now();
    let server = ca
        .server("node", &["127.0.0.1".into()], now, NODE_LIFETIME)
        .unwrap();
    let client = ca
        .control_plane_client("os:impersonator", now, NODE_LIFETIME)
        .unwrap();
    write("ca.crt", &ca.pem().crt);
    write("server.crt", &server.crt);
    write("server.key", &server.key);
    write("client.crt", &client.crt);
    write("client.key", &client.key);
}

pub fn on_a_thread<F: Future<Output = ()>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(work());
    })
}

/// The apids of all other nodes: one listener with a wildcard name.
pub fn simulate_nodes(ca: &Ca) -> SocketAddr {
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

/// Answers every call with a memory report.
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
