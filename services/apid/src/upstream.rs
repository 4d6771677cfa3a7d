//! The connection to machined: one, shared by all calls, made when needed.

use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::Status;

use crate::reply::Body;

/// machined is on this machine: it accepts at once or something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// Flow-control windows: one large message must not wait for round trips.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Upstream {
    socket: PathBuf,
    connection: Mutex<Option<SendRequest<Body>>>,
}

impl Upstream {
    pub(crate) fn new(socket: PathBuf) -> Upstream {
        Upstream {
            socket,
            connection: Mutex::new(None),
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, Status> {
        let mut connection = timeout(PATIENCE, self.connect())
            .await
            .map_err(|_| away())??;
        connection.send_request(request).await.map_err(|error| {
            eprintln!("apid: machined: {error}");
            away()
        })
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Status> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_mut()
            && connection.ready().await.is_ok()
        {
            return Ok(connection.clone());
        }
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            eprintln!(
                "apid: cannot reach machined at {}: {error}",
                self.socket.display()
            );
            away()
        })?;
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| away())?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                eprintln!("apid: the connection to machined ended: {error}");
            }
        });
        *slot = Some(sender.clone());
        Ok(sender)
    }
}

fn away() -> Status {
    Status::unavailable("machined does not answer")
}
