//! How long is waited: for nodes that say nothing, and for streams whose certificate is accepted no more.

use std::time::Duration;

use corten_api::common::Data;
use corten_api::machine as api;
use http_body_util::BodyExt as _;
use tonic::Code;

use super::client::full;
use super::routing::{node, rows};
use super::support::{Cluster, Manner, Setup, write_identity};
use crate::frames::framed;

const MEMORY: &str = "/machine.MachineService/Memory";
const DMESG: &str = "/machine.MachineService/Dmesg";

#[tokio::test]
async fn nodes_that_say_nothing_keep_none_behind_them_waiting() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    let good = node(&cluster, "good", Manner::Answer(2)).await;
    let slow = node(&cluster, "slow", Manner::Silent).await;
    let reader = cluster.client(&entry, &["os:reader"]).await;
    // More than are connected to at once, and more than a connection has places for.
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
async fn a_stream_that_does_not_begin_fails_by_itself() {
    let cluster = Cluster::new();
    let setup = Setup {
        name: "entry",
        patience: Duration::from_secs(3),
        ..Setup::default()
    };
    let entry = cluster.node(setup).await;
    let mute = node(&cluster, "mute", Manner::Mute).await;
    let reader = cluster.client(&entry, &["os:reader"]).await;
    // The caller himself says nothing of time.
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
async fn streams_end_with_the_certificate_that_they_were_begun_with() {
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
    // The authority is withdrawn, which the next call is told.
    let next = cluster.with_new_authority();
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
