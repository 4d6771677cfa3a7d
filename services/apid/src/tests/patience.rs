//! Timeouts: of silent nodes, and of streams whose certificate is no longer accepted.

use std::net::SocketAddr;
use std::time::Duration;

use corten_api::common::Data;
use corten_api::machine as api;
use http_body_util::BodyExt as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::client::full;
use super::routing::{node, rows};
use super::support::{Cluster, Manner, Setup, data, write_identity};
use crate::frames::framed;

const MEMORY: &str = "/machine.MachineService/Memory";
const DMESG: &str = "/machine.MachineService/Dmesg";

#[tokio::test]
async fn silent_nodes_do_not_delay_later_nodes() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    let good = node(&cluster, "good", Manner::Answer(2)).await;
    let slow = node(&cluster, "slow", Manner::Silent).await;
    let reader = cluster.client(&entry, &["os:reader"]).await;
    // More nodes than are connected to at once, and more calls than one connection has slots.
    let mut asked = vec![("nodes", "slow"); 150];
    asked.push(("nodes", "good"));
    asked.push(("grpc-timeout", "8S"));
    let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
    let rows = rows(&reply[0]);
    assert_eq!(rows.len(), 151);
    assert_eq!(rows[0].1, Err(Code::DeadlineExceeded));
    assert_eq!(rows[150], ("good".to_owned(), Ok(2)));
    for node in [&entry, &good, &slow] {
        node.is_quiet().await;
    }
}

#[tokio::test]
async fn own_answer_does_not_wait_for_unreachable_nodes() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    // Accepts connections but does not speak TLS.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    cluster.name("mute", mute.local_addr().unwrap());
    let reader = cluster.client(&entry, &["os:reader"]).await;
    // More nodes than are connected to at once, and a deadline shorter than the connect timeout.
    let mut asked = vec![("nodes", "mute"); 130];
    asked.push(("nodes", "127.0.0.1"));
    asked.push(("grpc-timeout", "3S"));
    let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
    let rows = rows(&reply[0]);
    assert_eq!(rows[0].1, Err(Code::DeadlineExceeded));
    assert_eq!(rows[130], ("127.0.0.1".to_owned(), Ok(1)));
}

/// A proxy to `address` that forwards nothing until `may_go_on` is true.
async fn detour(address: SocketAddr, may_go_on: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut may_go_on = may_go_on.clone();
            tokio::spawn(async move {
                may_go_on.wait_for(|may| *may).await.unwrap();
                let mut far = TcpStream::connect(address).await.unwrap();
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    here
}

#[tokio::test]
async fn slow_reader_does_not_block_other_callers_of_a_node() {
    let cluster = Cluster::new();
    let line = data(&[b'x'; 1000]).into();
    let entry = node(&cluster, "entry", Manner::Endless(line)).await;
    let far = node(&cluster, "far", Manner::Answer(2)).await;
    let may_go_on = watch::Sender::new(false);
    let detour = detour(far.address, may_go_on.subscribe()).await;
    cluster.name("far", detour);
    let idle = cluster.client(&entry, &["os:reader"]).await;
    let nodes = [("nodes", "127.0.0.1,far")];
    let unread = idle.send(DMESG, &nodes, full(framed(&[]))).await.unwrap();
    // Until this node's lines have filled the caller's window, while the other node is still being connected to.
    sleep(Duration::from_millis(500)).await;
    may_go_on.send_replace(true);
    let other = cluster.client(&entry, &["os:reader"]).await;
    let asked = other.call(MEMORY, &[("node", "far")], &[]);
    let answered = timeout(Duration::from_secs(60), asked).await.unwrap();
    let reply: Vec<api::MemoryResponse> = answered.messages();
    assert_eq!(reply[0].messages[0].meminfo.as_ref().unwrap().memtotal, 2);
    drop(unread);
    for node in [&entry, &far] {
        node.is_quiet().await;
    }
}

#[tokio::test]
async fn stream_that_does_not_begin_fails_alone() {
    let cluster = Cluster::new();
    let setup = Setup {
        name: "entry",
        patience: Duration::from_secs(3),
        ..Setup::default()
    };
    let entry = cluster.node(setup).await;
    let mute = node(&cluster, "mute", Manner::Mute).await;
    let reader = cluster.client(&entry, &["os:reader"]).await;
    // A call without a deadline.
    let asked = [("nodes", "127.0.0.1,mute")];
    let lines: Vec<Data> = reader.call(DMESG, &asked, &[]).await.messages();
    let metadata = |line: &Data| line.metadata.clone().unwrap();
    let of_mute = lines
        .iter()
        .filter(|line| metadata(line).hostname == "mute");
    let codes = of_mute.map(|line| metadata(line).status.map(|status| Code::from(status.code)));
    assert_eq!(codes.collect::<Vec<_>>(), [Some(Code::DeadlineExceeded)]);
    assert_eq!(lines.len(), 3 + 1);
    for node in [&entry, &mute] {
        node.is_quiet().await;
    }
}

#[tokio::test]
async fn streams_end_when_their_certificate_is_no_longer_accepted() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Silent).await;
    let b = node(&cluster, "b", Manner::Silent).await;
    let reader = cluster.client(&a, &["os:reader"]).await;
    let mut streams = Vec::new();
    for asked in [&[][..], &[("node", "b")], &[("nodes", "a,b")]] {
        let stream = reader.send(DMESG, asked, full(framed(&[]))).await.unwrap();
        streams.push(stream.into_body());
    }
    let mut answering = b.machined.answering.subscribe();
    answering.wait_for(|calls| *calls == 2).await.unwrap();
    // The CA is withdrawn; the next call is refused.
    let next = cluster.with_new_ca();
    write_identity(a.directory.path(), &next.ca, "a", true);
    let refused = reader.call(MEMORY, &[], &[]).await.status;
    assert_eq!(refused.code(), Code::Unauthenticated);
    for stream in streams {
        stream.collect().await.unwrap_err();
    }
    for node in [&a, &b] {
        node.is_quiet().await;
    }
}
