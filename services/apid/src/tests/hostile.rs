//! Random bytes from callers and other nodes: no panic and no leak.

use bytes::Bytes;
use corten_api::common::Data;
use corten_api::machine as api;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::Frame;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};

use super::support::{Cluster, Manner, Setup, data, memory_reply};
use crate::frames::{Frames, Memory, framed};
use crate::quota::{Quota, holder};
use crate::reply::BoxError;
use crate::{local, merge, targets};

const MEMORY: &str = "/machine.MachineService/Memory";
const DMESG: &str = "/machine.MachineService/Dmesg";

/// Keys and values.
type Pairs = Vec<(&'static str, Vec<u8>)>;

/// A runner of as many cases as the environment asks for (`make fuzz`), else `cases`.
fn runner(cases: u32) -> TestRunner {
    let asked = Config {
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(if std::env::var_os("PROPTEST_CASES").is_some() {
        asked
    } else {
        Config { cases, ..asked }
    })
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Bytes, sometimes valid ones.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(any::<u8>(), 0..20).prop_map(|message| framed(&message).to_vec()),
        Just(framed(&memory_reply(9)).to_vec()),
        Just(framed(&data(b"line\n")).to_vec()),
        vec(
            prop_oneof![Just(0u8), Just(1), Just(10), Just(18), any::<u8>()],
            0..60
        )
        .prop_map(|message| framed(&message).to_vec()),
    ]
}

fn chunks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(bytes(), 0..6)
}

#[test]
fn frames_of_arbitrary_bytes_end_and_release_their_memory() {
    let runtime = runtime();
    let run = |chunks: Vec<Vec<u8>>| {
        let quota = Quota::new(100, 100, 0);
        let memory = Memory {
            quota: quota.clone(),
            holder: holder("10.0.0.1"),
        };
        let total: usize = chunks.iter().map(Vec::len).sum();
        let parts = chunks
            .into_iter()
            .map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(chunk))));
        let body = StreamBody::new(stream::iter(parts.collect::<Vec<_>>()));
        let mut frames = Frames::new(body, memory);
        let mut found = 0;
        while let Ok(Some(message)) = runtime.block_on(frames.next()) {
            found += message.len() + 5;
        }
        assert!(found <= total);
        drop(frames);
        assert_eq!(quota.in_use(), 0);
        Ok(())
    };
    runner(1000).run(&chunks(), run).unwrap();
}

#[test]
fn labelled_replies_of_arbitrary_bytes_decode_and_name_their_node() {
    let run = |reply: Vec<u8>| {
        if api::HostnameResponse::decode(reply.as_slice()).is_ok()
            && let Some(labelled) = merge::labelled_reply(&reply, &merge::label_of("a"))
        {
            let labelled = api::HostnameResponse::decode(labelled.as_slice()).unwrap();
            for row in labelled.messages {
                assert_eq!(row.metadata.unwrap().hostname, "a");
            }
        }
        if Data::decode(reply.as_slice()).is_ok() {
            let labelled = [reply, merge::label_of("a")].concat();
            let labelled = Data::decode(labelled.as_slice()).unwrap();
            assert_eq!(labelled.metadata.unwrap().hostname, "a");
        }
        Ok(())
    };
    let replies = bytes().prop_map(|bytes| bytes.get(5..).unwrap_or_default().to_vec());
    runner(2000).run(&replies, run).unwrap();
}

/// Metadata with apid's keys, and any values that HTTP/2 allows.
fn metadata() -> impl Strategy<Value = Pairs> {
    let key = prop_oneof![
        Just("node"),
        Just("nodes"),
        Just("proxyfrom"),
        Just("talos-role"),
        Just("grpc-timeout"),
        Just("grpc-encoding"),
    ];
    let value = prop_oneof![
        vec(any::<u8>(), 0..40),
        "[a-z0-9.:,%\\[\\]-]{0,40}".prop_map(String::into_bytes),
        "(127.0.0.1|node|a|::1)(,(127.0.0.1|node|b))?".prop_map(String::into_bytes),
        "[0-9]{1,9}[HMSmunx]".prop_map(String::into_bytes),
    ];
    vec((key, value), 0..6)
}

fn headers(pairs: &[(&'static str, Vec<u8>)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (key, value) in pairs {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(key), value);
        }
    }
    headers
}

#[test]
fn metadata_of_arbitrary_bytes_names_hosts_or_is_refused() {
    let run = |pairs: Pairs| {
        let targets = match targets::of(&headers(&pairs), MEMORY, false) {
            Ok(targets::Targets::One(node)) => vec![node],
            Ok(targets::Targets::Many(nodes, _)) => nodes,
            Ok(targets::Targets::Here) | Err(_) => Vec::new(),
        };
        for node in targets {
            let reached = [10, 0, 0, 1].into();
            local::is_this_node(&node, reached, Some(&node));
            assert!(
                !local::bare(&node).contains(['[', ']', '%', ',', ' ']),
                "{node}"
            );
        }
        Ok(())
    };
    runner(5000).run(&metadata(), run).unwrap();
}

#[test]
fn arbitrary_calls_are_answered_or_cut_off_and_leak_nothing() {
    let runtime = runtime();
    let (cluster, node) = runtime.block_on(async {
        let cluster = Cluster::new();
        let node = cluster.node(Setup::default()).await;
        (cluster, node)
    });
    let run = |(pairs, body, stream): (Pairs, Vec<u8>, bool)| {
        runtime.block_on(async {
            let client = cluster.client(&node, &["os:impersonator"]).await;
            let path = if stream { DMESG } else { MEMORY };
            // The result of the call does not matter here.
            let _ = client.call_bytes(path, &headers(&pairs), body.into()).await;
            node.is_quiet().await;
        });
        Ok(())
    };
    let calls = (metadata(), bytes(), any::<bool>());
    runner(150).run(&calls, run).unwrap();
}

#[test]
fn node_with_arbitrary_answers_does_not_affect_other_nodes() {
    let runtime = runtime();
    let (cluster, entry, liar) = runtime.block_on(async {
        let cluster = Cluster::new();
        let entry = cluster.node(Setup::default()).await;
        let liar = Setup {
            name: "liar",
            ..Setup::default()
        };
        let liar = cluster.node(liar).await;
        (cluster, entry, liar)
    });
    let client = runtime.block_on(cluster.client(&entry, &["os:reader"]));
    let run = |(chunks, stream): (Vec<Vec<u8>>, bool)| {
        let chunks = chunks.into_iter().map(Bytes::from).collect();
        liar.machined.now(Manner::Bytes(chunks));
        let asked = [("nodes", "liar"), ("nodes", "127.0.0.1")];
        runtime.block_on(async {
            if stream {
                let lines: Vec<Data> = client.call(DMESG, &asked, &[]).await.messages();
                let of_good = lines
                    .iter()
                    .filter(|line| line.metadata.as_ref().unwrap().hostname == "127.0.0.1");
                assert_eq!(of_good.count(), 3);
            } else {
                let reply: Vec<api::MemoryResponse> =
                    client.call(MEMORY, &asked, &[]).await.messages();
                let good = reply[0].messages.last().unwrap();
                assert_eq!(good.metadata.as_ref().unwrap().hostname, "127.0.0.1");
                assert_eq!(good.meminfo.as_ref().unwrap().memtotal, 4096);
            }
            entry.is_quiet().await;
            liar.is_quiet().await;
        });
        Ok(())
    };
    runner(150).run(&(chunks(), any::<bool>()), run).unwrap();
}
