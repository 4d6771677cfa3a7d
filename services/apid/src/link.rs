//! The connections to one answerer: opened on demand, shared by calls, replaced when they end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::client::SendRequest;
use http::{Request, Response};
use http_body::Body as _;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::answer::{Answer, Task};
use crate::connection::{Connection, Slot};
use crate::reply::Body;
use crate::upload::upload;

/// Timeout of connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Pause after a failed attempt, during which calls fail at once.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection being opened.
pub(crate) type Connecting<'a> = BoxFuture<'a, Result<Connection, Status>>;

/// A call's slot, and the handle to send it.
type Place = (SendRequest<Bytes>, Slot);

/// All connections to one answerer.
#[derive(Debug, Default)]
pub(crate) struct Links {
    state: Mutex<State>,
    /// Held while connecting; other calls wait for that connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Connection>,
    failed: Option<(Instant, Status)>,
}

impl Links {
    /// Sends a request, on a new connection (`connect`) if necessary, and waits for the head of the answer.
    pub(crate) async fn send<'a>(
        &self,
        request: Request<Body>,
        connect: impl FnOnce() -> Connecting<'a>,
    ) -> Result<Response<Answer>, Status> {
        let (mut sender, slot) = self.open(connect).await?;
        let (head, body) = request.into_parts();
        let head = Request::from_parts(head, ());
        let is_whole = body.is_end_stream();
        let sent = sender.send_request(head, is_whole);
        let (answer, stream) = sent.map_err(|error| unavailable(&error))?;
        let sending = (!is_whole).then(|| Task::spawn(upload(body, stream)));
        let answer = answer.await.map_err(|error| unavailable(&error))?;
        Ok(answer.map(|stream| Answer::new(stream, sending, slot)))
    }

    /// A slot for a call, on a new connection if necessary.
    pub(crate) async fn open<'a>(
        &self,
        connect: impl FnOnce() -> Connecting<'a>,
    ) -> Result<Place, Status> {
        if let Some(known) = self.state().place() {
            return known;
        }
        let _alone = self.connecting.lock().await;
        // Another task may have connected, or a call may have ended.
        if let Some(known) = self.state().place() {
            return known;
        }
        let connected = timeout(CONNECT, connect()).await.unwrap_or_else(|_| {
            Err(Status::unavailable(format!(
                "no connection within {} s",
                CONNECT.as_secs()
            )))
        });
        let mut state = self.state();
        let opened = connected.and_then(|connection| {
            let place = connection.slot();
            state.links.push(connection);
            place.ok_or_else(|| Status::internal("a new connection has no free stream"))
        });
        state.failed = opened
            .as_ref()
            .err()
            .map(|status| (Instant::now(), status.clone()));
        opened
    }

    /// Whether no call is on any connection.
    pub(crate) fn are_idle(&self) -> bool {
        self.state().links.iter().all(|link| link.calls() == 0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A slot on an existing connection, or the recent failure to connect.
    fn place(&mut self) -> Option<Result<Place, Status>> {
        self.links.retain_mut(|link| !link.is_closed());
        // After a burst of calls, keep one idle connection.
        let mut idle = 0;
        self.links.retain(|link| {
            let is_idle = link.calls() == 0;
            idle += usize::from(is_idle);
            !is_idle || idle == 1
        });
        if let Some(place) = self.links.iter().find_map(Connection::slot) {
            return Some(Ok(place));
        }
        let (at, status) = self.failed.as_ref()?;
        (at.elapsed() < PAUSE).then(|| Err(status.clone()))
    }
}

fn unavailable(error: &h2::Error) -> Status {
    Status::unavailable(describe(error))
}

/// An error with its causes.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::connection::{MACHINEDS, STREAMS};

    /// Connects to a silent pipe, whose other end is pushed to `ends`.
    fn connect(ends: &Mutex<Vec<tokio::io::DuplexStream>>) -> Connecting<'_> {
        Box::pin(async {
            let (stream, end) = tokio::io::duplex(1 << 16);
            ends.lock().unwrap().push(end);
            Ok(Connection::begin(stream, MACHINEDS).await.unwrap())
        })
    }

    #[tokio::test]
    async fn freed_stream_is_used_while_another_connection_is_opened() {
        let links = Links::default();
        let ends = Mutex::default();
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            held.push(links.open(|| connect(&ends)).await.unwrap());
        }
        assert_eq!(ends.lock().unwrap().len(), 1);
        let mut waiting = pin!(links.open(|| Box::pin(std::future::pending())));
        let pending = std::future::poll_fn(|context| {
            Poll::Ready(Future::poll(waiting.as_mut(), context).is_pending())
        });
        assert!(pending.await);
        held.pop();
        let nobody = || -> Connecting<'static> { panic!("there is a place") };
        links.open(nobody).await.unwrap();
    }

    #[tokio::test]
    async fn extra_connections_of_a_burst_are_closed_after_it() {
        let links = Links::default();
        let ends = Mutex::default();
        let connect = || connect(&ends);
        let mut held = Vec::new();
        for _ in 0..3 * STREAMS {
            held.push(links.open(connect).await.unwrap());
        }
        // The used connections stay: the second, and one of the idle ones.
        let used = held.swap_remove(STREAMS);
        held.clear();
        held.push(links.open(connect).await.unwrap());
        let calls = |links: &Links| {
            let state = links.state();
            let calls = state.links.iter().map(Connection::calls);
            calls.collect::<Vec<_>>()
        };
        assert_eq!(calls(&links), [1, 1]);
        drop((used, held));
        links.open(connect).await.unwrap();
        assert_eq!(calls(&links), [0]);
        assert_eq!(ends.lock().unwrap().len(), 3);
    }
}
