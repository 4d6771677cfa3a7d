//! Tests the DNS cache between a client and a fake name server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::{A, PTR, SOA};

use hickory_resolver::proto::op::{OpCode, ResponseCode};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::forwarder::{Forwarder, Names, WAITING};
use super::tcp::serve;
use super::upstreams::is_healthy;

/// Any free port.
const ANY: &str = "127.0.0.1:0";

/// A name server that knows `a.test`, denies `b.test` and counts its queries.
async fn name_server() -> (SocketAddr, Arc<AtomicUsize>) {
    name_server_that(Does::Know).await
}

/// What a name server does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Knows `a.test` alone.
    Know,
    /// The same, after a while.
    KnowSlowly,
    /// Knows nothing.
    Deny,
    /// Fails with this code.
    Fail(ResponseCode),
    /// Does not answer.
    Ignore,
}

async fn name_server_that(does: Does) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind(ANY).await.unwrap();
    let address = socket.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..length]).unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let query = asked.queries[0].clone();
            let mut answer = Message::response(asked.metadata.id, OpCode::Query);
            answer.metadata.recursion_available = true;
            let name = query.name().to_lowercase().to_string();
            match does {
                Does::Ignore => continue,
                Does::KnowSlowly => tokio::time::sleep(Duration::from_millis(200)).await,
                Does::Know | Does::Deny | Does::Fail(_) => {}
            }
            if let Does::Fail(code) = does {
                answer.metadata.response_code = code;
            } else if name == "a.test." && does != Does::Deny {
                let data = RData::A(A::new(192, 0, 2, 7));
                let record = Record::from_rdata(query.name().clone(), 300, data);
                answer.add_answer(record);
            } else {
                answer.metadata.response_code = ResponseCode::NXDomain;
                let zone = Name::from_ascii("test.").unwrap();
                let soa = SOA::new(zone.clone(), zone.clone(), 1, 1, 1, 1, 60);
                answer.add_authority(Record::from_rdata(zone, 60, RData::SOA(soa)));
            }
            answer.add_query(query);
            let bytes = answer.to_vec().unwrap();
            socket.send_to(&bytes, from).await.unwrap();
        }
    });
    (address, count)
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// Queries by UDP.
async fn ask(server: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind(ANY).await.unwrap();
    let bytes = question.to_vec().unwrap();
    socket.send_to(&bytes, server).await.unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).await.unwrap();
    let answer = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(answer.metadata.id, question.metadata.id);
    answer
}

/// Queries by TCP, with the length in front.
async fn ask_by_tcp(stream: &mut TcpStream, question: &Message) -> Message {
    let bytes = question.to_vec().unwrap();
    let length = u16::try_from(bytes.len()).unwrap();
    stream.write_u16(length).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut buffer = vec![0; length.into()];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

#[tokio::test]
async fn answers_are_cached_and_a_new_name_server_is_queried_again() {
    let (upstream, count) = name_server().await;
    let forwarder = Forwarder::default();
    let listening = forwarder.listen(ANY.parse().unwrap()).await.unwrap();
    let cache = listening.address;
    // There are no name servers yet.
    let a = question("a.test.", RecordType::A);
    let code = |message: &Message| message.metadata.response_code;
    assert_eq!(code(&ask(cache, &a).await), ResponseCode::ServFail);

    forwarder.ask(&[upstream]).unwrap();
    let mut stream = TcpStream::connect(cache).await.unwrap();
    for answer in [
        ask(cache, &a).await,
        ask_by_tcp(&mut stream, &a).await,
        ask_by_tcp(&mut stream, &a).await,
    ] {
        assert_eq!(code(&answer), ResponseCode::NoError);
        assert_eq!(answer.answers.len(), 1, "{answer}");
        assert_eq!(answer.answers[0].data, RData::A(A::new(192, 0, 2, 7)));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);

    // Negative answers are cached as well.
    let b = question("b.test.", RecordType::A);
    for _ in 0..2 {
        let answer = ask(cache, &b).await;
        assert_eq!(code(&answer), ResponseCode::NXDomain);
        assert_eq!(answer.authorities.len(), 1, "{answer}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);

    let (other, asked) = name_server().await;
    forwarder.ask(&[other]).unwrap();
    ask(cache, &a).await;
    assert_eq!(
        (count.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)),
        (2, 1)
    );
    assert!(is_healthy(other).await);
}

/// The cache of a node with these name servers.
async fn cache_of(servers: &[SocketAddr]) -> (Forwarder, super::Listening) {
    let forwarder = Forwarder::default();
    forwarder.ask(servers).unwrap();
    let listening = forwarder.listen(ANY.parse().unwrap()).await.unwrap();
    (forwarder, listening)
}

#[tokio::test]
async fn next_name_server_is_asked_when_one_fails_or_is_silent() {
    for does in [
        Does::Fail(ResponseCode::ServFail),
        Does::Fail(ResponseCode::Refused),
        Does::Ignore,
    ] {
        let (broken, failed) = name_server_that(does).await;
        let (good, count) = name_server().await;
        let (forwarder, listening) = cache_of(&[broken, good]).await;
        // The second answer is the cache's, for which the broken server is not waited for.
        let mut asked = Vec::new();
        for _ in 0..2 {
            let answer = ask(listening.address, &question("a.test.", RecordType::A)).await;
            assert_eq!(answer.answers.len(), 1, "{answer}");
            asked.push((failed.load(Ordering::SeqCst), count.load(Ordering::SeqCst)));
        }
        assert!(
            asked[0].0 > 0 && asked[0] == asked[1] && asked[0].1 == 1,
            "{asked:?}"
        );

        // One that is known to be broken is not asked, and the cache stays.
        forwarder.ask_last([broken].into());
        for name in ["a.test.", "b.test."] {
            ask(listening.address, &question(name, RecordType::A)).await;
        }
        let now = (failed.load(Ordering::SeqCst), count.load(Ordering::SeqCst));
        assert_eq!(now, (asked[0].0, 2));
    }
}

#[tokio::test]
async fn answer_or_denial_of_the_first_name_server_counts_even_if_the_second_is_faster() {
    let (slow, _) = name_server_that(Does::KnowSlowly).await;
    let (public, count) = name_server_that(Does::Deny).await;
    let (_forwarder, listening) = cache_of(&[slow, public]).await;
    for (name, code) in [
        ("a.test.", ResponseCode::NoError),
        ("b.test.", ResponseCode::NXDomain),
    ] {
        let answer = ask(listening.address, &question(name, RecordType::A)).await;
        assert_eq!(answer.metadata.response_code, code, "{answer}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn name_server_that_refuses_the_root_is_healthy() {
    let (server, _) = name_server_that(Does::Fail(ResponseCode::Refused)).await;
    assert!(is_healthy(server).await);
}

#[tokio::test]
async fn names_that_the_node_knows_are_answered_without_a_name_server() {
    let (upstream, count) = name_server().await;
    let forwarder = Forwarder::default();
    let listening = forwarder.listen(ANY.parse().unwrap()).await.unwrap();
    let cache = listening.address;
    let addresses = ["10.0.0.2", "10.0.0.3"].map(|text| text.parse().unwrap());
    let names = ["n1.test", "n1"].map(str::to_owned).to_vec();
    forwarder.know(Names {
        addresses: [("n1.test".to_owned(), addresses.into())].into(),
        reverse: [
            (addresses[0], names),
            ("10.0.0.0".parse().unwrap(), Vec::new()),
        ]
        .into(),
    });
    let answer = ask(cache, &question("N1.test.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    let data: Vec<&RData> = answer.answers.iter().map(|one| &one.data).collect();
    let expected = [A::new(10, 0, 0, 2), A::new(10, 0, 0, 3)].map(RData::A);
    assert_eq!(data, expected.each_ref());
    assert_eq!(answer.answers[0].ttl, 10);
    let answer = ask(cache, &question("2.0.0.10.in-addr.arpa.", RecordType::PTR)).await;
    let data: Vec<&RData> = answer.answers.iter().map(|one| &one.data).collect();
    let expected = ["n1.test.", "n1."].map(|name| RData::PTR(PTR(name.parse().unwrap())));
    assert_eq!(data, expected.each_ref());

    // Other types, names and addresses are the name server's, and so is a network.
    forwarder.ask(&[upstream]).unwrap();
    for (name, kind) in [
        ("n1.test.", RecordType::AAAA),
        ("a.test.", RecordType::A),
        ("4.0.0.10.in-addr.arpa.", RecordType::PTR),
        ("0.0.10.in-addr.arpa.", RecordType::PTR),
    ] {
        ask(cache, &question(name, kind)).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 4);
    forwarder.know(Names::default());
    let answer = ask(cache, &question("n1.test.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
}

#[tokio::test]
async fn unsupported_queries_and_queries_over_the_limit_are_refused() {
    let (upstream, count) = name_server().await;
    let forwarder = Forwarder::default();
    let listening = forwarder.listen(ANY.parse().unwrap()).await.unwrap();
    let cache = listening.address;
    forwarder.ask(&[upstream]).unwrap();
    for kind in [RecordType::ANY, RecordType::AXFR] {
        let answer = ask(cache, &question("a.test.", kind)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    }
    let _all = forwarder
        .free
        .try_acquire_many(u32::try_from(WAITING).unwrap());
    let answer = ask(cache, &question("a.test.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn concurrent_tcp_connections_are_bounded() {
    let (upstream, _) = name_server().await;
    let forwarder = Forwarder::default();
    forwarder.ask(&[upstream]).unwrap();
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let places = Arc::new(Semaphore::new(1));
    let serving = tokio::spawn(serve(listener, forwarder, places));
    let a = question("a.test.", RecordType::A);
    // With all places taken, a connection closes after its answer.
    let mut first = TcpStream::connect(address).await.unwrap();
    ask_by_tcp(&mut first, &a).await;
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);

    // A client that has not queried yet keeps its place for a while; the next client waits in the kernel's queue.
    let mut slow = TcpStream::connect(address).await.unwrap();
    let mut next = TcpStream::connect(address).await.unwrap();
    let asked =
        tokio::spawn(
            async move { ask_by_tcp(&mut next, &question("a.test.", RecordType::A)).await },
        );
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished());
    ask_by_tcp(&mut slow, &a).await;
    assert_eq!(asked.await.unwrap().answers.len(), 1);

    // An invalid message closes the connection and frees its place.
    let mut broken = TcpStream::connect(address).await.unwrap();
    broken.write_all(&[0, 3, 1, 2, 3]).await.unwrap();
    assert_eq!(broken.read(&mut [0]).await.unwrap(), 0);
    ask_by_tcp(&mut TcpStream::connect(address).await.unwrap(), &a).await;
    serving.abort();
}
