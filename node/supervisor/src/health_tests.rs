//! Health checks of servers that answer well, badly and not at all.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Response, Status};
use tower::{Service, service_fn};

use super::*;

/// Timeout for servers that answer: a busy machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(60);

async fn ask_within(timeout: Duration, probe: Probe) -> Result<(), String> {
    let check = HealthCheck {
        probe,
        initial_delay: Duration::ZERO,
        interval: Duration::ZERO,
        timeout,
        restart_after: None,
    };
    check.run().await
}

async fn ask(probe: Probe) -> Result<(), String> {
    ask_within(PATIENCE, probe).await
}

#[tokio::test]
async fn socket_probe_succeeds_when_the_server_notices_a_hang_up() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = UnixListener::bind(&socket).unwrap();
    // The kernel has accepted the connections, but the program does not react.
    let soon = Duration::from_millis(50);
    for probe in [Probe::Tcp(address), Probe::Unix(socket.clone())] {
        let silent = ask_within(soon, probe).await;
        assert_eq!(silent.unwrap_err(), "no answer within 50ms");
    }
    tokio::spawn(async move {
        loop {
            let mut answered = tcp.accept().await.unwrap().0;
            // A TLS server reacts like this to a client without TLS.
            answered.write_all(b"alert").await.unwrap();
        }
    });
    tokio::spawn(async move { while unix.accept().await.is_ok() {} });
    assert_eq!(ask(Probe::Tcp(address)).await, Ok(()));
    assert_eq!(ask(Probe::Unix(socket)).await, Ok(()));
    let missing = ask(Probe::Unix(directory.path().join("none"))).await;
    assert_eq!(
        missing.unwrap_err(),
        "No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn http_probe_requires_a_success_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let question = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let ask_one_that_says = async |answer: &'static [u8]| {
        let serve = async {
            let mut stream = listener.accept().await.unwrap().0;
            let mut asked = vec![0; question.len()];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(answer).await.unwrap();
            asked
        };
        let (outcome, asked) = tokio::join!(ask(Probe::Http(address, "/healthz")), serve);
        assert_eq!(asked, question.as_bytes());
        outcome
    };
    let good = ask_one_that_says(b"HTTP/1.1 200 OK\r\n\r\n").await;
    assert_eq!(good, Ok(()));
    let cases: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 503 \r\n\r\n", "it answers with status 503"),
        (b"HTTP/1.1 \xff\n0", "it answers with status \\xff\\n0"),
        (b"220 mail.example.org", "it does not speak HTTP"),
        (b"HTTP", "early eof"),
    ];
    for (answer, expected) in cases {
        let bad = ask_one_that_says(answer).await;
        assert_eq!(bad.unwrap_err(), expected);
    }
}

/// A service that answers every call with this status.
#[derive(Debug, Clone)]
struct Says(i32);

impl NamedService for Says {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<http::Request<Body>> for Says {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let status = self.0;
        Box::pin(async move {
            let answer = service_fn(move |question: Request<Question>| async move {
                assert_eq!(question.into_inner().service, "");
                Ok::<_, Status>(Response::new(Answer { status }))
            });
            let codec = ProstCodec::<Answer, Question>::default();
            let mut server = tonic::server::Grpc::new(codec);
            Ok(server.unary(answer, request).await)
        })
    }
}

#[tokio::test]
async fn grpc_probe_requires_the_serving_status() {
    let directory = tempfile::tempdir().unwrap();
    let ask_one_with = async |name: &str, routes: Routes| {
        let socket = directory.path().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let server = Server::builder().add_routes(routes);
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        ask(Probe::Grpc(socket)).await
    };
    let good = ask_one_with("good", Routes::new(Says(1))).await;
    assert_eq!(good, Ok(()));
    let bad = ask_one_with("bad", Routes::new(Says(2))).await;
    let expected = "it reports that it is not serving (status 2)";
    assert_eq!(bad.unwrap_err(), expected);
    let other = ask_one_with("other", Routes::default()).await.unwrap_err();
    assert!(other.to_lowercase().contains("implemented"), "{other}");
    let gone = ask(Probe::Grpc(directory.path().join("gone"))).await;
    let gone = gone.unwrap_err();
    assert!(gone.contains("No such file or directory"), "{gone}");
}

#[tokio::test]
async fn etcd_probe_requires_the_credentials_and_an_answer_of_a_member() {
    let directory = tempfile::tempdir().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let probe = Probe::Etcd {
        address: tcp.local_addr().unwrap(),
        secrets: directory.path().to_owned(),
    };
    let without = ask(probe.clone()).await.unwrap_err();
    assert!(
        without.contains("ca.crt") && without.contains("No such file"),
        "{without}"
    );
    for name in ["ca.crt", "admin.crt", "admin.key"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    drop(tcp);
    let closed = ask(probe).await.unwrap_err();
    assert!(closed.contains("cannot connect to etcd"), "{closed}");
}

#[test]
fn probe_failure_for_lack_of_resources_is_not_a_service_failure() {
    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Wrapped(#[source] io::Error);
    for ours in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
        assert!(cannot_ask(&Wrapped(ours.into())), "{ours}");
    }
    assert!(!cannot_ask(&Wrapped(Errno::CONNREFUSED.into())));
    assert!(!cannot_ask(&io::Error::other("early")));
}
