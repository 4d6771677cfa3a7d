//! One caller cannot exhaust what other callers need.

use std::time::Duration;

use corten_api::MAX_MESSAGE;
use corten_api::machine as api;
use corten_api::requests::SMALL;
use corten_daemon::Bounds;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use prost::Message as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;
use tonic::Code;

use super::client::{Client, full, tls};
use super::support::{Cluster, Manner, Node, Setup, data};
use crate::frames::framed;
use crate::reply::Body;

const MEMORY: &str = "/machine.MachineService/Memory";
const HOSTNAME: &str = "/machine.MachineService/Hostname";
const APPLY: &str = "/machine.MachineService/ApplyConfiguration";
const DMESG: &str = "/machine.MachineService/Dmesg";

const FEW: Bounds = Bounds {
    connections: 12,
    each: 6,
    strangers: 8,
    strangers_each: 4,
    for_admins: 1,
};

/// A connection that sends nothing.
async fn mute(node: &Node, own: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, own], 0).into()).unwrap();
    socket.connect(node.address).await.unwrap()
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}

async fn is_served(cluster: &Cluster, node: &Node, own: u8) {
    let tls = tls(
        Some(&cluster.ca),
        Some(&cluster.certificate(&["os:reader"])),
    );
    let own = [127, 0, 0, own];
    let client = Client::connect_from(own, node.address, tls).await.unwrap();
    let memory = client.call(MEMORY, &[], &[]).await;
    assert_eq!(memory.status.code(), Code::Ok, "{:?}", memory.status);
}

#[tokio::test]
async fn flood_of_unauthenticated_connections_blocks_no_client() {
    for maintenance in [false, true] {
        let cluster = Cluster::new();
        let setup = Setup {
            bounds: FEW,
            maintenance,
            ..Setup::default()
        };
        let node = cluster.node(setup).await;
        // One peer gets four places; three peers take all eight places of strangers.
        let mut flood = join_all((0..20).map(|_| mute(&node, 2))).await;
        until(|| node.places.count() == (4, 4)).await;
        is_served(&cluster, &node, 9).await;
        until(|| node.places.count() == (4, 4)).await;
        flood.extend(join_all((0..40).map(|n| mute(&node, 3 + n % 5))).await);
        until(|| node.places.count() == (8, 8)).await;
        is_served(&cluster, &node, 9).await;
        // Even a caller with the address of the flood.
        is_served(&cluster, &node, 2).await;
        drop(flood);
        until(|| node.places.count() == (0, 0)).await;
    }
}

#[tokio::test]
async fn flood_of_one_certificate_leaves_room_for_others() {
    let cluster = Cluster::new();
    let setup = Setup {
        bounds: FEW,
        calls: (30, 20, 2),
        manner: Manner::Silent,
        ..Setup::default()
    };
    let node = cluster.node(setup).await;
    let own = cluster.certificate(&["os:reader"]);
    let connect = || {
        let tls = tls(Some(&cluster.ca), Some(&own));
        Client::connect_from([127, 0, 0, 2], node.address, tls)
    };
    // As many connections and calls as one peer may have.
    let mut clients = Vec::new();
    while node.places.count().0 < FEW.each {
        clients.push(connect().await.unwrap());
        let known = clients.len();
        until(|| node.places.count() == (known, 0)).await;
    }
    let refused = match connect().await {
        Ok(client) => client.try_call(MEMORY, &[], &[]).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    let mut held: Vec<http::Response<Incoming>> = Vec::new();
    for client in clients.iter().cycle() {
        let response = client.send(MEMORY, &[], full(framed(&[]))).await.unwrap();
        if response.headers().contains_key("grpc-status") {
            assert_eq!(response.headers()["grpc-status"], "8");
            break;
        }
        held.push(response);
    }
    assert_eq!(held.len(), 20);
    // A call to two nodes counts as two.
    let nodes = [("nodes", "127.0.0.1"), ("nodes", "node")];
    let refused = clients[0].call(MEMORY, &nodes, &[]).await.status;
    assert_eq!(refused.code(), Code::ResourceExhausted);

    node.machined.now(Manner::Answer(4096));
    is_served(&cluster, &node, 3).await;
    drop((held, clients));
    node.is_quiet().await;
}

#[tokio::test]
async fn reader_with_many_addresses_leaves_room_for_admins() {
    let cluster = Cluster::new();
    let setup = Setup {
        bounds: Bounds {
            for_admins: 4,
            ..FEW
        },
        calls: (12, 8, 2),
        manner: Manner::Silent,
        ..Setup::default()
    };
    let node = cluster.node(setup).await;
    let readers = [(); 3].map(|()| cluster.certificate(&["os:reader"]));
    let connect = |from, own| {
        let tls = tls(Some(&cluster.ca), Some(own));
        Client::connect_from([127, 0, 0, from], node.address, tls)
    };
    let is_served = async |client: std::io::Result<Client>| match client {
        Ok(client) => client.send(MEMORY, &[], full(framed(&[]))).await.ok(),
        Err(_) => None,
    };
    // Six calls of one certificate and two of another; the rest is reserved for administrators.
    let mut held = Vec::new();
    for (certificate, count) in [(0, 6), (1, 2)] {
        for from in 2..2 + count {
            let client = connect(from, &readers[certificate]).await.unwrap();
            held.push(client.send(MEMORY, &[], full(framed(&[]))).await.unwrap());
            assert!(!held[held.len() - 1].headers().contains_key("grpc-status"));
        }
        let one_more = connect(9, &readers[certificate]).await;
        assert!(is_served(one_more).await.is_none(), "{certificate}");
    }
    assert!(is_served(connect(9, &readers[2]).await).await.is_none());
    let admin = cluster.certificate(&["os:admin"]);
    let admin = connect(9, &admin).await.unwrap();
    for expected in [None, None, None, None, Some("8")] {
        let answer = admin.send(MEMORY, &[], full(framed(&[]))).await.unwrap();
        let code = answer.headers().get("grpc-status");
        assert_eq!(code.map(|code| code.to_str().unwrap()), expected);
        held.push(answer);
    }
}

/// The first `length` bytes of a message that is one MiB longer; the rest never arrives.
fn half(length: usize) -> Body {
    let whole = framed(&vec![b'#'; length + (1 << 20)]);
    let pieces = whole.chunks(1 << 20).take(length >> 20);
    let pieces: Vec<_> = pieces
        .map(|piece| Ok(Frame::data(whole.slice_ref(piece))))
        .collect();
    Body::new(StreamBody::new(
        stream::iter(pieces).chain(stream::pending()),
    ))
}

#[tokio::test]
async fn hostile_requests_that_do_not_end_leave_room_for_configs() {
    let cluster = Cluster::new();
    let setup = Setup {
        maintenance: true,
        ..Setup::default()
    };
    let node = cluster.node(setup).await;
    let stranger = |from| Client::connect_from([127, 0, 0, from], node.address, tls(None, None));
    let code = async |client: &Client, path, body| {
        let answer = client.send(path, &[], body).await.unwrap();
        let code = answer.headers().get("grpc-status").cloned();
        code.map(|code| code.to_str().unwrap().to_owned())
    };
    let refused = Some("8".to_owned());
    let (flood, other) = (stranger(2).await.unwrap(), stranger(3).await.unwrap());
    // An oversized request is refused before it has arrived.
    let long = full(framed(&vec![0; SMALL + 1]));
    assert_eq!(code(&flood, MEMORY, long).await, refused);
    assert_eq!(code(&flood, MEMORY, half(1 << 20)).await, refused);
    let begun = flood.clone();
    let unfinished = tokio::spawn(async move { begun.send(APPLY, &[], half(20 << 20)).await });
    until(|| node.proxy.requests.in_use() >= 20 << 20).await;
    assert_eq!(code(&flood, APPLY, half(20 << 20)).await, refused);
    // The flooding peer can still send a typical config, and another peer a long one.
    for (client, length) in [(&flood, SMALL), (&other, 20 << 20)] {
        let config = full(framed(&vec![b'#'; length]));
        assert_eq!(code(client, APPLY, config).await, None);
        assert_eq!(node.machined.seen().pop().unwrap().length, length);
    }
    unfinished.abort();
    drop(flood);
    node.is_quiet().await;
}

#[tokio::test]
async fn oversized_metadata_and_messages_are_refused() {
    let cluster = Cluster::new();
    let node = cluster.node(Setup::default()).await;
    let client = cluster.client(&node, &["os:reader"]).await;
    let long = "x".repeat(200 * 1024);
    let body = || full(framed(&[]));
    if let Ok(response) = client.send(MEMORY, &[("x", &long)], body()).await {
        assert_eq!(
            response.status(),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        );
    }
    // A list of 1,024 nodes by IPv6 address passes the limit of metadata; one more does not.
    let address = "2001:0db8:0000:0000:0000:0000:0000:0001";
    for (count, expected) in [
        (1024, Code::PermissionDenied),
        (1025, Code::InvalidArgument),
    ] {
        let nodes = vec![("nodes", address); count];
        let worker = Setup {
            control_plane: false,
            ..Setup::default()
        };
        let worker = cluster.node(worker).await;
        let client = cluster.client(&worker, &["os:reader"]).await;
        let status = client.call(MEMORY, &nodes, &[]).await.status;
        assert_eq!(status.code(), expected, "{status:?}");
    }
    let long = "x".repeat(8 * 1024);
    let refused = client.call(MEMORY, &[("x", &long)], &[]).await.status;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let head = [
        &[0][..],
        &u32::try_from(MAX_MESSAGE + 1).unwrap().to_be_bytes(),
    ]
    .concat();
    let nodes = [("nodes", "127.0.0.1"), ("nodes", "node")];
    let refused = client
        .send(MEMORY, &nodes, full(head.into()))
        .await
        .unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert_eq!(node.machined.seen(), []);
    node.is_quiet().await;
}

/// A machined whose host name has `length` bytes.
fn long(length: usize) -> Manner {
    let reply = api::HostnameResponse {
        messages: vec![api::Hostname {
            metadata: None,
            hostname: "x".repeat(length),
        }],
    };
    Manner::Bytes(vec![framed(&reply.encode_to_vec())])
}

#[tokio::test]
async fn unread_answer_counts_against_the_quota_until_sent() {
    let cluster = Cluster::new();
    let node = cluster.node(Setup::default()).await;
    let client = cluster.client(&node, &["os:reader"]).await;
    let ask = || client.send(HOSTNAME, &[("nodes", "127.0.0.1")], full(framed(&[])));
    node.machined.now(long(7 << 20));
    let held = [ask().await.unwrap(), ask().await.unwrap()];
    assert!(node.proxy.memory.in_use() >= 2 * (7 << 20));
    assert_eq!(node.proxy.calls.in_use(), 2);
    let third = client
        .call(HOSTNAME, &[("nodes", "127.0.0.1")], &[])
        .await
        .messages::<api::HostnameResponse>();
    let metadata = third[0].messages[0].metadata.as_ref().unwrap();
    let code = Code::from(metadata.status.as_ref().unwrap().code);
    assert_eq!(code, Code::ResourceExhausted);
    drop(held);
    node.is_quiet().await;
    // A message of a stream, too.
    node.machined
        .now(Manner::Bytes(vec![framed(&data(&vec![b'x'; 7 << 20]))]));
    let asked = [("nodes", "127.0.0.1")];
    let answer = client.send(DMESG, &asked, full(framed(&[]))).await.unwrap();
    let mut body = answer.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(node.proxy.memory.in_use() >= 7 << 20);
    drop(body);
    node.is_quiet().await;
}

#[tokio::test]
async fn long_answers_are_merged_up_to_the_memory_quota() {
    let cluster = Cluster::new();
    let node = cluster.node(Setup::default()).await;
    let client = cluster.client(&node, &["os:reader"]).await;
    node.machined.now(long(7 << 20));
    let outcome = async |nodes: &str| {
        let answered = client.call(HOSTNAME, &[("nodes", nodes)], &[]).await;
        assert!(answered.bytes.len() <= MAX_MESSAGE + 5);
        let reply: Vec<api::HostnameResponse> = answered.messages();
        let codes = reply[0].messages.iter().map(|row| {
            let status = row.metadata.as_ref().unwrap().status.as_ref();
            assert_eq!(row.hostname.is_empty(), status.is_some());
            status.map(|status| Code::from(status.code))
        });
        codes.collect::<Vec<_>>()
    };
    assert_eq!(outcome("127.0.0.1").await, [None]);
    assert_eq!(outcome("127.0.0.1,127.0.0.2").await, [None, None]);
    let three = outcome("127.0.0.1,127.0.0.2,127.0.0.3").await;
    let failed: Vec<_> = three.iter().flatten().collect();
    assert_eq!(failed, [&Code::ResourceExhausted]);
    node.is_quiet().await;
    // A call to a single node passes an answer of any length.
    let alone = client.call(HOSTNAME, &[("node", "127.0.0.1")], &[]).await;
    assert_eq!(alone.messages::<api::HostnameResponse>().len(), 1);
}
