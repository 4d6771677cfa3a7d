//! Streams through apid: files, logs and watches, of this node, of another node, and of both at once.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use corten_api::cosi::resource as cosi;
use corten_api::{PORT, common, machine as api};
use corten_pki::{Algorithm, Ca, NODE_LIFETIME};
use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use prost::Message as _;
use rustls::crypto::ring;
use rustls::{ServerConfig, version};
use tempfile::TempDir;

use crate::backend::{self, CHUNK, Counted};
use crate::caller::config;
use crate::client::{Connection, Messages, WINDOW, begin_watching, mortal};
use crate::liar;
use crate::process::{KIB, MIB, Process, at_rest, until, within};
use crate::scale;

const READ: &str = "machine.MachineService/Read";
const LOGS: &str = "machine.MachineService/Logs";
const WATCH: &str = "cosi.resource.State/Watch";
const MEMORY: &str = "machine.MachineService/Memory";

/// Source addresses of callers.
const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

/// A control plane node: apid in front of a machined.
struct Node {
    apid: Process,
    address: SocketAddr,
    _directory: TempDir,
}

/// Two nodes with one scripted machined.
struct Cluster {
    ca: Ca,
    entry: Node,
    other: Node,
    machined: Arc<Counted>,
    _directory: TempDir,
}

/// An address of the loopback network that no other process uses.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(100);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    SocketAddr::from(([127, number, high, low], PORT))
}

/// A name for another node's address, in hexadecimal. apid takes every loopback address for its own node, but the
/// hexadecimal form for a host name, which the resolver turns into the address (inet_aton(3)).
fn name(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(address) => format!("{:#010x}", address.to_bits()),
        IpAddr::V6(address) => address.to_string(),
    }
}

fn node(ca: &Ca, machined: &Path) -> Node {
    let directory = tempfile::tempdir().unwrap();
    let address = own_address();
    let now = SystemTime::now();
    let names = [address.ip().to_string(), name(address)];
    let server = ca.server("node", &names, now, NODE_LIFETIME).unwrap();
    let client = ca
        .control_plane_client("os:impersonator", now, NODE_LIFETIME)
        .unwrap();
    for (name, text) in [
        ("ca.crt", &ca.pem().crt),
        ("server.crt", &server.crt),
        ("server.key", &server.key),
        ("client.crt", &client.crt),
        ("client.key", &client.key),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let listen = address.to_string();
    let arguments = [
        "apid",
        "--pki",
        directory.path().to_str().unwrap(),
        "--machined",
        machined.to_str().unwrap(),
        "--listen",
        &listen,
    ];
    Node {
        apid: Process::daemon(directory.path(), &arguments),
        address,
        _directory: directory,
    }
}

/// TLS configuration of a node at this address.
fn server(ca: &Ca, address: SocketAddr) -> ServerConfig {
    let names = [name(address)];
    let own = ca
        .server("node", &names, SystemTime::now(), NODE_LIFETIME)
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
    config
}

impl Cluster {
    fn new() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("machined.sock");
        let machined = backend::serve(&socket);
        let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
        Cluster {
            entry: node(&ca, &socket),
            other: node(&ca, &socket),
            ca,
            machined,
            _directory: directory,
        }
    }

    async fn connect(&self, from: [u8; 4]) -> Connection {
        let own = config(&self.ca, "os:admin");
        Connection::to_apid(from, self.entry.address, own, WINDOW).await
    }

    /// The entry's name for itself, and for the other node.
    fn names(&self) -> [String; 2] {
        let entry = self.entry.address.ip().to_string();
        [entry, name(self.other.address)]
    }

    /// Waits until machined has no open answer.
    async fn is_quiet(&self) {
        let answering = || self.machined.answering();
        until("answers of machined", answering, |count| *count == 0).await;
    }
}

fn file(bytes: usize) -> api::ReadRequest {
    api::ReadRequest {
        path: (bytes / CHUNK).to_string(),
    }
}

fn log(id: &str, lines: i32) -> api::LogsRequest {
    api::LogsRequest {
        id: id.to_owned(),
        tail_lines: lines,
        follow: true,
        ..Default::default()
    }
}

/// Reads a file to its end, with a pause after every `pause` bytes; returns the maximum of bytes in flight.
async fn read(cluster: &Cluster, connection: &Connection, bytes: usize, pause: usize) -> usize {
    let [_, other] = cluster.names();
    let sent_before = cluster.machined.sent();
    let asked = file(bytes);
    let node = [("node", other.as_str())];
    let mut answer = connection.call(READ, &asked, &node).await;
    let (mut got, mut paused, mut most) = (0, 0, 0);
    while let Some(frame) = answer.body.frame().await {
        let Ok(data) = frame.unwrap().into_data() else {
            continue;
        };
        got += data.len();
        most = most.max(cluster.machined.sent() - sent_before - got);
        if got - paused > pause {
            paused = got;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(got > bytes && got == cluster.machined.sent() - sent_before);
    most
}

/// Through two apids, so that the file passes every stage.
#[tokio::test]
async fn gigabyte_file_is_read_at_any_speed_in_bounded_memory() {
    const BOUND: usize = MIB;
    // Each window on the way, plus a message on each side of it.
    const ON_ITS_WAY: usize = 640 * KIB;
    let cluster = Cluster::new();
    let connection = cluster.connect(HERE).await;
    let nodes = [("the entry", &cluster.entry), ("the other", &cluster.other)];
    read(&cluster, &connection, 16 * MIB, usize::MAX).await;
    for (how, bytes, pause) in [
        ("slowly", 16 * MIB, 64 * KIB),
        ("quickly", 256 * scale() * MIB, usize::MAX),
    ] {
        let before = nodes.map(|(_, node)| node.apid.begin());
        let most = read(&cluster, &connection, bytes, pause).await;
        within(&format!("on its way, {how}"), 0, most, ON_ITS_WAY);
        for ((name, node), before) in nodes.into_iter().zip(before) {
            let what = format!("apid of {name}, a file {how}");
            within(&what, before, node.apid.peak(), BOUND);
        }
    }
    cluster.is_quiet().await;
}

/// Only the number of lines matters, not the hours.
#[tokio::test]
async fn long_followed_log_uses_constant_memory() {
    const BOUND: usize = 256 * KIB;
    let cluster = Cluster::new();
    let connection = cluster.connect(HERE).await;
    let [entry, other] = &cluster.names();
    let lines = 100_000 * scale();
    let asked = log("kubelet", i32::try_from(lines).unwrap());
    let both = [("nodes", entry.as_str()), ("nodes", other.as_str())];
    for (route, metadata, nodes) in [
        ("here", &[][..], 1),
        ("another node", &[("node", other.as_str())], 1),
        ("both", &both, 2),
    ] {
        let mut answer = connection.call(LOGS, &asked, metadata).await;
        let total = lines * nodes;
        let mut labels = [0; 2];
        let mut had = None;
        for number in 1..=total {
            let line = answer.next().await.unwrap();
            if nodes == 2 {
                let label = common::Data::decode(line).unwrap().metadata.unwrap();
                labels[usize::from(label.hostname == *other)] += 1;
            }
            if number == total / 10 {
                had = Some([&cluster.entry, &cluster.other].map(|node| node.apid.own()));
            }
        }
        if nodes == 2 {
            assert_eq!(labels, [lines, lines]);
        }
        let names = ["entry", "other"];
        let nodes = [&cluster.entry, &cluster.other].into_iter().zip(names);
        for ((node, name), had) in nodes.zip(had.unwrap()) {
            let what = format!("{total} lines of {route}, apid of the {name}");
            within(&what, had, node.apid.own(), BOUND);
        }
        drop(answer);
        cluster.is_quiet().await;
    }
}

/// Clients that vanish leave nothing behind.
#[tokio::test]
async fn thousand_idle_watchers_use_bounded_memory_and_block_no_client() {
    const WATCHERS: usize = 1_000;
    const EACH: usize = 100;
    const BOUND: usize = 16 * KIB;
    let cluster = Cluster::new();
    let apid = &cluster.entry.apid;
    let watch = cosi::WatchRequest::default();
    let first = cluster.connect(HERE).await;
    first.call(MEMORY, &(), &[]).await.next().await.unwrap();
    drop(first);
    cluster.is_quiet().await;
    let before = apid.own();
    let had = apid.descriptors_and_threads();
    let mortal = mortal();
    let connect = async || {
        let own = config(&cluster.ca, "os:admin");
        let connected = Connection::to_apid(HERE, cluster.entry.address, own, WINDOW);
        mortal.spawn(connected).await.unwrap()
    };
    let mut watchers = Vec::new();
    while watchers.len() < WATCHERS {
        let connection = connect().await;
        watchers.extend(begin_watching(&connection, EACH, WATCH, &watch).await);
    }
    assert_eq!(cluster.machined.answering(), WATCHERS);
    within("a watcher", before / WATCHERS, apid.own() / WATCHERS, BOUND);
    // A caller that takes its whole quota does not affect others.
    let mut greedy = connect().await;
    let refused = loop {
        if watchers.len() % EACH == 0 {
            greedy = connect().await;
        }
        match greedy.try_call(WATCH, &watch, &[]).await {
            Ok(body) => watchers.push(Messages::of(body)),
            Err(head) => break head,
        }
    };
    assert_eq!(refused["grpc-status"], "8", "{refused:?}");
    let next = cluster.connect(ELSEWHERE).await;
    next.call(MEMORY, &(), &[]).await.next().await.unwrap();

    mortal.shutdown_background();
    cluster.is_quiet().await;
    drop(watchers);
    // The next call finds more connections to machined than are needed.
    next.call(MEMORY, &(), &[]).await.next().await.unwrap();
    drop(next);
    apid.comes_back_to(had).await;
}

/// A hundred followers on one connection, with messages of one line.
#[tokio::test]
async fn unread_followers_stay_within_their_accounted_memory() {
    const FOLLOWERS: usize = 100;
    // The memory that apid reserves per call (`CALL` in its `lib.rs`).
    const BOUND: usize = 176 * KIB;
    for (route, number) in [("here", 0), ("another node", 1)] {
        let cluster = Cluster::new();
        let apid = &cluster.entry.apid;
        let connection = cluster.connect(HERE).await;
        let names = cluster.names();
        let node = [("node", names[number].as_str())];
        connection
            .call(MEMORY, &(), &node)
            .await
            .next()
            .await
            .unwrap();
        let before = apid.begin();
        let asked = log("kubelet", -1);
        let calls = (0..FOLLOWERS).map(|_| connection.call(LOGS, &asked, &node));
        let followers = join_all(calls).await;
        at_rest(&[apid, &cluster.other.apid]).await;
        let after = apid.peak();
        let what = format!("a follower of {route} that does not read");
        within(&what, before / FOLLOWERS, after / FOLLOWERS, BOUND);
        drop(followers);
        cluster.is_quiet().await;
    }
}

/// HTTP/2's window counts bytes, but its library keeps much more per frame, even of one byte.
#[tokio::test]
async fn single_byte_frames_use_no_more_memory_than_large_frames() {
    const MANY: usize = 64;
    // A window, and the send buffer.
    const EACH: usize = 128 * KIB;
    // Frames of a connection that arrived and are not taken yet.
    const COMING: usize = 2 * MIB;
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("machined.sock");
    let machined = liar::at_socket(&socket);
    let entry = node(&ca, &socket);
    let other = own_address();
    let another = liar::at_address(other, server(&ca, other));
    let own = config(&ca, "os:admin");
    // The client reads almost nothing at first.
    let connection = Connection::to_apid(HERE, entry.address, own, 1 << 10).await;
    let other = name(other);
    let other = [("node", other.as_str())];
    for (route, node, sent, window) in [
        ("machined", &[][..], machined, 32 * KIB),
        ("another node", &other, another, 64 * KIB),
    ] {
        let sent = || sent.load(Ordering::SeqCst);
        let asked = log("kubelet", -1);
        drop(connection.call(LOGS, &asked, node).await);
        for number in [1, MANY] {
            at_rest(&[&entry.apid]).await;
            let (before, had) = (entry.apid.begin(), sent());
            let calls = (0..number).map(|_| connection.call(LOGS, &asked, node));
            let mut followers = join_all(calls).await;
            until("bytes", sent, |sent| *sent == had + number * window).await;
            at_rest(&[&entry.apid]).await;
            let what = format!("{number} streams of {route}, byte by byte");
            within(&what, before, entry.apid.peak(), number * EACH + COMING);
            // A follower that reads loses nothing.
            for follower in &mut followers {
                let mut left = window;
                while left > 0 {
                    let frame = follower.body.frame().await.unwrap().unwrap();
                    left -= frame.into_data().unwrap().len();
                }
            }
        }
    }
}
