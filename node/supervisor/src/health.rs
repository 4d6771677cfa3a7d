//! Health checks of running services: a request that a working service answers. Only the check's own task waits for the
//! answer, up to the declared timeout.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_base::unix;
use corten_etcd::check_member;
use corten_resources::controller::with_causes as describe;
use http::uri::PathAndQuery;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use tonic::Request;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

/// HTTP status of a healthy service (RFC 9110, section 15.3.1).
const OK: &[u8] = b"200";
/// Method and healthy status of gRPC's health service (grpc/health/v1/health.proto).
const CHECK: &str = "/grpc.health.v1.Health/Check";
const SERVING: i32 = 1;
/// Timeout of a call of etcd. etcd itself gives up after 7 s and says why, such as that no member leads.
const ANSWER_OF_ETCD: Duration = Duration::from_secs(8);
/// Delay before the retry of a request that machined could not send.
const AGAIN: Duration = Duration::from_secs(1);

type Trouble = Box<dyn Error + Send + Sync>;

/// A health check and its schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The request.
    pub probe: Probe,
    /// Delay from the service's start to the first check.
    pub initial_delay: Duration,
    /// Delay from an answer or a timeout to the next check.
    pub interval: Duration,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Number of consecutive failures that restart the service; `None` never restarts it.
    pub restart_after: Option<u32>,
}

/// A request of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The server notices that a client connects and hangs up. A successful connect alone proves nothing: the kernel
    /// accepts connections even for a program that hangs.
    Tcp(SocketAddr),
    /// Same as `Tcp`, on a Unix socket.
    Unix(PathBuf),
    /// The web server at the address answers 200 to a GET of the path.
    Http(SocketAddr, &'static str),
    /// The member of etcd at the address is healthy ([`check_member`]).
    Etcd {
        /// Where the member serves clients.
        address: SocketAddr,
        /// Directory of the node's credentials for it.
        secrets: PathBuf,
    },
    /// The gRPC health service on this socket reports that everything serves.
    Grpc(PathBuf),
}

impl HealthCheck {
    /// Runs the check once.
    ///
    /// # Errors
    /// The service answers late or badly; the text is human-readable.
    pub async fn run(&self) -> Result<(), String> {
        loop {
            match timeout(self.timeout, self.probe.ask()).await {
                Ok(Ok(())) => return Ok(()),
                // A lack of resources in machined proves nothing about the service.
                Ok(Err(error)) if cannot_ask(&*error) => sleep(AGAIN).await,
                Ok(Err(error)) => return Err(describe(&*error)),
                Err(_) => return Err(format!("no answer within {:?}", self.timeout)),
            }
        }
    }
}

impl Probe {
    async fn ask(&self) -> Result<(), Trouble> {
        match self {
            Probe::Tcp(address) => hang_up(TcpStream::connect(address).await?).await,
            Probe::Unix(socket) => hang_up(UnixStream::connect(socket).await?).await,
            Probe::Http(address, path) => return get(*address, path).await,
            Probe::Etcd { address, secrets } => {
                let member = address.to_string();
                return Ok(check_member(&member, secrets, ANSWER_OF_ETCD).await?);
            }
            Probe::Grpc(socket) => return serves(socket).await,
        }
        Ok(())
    }
}

/// Waits until the server reacts to the hang-up in any way.
async fn hang_up(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    // An error means that the server hung up first.
    let _ = stream.shutdown().await;
    let _ = stream.read(&mut [0]).await;
}

async fn get(address: SocketAddr, path: &str) -> Result<(), Trouble> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    // RFC 9112, section 4: the version, a space, three digits.
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    match start.strip_prefix(b"HTTP/1.1 ") {
        Some(status) if status == OK => Ok(()),
        Some(status) => Err(format!("it answers with status {}", status.escape_ascii()).into()),
        None => Err("it does not speak HTTP".into()),
    }
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    /// Service name; empty asks for all.
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    status: i32,
}

async fn serves(socket: &Path) -> Result<(), Trouble> {
    let mut client = Grpc::new(unix::connect(socket).await?);
    client.ready().await?;
    let codec = ProstCodec::<Question, Answer>::default();
    let question = Request::new(Question::default());
    let path = PathAndQuery::from_static(CHECK);
    let answer = client.unary(question, path, codec).await?.into_inner();
    if answer.status == SERVING {
        return Ok(());
    }
    Err(format!(
        "it reports that it is not serving (status {})",
        answer.status
    )
    .into())
}

/// Whether the error is a lack of file descriptors or memory.
fn cannot_ask(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let errno = error.downcast_ref().and_then(Errno::from_io_error);
        if matches!(
            errno,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
        ) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
