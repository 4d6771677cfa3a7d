//! Connections to machined's socket.

use std::path::PathBuf;

use http::{Request, Response};
use tokio::net::UnixStream;
use tonic::Status;

use crate::answer::Answer;
use crate::connection::{Connection, MACHINEDS};
use crate::link::{Links, describe};
use crate::log_limit::LogLimit;
use crate::reply::Body;

#[derive(Debug)]
pub(crate) struct Upstream {
    socket: PathBuf,
    links: Links,
    failures: LogLimit,
}

impl Upstream {
    pub(crate) fn new(socket: PathBuf) -> Upstream {
        Upstream {
            socket,
            links: Links::default(),
            failures: LogLimit::default(),
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Answer>, Status> {
        self.links
            .send(request, || Box::pin(self.connect()))
            .await
            .map_err(|status| {
                self.failures
                    .say(&format!("machined: {}", status.message()));
                Status::unavailable(
                    "machined on this node does not answer: try again; its console shows why",
                )
            })
    }

    async fn connect(&self) -> Result<Connection, Status> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| Status::unavailable(format!("{}: {error}", self.socket.display())))?;
        Connection::begin(stream, MACHINEDS)
            .await
            .map_err(|error| Status::unavailable(describe(&error)))
    }
}
