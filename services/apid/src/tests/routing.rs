//! Calls for other nodes: one, several, and nodes that misbehave.

use std::net::SocketAddr;

use bytes::Bytes;
use corten_api::common::{Data, Metadata};
use corten_api::machine as api;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::net::TcpListener;
use tonic::Code;

use super::client::{Client, full};
use super::support::{Cluster, Manner, Node, Setup, data, memory_reply, write_identity};
use crate::fanout::FIELDS;
use crate::frames::framed;
use crate::merge;
use crate::reply::{Body, BoxError};

const MEMORY: &str = "/machine.MachineService/Memory";
const HOSTNAME: &str = "/machine.MachineService/Hostname";
const DMESG: &str = "/machine.MachineService/Dmesg";
const APPLY: &str = "/machine.MachineService/ApplyConfiguration";
const REBOOT: &str = "/machine.MachineService/Reboot";

pub(super) async fn node(cluster: &Cluster, name: &'static str, manner: Manner) -> Node {
    let setup = Setup {
        name,
        manner,
        ..Setup::default()
    };
    cluster.node(setup).await
}

/// An address without a listener.
async fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// The rows of a merged reply: each node's memory, or its error.
pub(super) fn rows(reply: &api::MemoryResponse) -> Vec<(String, Result<u64, Code>)> {
    reply
        .messages
        .iter()
        .map(|row| {
            let metadata = row.metadata.clone().unwrap();
            let outcome = match (&row.meminfo, metadata.status) {
                (Some(info), None) => Ok(info.memtotal),
                (None, Some(status)) => Err(Code::from(status.code)),
                odd => panic!("{odd:?}"),
            };
            (metadata.hostname, outcome)
        })
        .collect()
}

#[tokio::test]
async fn call_is_forwarded_with_the_roles_of_the_caller() {
    let cluster = Cluster::new();
    let (a, b) = (
        node(&cluster, "a", Manner::Answer(1)).await,
        node(&cluster, "b", Manner::Answer(2)).await,
    );
    let reader = cluster.client(&a, &["os:reader"]).await;
    let reply = reader.call(MEMORY, &[("node", "b")], &[]).await;
    let reply: Vec<api::MemoryResponse> = reply.messages();
    assert_eq!(reply[0].messages[0].meminfo.as_ref().unwrap().memtotal, 2);
    // The answer of one node has no label; the client knows which node it asked.
    assert!(reply[0].messages[0].metadata.is_none());
    let claimed = [("node", "b"), ("talos-role", "os:admin")];
    let reply = reader.call(HOSTNAME, &claimed, &[]).await;
    let reply: Vec<api::HostnameResponse> = reply.messages();
    assert_eq!(reply[0].messages[0].hostname, "os:reader");
    assert!(a.machined.seen().is_empty());
    assert!(b.machined.seen().iter().all(|seen| !seen.proxied));

    // A stream and its status are passed on unchanged.
    let lines = reader.call(DMESG, &[("node", "b")], &[]).await;
    assert_eq!(lines.status.code(), Code::Aborted);
    let all = [framed(&data(b"one\n")), framed(&data(b"two\n"))].concat();
    assert_eq!(lines.bytes, all);

    // A forbidden call never reaches the other node.
    let before = b.machined.seen().len();
    let refused = reader.call(APPLY, &[("node", "b")], &[]).await;
    assert_eq!(refused.status.code(), Code::PermissionDenied);
    assert_eq!(b.machined.seen().len(), before);
    let admin = cluster.client(&a, &["os:admin"]).await;
    let config = vec![7; 9 << 20];
    let done = admin.call(APPLY, &[("node", "b")], &config).await;
    let done: Vec<api::ApplyConfigurationResponse> = done.messages();
    assert_eq!(done[0].messages[0].mode_details, config.len().to_string());
}

#[tokio::test]
async fn several_single_targets_and_invalid_names_are_refused() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let reader = cluster.client(&a, &["os:reader"]).await;
    for odd in [
        &[("node", "b"), ("node", "c")][..],
        &[("node", "b:50000")],
        &[("nodes", "b"), ("nodes", "http://c")],
    ] {
        let refused = reader.call(MEMORY, odd, &[]).await;
        assert_eq!(refused.status.code(), Code::InvalidArgument, "{odd:?}");
    }
    let image = "/machine.ImageService/List";
    let refused = reader.call(image, &[("nodes", "a")], &[]).await;
    assert_eq!(refused.status.code(), Code::InvalidArgument);
    // A forwarded call is answered here whatever its routing metadata.
    let here = [("proxyfrom", "b"), ("node", "c")];
    assert_eq!(
        reader.call(MEMORY, &here, &[]).await.status.code(),
        Code::Ok
    );
}

#[tokio::test]
async fn worker_answers_for_itself_and_forwards_no_calls() {
    let cluster = Cluster::new();
    let setup = Setup {
        name: "worker",
        control_plane: false,
        ..Setup::default()
    };
    let worker = cluster.node(setup).await;
    let b = node(&cluster, "b", Manner::Answer(2)).await;
    let admin = cluster.client(&worker, &["os:admin"]).await;
    for foreign in [
        &[("node", "b")][..],
        &[("nodes", "b")],
        &[("nodes", "worker"), ("nodes", "b")],
    ] {
        let refused = admin.call(MEMORY, foreign, &[]).await.status;
        assert_eq!(refused.code(), Code::PermissionDenied, "{foreign:?}");
        assert!(refused.message().starts_with("no request forwarding"));
    }
    let own = [("nodes", "worker"), ("nodes", "127.0.0.1")];
    let reply: Vec<api::MemoryResponse> = admin.call(MEMORY, &own, &[]).await.messages();
    let expected = ["worker", "127.0.0.1"].map(|name| (name.to_owned(), Ok(4096)));
    assert_eq!(rows(&reply[0]), expected);
    assert!(b.machined.seen().is_empty());
}

#[tokio::test]
async fn dead_slow_and_misbehaving_nodes_fail_only_their_own_rows() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    let good = node(&cluster, "good", Manner::Answer(2)).await;
    let slow = node(&cluster, "slow", Manner::Silent).await;
    let liar = node(&cluster, "liar", Manner::Silent).await;
    cluster.name("dead", nowhere().await);
    let reader = cluster.client(&entry, &["os:reader"]).await;
    let nodes = "127.0.0.1,dead,slow,unknown,good";
    let asked = [("nodes", nodes), ("grpc-timeout", "4S")];
    let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
    let unavailable = Err(Code::Unavailable);
    let expected = [
        Ok(1),
        unavailable,
        Err(Code::DeadlineExceeded),
        unavailable,
        Ok(2),
    ];
    let expected: Vec<_> = nodes.split(',').map(str::to_owned).zip(expected).collect();
    assert_eq!(rows(&reply[0]), expected);

    let asked = [("nodes", "liar"), ("nodes", "good")];
    let whole = memory_reply(9);
    for lie in [
        // No frame; a truncated frame; a frame longer than the limit.
        vec![Bytes::from_static(b"HTTP/1.1 200 OK")],
        vec![framed(&whole).slice(..7)],
        vec![Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff])],
        // Nothing; two replies; another type; a list with an unreadable element; and a very long one.
        Vec::new(),
        vec![framed(&whole), framed(&whole)],
        vec![framed(b"something else")],
        vec![framed(&[0x0a, 0x03, 0x12, 0x05, 0x00])],
        vec![framed(&merge::wrapped(&[0x12, 0x00].repeat(FIELDS)))],
    ] {
        liar.machined.now(Manner::Bytes(lie.clone()));
        let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
        let [(_, of_liar), (_, of_good)] = &rows(&reply[0])[..] else {
            panic!("{lie:?}: {reply:?}")
        };
        assert!(of_liar.is_err() && *of_good == Ok(2), "{lie:?}: {reply:?}");
    }
    // A lie: the element gets the label of the node that sent it.
    let lie = api::Memory {
        metadata: Some(Metadata {
            hostname: "good".into(),
            ..Default::default()
        }),
        meminfo: Some(api::MemInfo::default()),
    };
    let reply = api::MemoryResponse {
        messages: vec![lie],
    };
    let frame = framed(&prost::Message::encode_to_vec(&reply));
    liar.machined.now(Manner::Bytes(vec![frame]));
    let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
    assert_eq!(
        rows(&reply[0]),
        [("liar".to_owned(), Ok(0)), ("good".to_owned(), Ok(2))]
    );
    // An endless stream.
    liar.machined.now(Manner::Endless(memory_reply(9).into()));
    let reply: Vec<api::MemoryResponse> = reader.call(MEMORY, &asked, &[]).await.messages();
    assert_eq!(
        rows(&reply[0]),
        [
            ("liar".to_owned(), Err(Code::Internal)),
            ("good".to_owned(), Ok(2))
        ]
    );
    for node in [&entry, &good, &slow, &liar] {
        node.is_quiet().await;
    }
}

#[tokio::test]
async fn streams_are_merged_with_labels_and_fail_independently() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    let good = node(&cluster, "good", Manner::Answer(2)).await;
    let liar = node(
        &cluster,
        "liar",
        Manner::Bytes(vec![framed(&data(b"x")), framed(b"\xff")]),
    )
    .await;
    let slow = node(&cluster, "slow", Manner::Silent).await;
    cluster.name("dead", nowhere().await);
    let reader = cluster.client(&entry, &["os:reader"]).await;
    let nodes = "127.0.0.1,dead,slow,liar,good";
    let asked = [("nodes", nodes), ("grpc-timeout", "4S")];
    let lines: Vec<Data> = reader.call(DMESG, &asked, &[]).await.messages();
    let of = |node: &str| -> Vec<(String, Option<Code>)> {
        let metadata = |line: &Data| line.metadata.clone().unwrap();
        let own = lines.iter().filter(|line| metadata(line).hostname == node);
        own.map(|line| {
            let code = metadata(line).status.map(|status| Code::from(status.code));
            (String::from_utf8(line.bytes.clone()).unwrap(), code)
        })
        .collect()
    };
    let said = |text: &str| (text.to_owned(), None);
    let failed = |code| (String::new(), Some(code));
    let whole = [said("one\n"), said("two\n"), failed(Code::Aborted)];
    assert_eq!(of("127.0.0.1"), whole);
    assert_eq!(of("good"), whole);
    assert_eq!(of("dead"), [failed(Code::Unavailable)]);
    assert_eq!(of("slow"), [failed(Code::DeadlineExceeded)]);
    assert_eq!(of("liar"), [said("x"), failed(Code::Internal)]);
    assert_eq!(lines.len(), 3 + 3 + 1 + 1 + 2);
    for node in [&entry, &good, &slow, &liar] {
        node.is_quiet().await;
    }
}

#[tokio::test]
async fn client_hang_up_ends_its_streams_on_every_node() {
    let cluster = Cluster::new();
    let endless = || Manner::Endless(data(&[b'x'; 1000]).into());
    let entry = node(&cluster, "entry", endless()).await;
    let other = node(&cluster, "other", endless()).await;
    let silent = node(&cluster, "silent", Manner::Silent).await;
    let reader = cluster.client(&entry, &["os:reader"]).await;
    for asked in [
        &[("nodes", "127.0.0.1,other,silent")][..],
        &[("node", "other")],
        &[],
    ] {
        let response = reader.send(DMESG, asked, full(framed(&[]))).await.unwrap();
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        for node in [&entry, &other, &silent] {
            node.is_quiet().await;
        }
    }
}

#[tokio::test]
async fn node_of_another_ca_or_name_gets_no_call() {
    let cluster = Cluster::new();
    let entry = node(&cluster, "entry", Manner::Answer(1)).await;
    let stranger = Cluster::new();
    let stranger = node(&stranger, "stranger", Manner::Answer(2)).await;
    let other = node(&cluster, "other", Manner::Answer(3)).await;
    cluster.name("stranger", stranger.address);
    cluster.name("alias", other.address);
    let admin = cluster.client(&entry, &["os:admin"]).await;
    for name in ["stranger", "alias"] {
        let refused = admin.call(MEMORY, &[("node", name)], &[]).await.status;
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert!(
            refused
                .message()
                .starts_with(&format!("{name}: not a trusted node"))
        );
    }
    assert!(stranger.machined.seen().is_empty() && other.machined.seen().is_empty());
}

#[tokio::test]
async fn node_connections_are_shared_and_reopened_with_a_new_certificate() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let b = node(&cluster, "b", Manner::Answer(2)).await;
    let reader = cluster.client(&a, &["os:reader"]).await;
    let call = async |client: &Client| {
        let reply = client.call(MEMORY, &[("node", "b")], &[]).await;
        assert_eq!(reply.status.code(), Code::Ok, "{:?}", reply.status);
    };
    futures_util::future::join_all((0..20).map(|_| call(&reader))).await;
    assert_eq!(
        (a.proxy.answerers.peers.kept(), b.places.count()),
        (1, (1, 0))
    );
    // The cluster gets a new CA; connections of the old one are useless to it.
    let next = cluster.with_new_ca();
    for (node, name) in [(&a, "a"), (&b, "b")] {
        write_identity(node.directory.path(), &next.ca, name, true);
    }
    let refused = reader.call(MEMORY, &[("node", "b")], &[]).await.status;
    assert_eq!(refused.code(), Code::Unauthenticated);
    // The connection is closed, so that the client reconnects with another certificate.
    while reader.try_call(MEMORY, &[], &[]).await.is_ok() {}
    call(&next.client(&a, &["os:reader"]).await).await;
    assert_eq!(a.proxy.answerers.peers.kept(), 1);
}

#[tokio::test]
async fn request_stream_goes_to_exactly_one_node() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let b = node(&cluster, "b", Manner::Answer(2)).await;
    let recover = "/machine.MachineService/EtcdRecover";
    let admin = cluster.client(&a, &["os:admin"]).await;
    let body = || {
        let parts = (0..40).map(|_| Ok::<_, BoxError>(Frame::data(framed(&data(&[7; 30_000])))));
        Body::new(StreamBody::new(stream::iter(parts.collect::<Vec<_>>())))
    };
    let one = admin
        .send(recover, &[("nodes", "b")], body())
        .await
        .unwrap();
    one.into_body().collect().await.unwrap();
    assert!(b.machined.seen()[0].length > 40 * 30_000);
    let more = [("nodes", "b"), ("nodes", "127.0.0.1")];
    let refused = admin.send(recover, &more, body()).await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "3");
    assert!(a.machined.seen().is_empty());
}

#[tokio::test]
async fn changing_calls_are_audited_without_their_content() {
    let cluster = Cluster::new();
    let a = node(&cluster, "a", Manner::Answer(1)).await;
    let b = node(&cluster, "b", Manner::Answer(2)).await;
    let own = cluster.certificate(&["os:operator"]);
    let der = corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap();
    let serial = corten_pki::serial(&der[0]).unwrap();
    let tls = super::client::tls(Some(&cluster.ca), Some(&own));
    let operator = Client::connect(a.address, tls).await.unwrap();
    operator.call(MEMORY, &[], &[]).await;
    operator.call(APPLY, &[], b"s3cret").await;
    operator.call(REBOOT, &[("node", "b")], &[]).await;
    operator
        .call(REBOOT, &[("nodes", "b,dead"), ("x", "s3cret")], b"")
        .await;
    a.machined.now(Manner::Silent);
    let hung_up = operator.send(REBOOT, &[], full(framed(&[]))).await.unwrap();
    drop(hung_up);
    a.is_quiet().await;
    let lines = a.audit.lock().unwrap().clone();
    let head = |method: &str| {
        format!("audit: method={method} roles=os:operator serial={serial} from=127.0.0.1:")
    };
    let expected = [
        (APPLY, "via=- nodes=- result=PermissionDenied"),
        (REBOOT, "via=- nodes=b result=Ok"),
        (REBOOT, "via=- nodes=b,dead result=Ok failed=1/2"),
        (REBOOT, "via=- nodes=- result=Cancelled"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (method, end)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(&head(method)) && line.ends_with(end),
            "{line}"
        );
        assert!(!line.contains("s3cret"));
    }
    // The other node knows the forwarding node and the caller's roles.
    let there = b.audit.lock().unwrap().clone();
    assert_eq!(there.len(), 2);
    for line in there {
        assert!(
            line.contains(" roles=os:operator ") && line.contains(" via=127.0.0.1:50000 "),
            "{line}"
        );
        // The original caller is known from the certificate that came with the call, besides the node's own.
        assert!(line.contains(&format!(" for={serial} nodes=")), "{line}");
        assert!(!line.contains(&format!(" serial={serial} ")), "{line}");
    }
}
