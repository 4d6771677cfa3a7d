//! HTTP/2 connections to one answerer: made when needed, shared by calls, replaced when they end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::reply::Body;

/// Connecting takes no longer, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// After a failure nobody tries again for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// Streams of one connection; the server at the other end admits 128.
const STREAMS: usize = 100;
/// What an answerer may send of one stream before somebody reads it; what all streams hold unread is this
/// times their number. It is HTTP/2's own default.
pub(crate) const STREAM_WINDOW: u32 = 65_535;
/// No limit to all streams together, so that one nobody reads does not hold up the others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// What of a stream waits to be sent.
const SEND_BUFFER: usize = 64 * 1024;
/// Headers of an answer, in bytes.
const HEADERS: u32 = 64 * 1024;
/// A connection with calls on it is asked for a sign of life, and dropped when none comes.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Begins HTTP/2 on a stream.
pub(crate) async fn handshake<T>(stream: T) -> hyper::Result<SendRequest<Body>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE)
        .handshake(TokioIo::new(stream))
        .await?;
    // How it ends, those hear who have a call on it.
    tokio::spawn(driver);
    Ok(sender)
}

/// A connection in the making.
pub(crate) type Connecting<'a> = BoxFuture<'a, Result<SendRequest<Body>, Status>>;

/// A place for a stream on a connection: taken as long as the second part lives.
type Place = (SendRequest<Body>, Arc<()>);

/// All connections to one answerer.
#[derive(Debug, Default)]
pub(crate) struct Links {
    state: Mutex<State>,
    /// Held by the one who connects: whoever needs a connection meanwhile waits for that one.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Link>,
    failed: Option<(Instant, Status)>,
}

#[derive(Debug)]
struct Link {
    sender: SendRequest<Body>,
    /// Every stream holds a clone.
    streams: Arc<()>,
}

impl Links {
    /// Sends a request, on a new connection (`connect`) if need be, and waits for the head of the answer.
    pub(crate) async fn send<'a>(
        &self,
        mut request: Request<Body>,
        connect: impl Fn() -> Connecting<'a>,
    ) -> Result<Response<Answer>, Status> {
        let mut again = true;
        loop {
            let (mut sender, stream) = self.open(&connect).await?;
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| Answer {
                        body,
                        _stream: stream,
                    }));
                }
                Err(error) => error,
            };
            // A connection may end just when it is used; what was not sent can be sent once more.
            match error.take_message() {
                Some(unsent) if again => {
                    again = false;
                    request = unsent;
                }
                _ => return Err(Status::unavailable(describe(error.error()))),
            }
        }
    }

    /// A place for a stream, on a new connection if need be.
    pub(crate) async fn open<'a>(
        &self,
        connect: impl FnOnce() -> Connecting<'a>,
    ) -> Result<Place, Status> {
        if let Some(known) = self.state().place() {
            return known;
        }
        let _alone = self.connecting.lock().await;
        // Who connected before, or a stream that ended, may have made a place.
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
        match connected {
            Ok(sender) => {
                let streams = Arc::new(());
                state.failed = None;
                state.links.push(Link {
                    sender: sender.clone(),
                    streams: streams.clone(),
                });
                Ok((sender, streams))
            }
            Err(status) => {
                state.failed = Some((Instant::now(), status.clone()));
                Err(status)
            }
        }
    }

    /// Whether no call is on any of them.
    pub(crate) fn are_idle(&self) -> bool {
        self.state().links.iter().all(|link| link.streams() == 0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A place for a stream on a connection there is, or how connecting has just failed.
    fn place(&mut self) -> Option<Result<Place, Status>> {
        self.links.retain(|link| !link.sender.is_closed());
        if let Some(link) = self.links.iter().find(|link| link.streams() < STREAMS) {
            return Some(Ok((link.sender.clone(), link.streams.clone())));
        }
        let (at, status) = self.failed.as_ref()?;
        (at.elapsed() < PAUSE).then(|| Err(status.clone()))
    }
}

impl Link {
    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }
}

/// An answer's body. While it lives, its connection is in use.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Incoming,
    _stream: Arc<()>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An error with what caused it.
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

    use super::*;

    #[tokio::test]
    async fn a_place_that_gets_free_is_found_while_another_connects() {
        let links = Links::default();
        let (stream, _other_end) = tokio::io::duplex(1 << 16);
        let sender = handshake(stream).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            let sender = sender.clone();
            let connect = || -> Connecting<'static> { Box::pin(async { Ok(sender) }) };
            held.push(links.open(connect).await.unwrap());
        }
        let mut waiting = pin!(links.open(|| Box::pin(std::future::pending())));
        let pending = std::future::poll_fn(|context| {
            Poll::Ready(Future::poll(waiting.as_mut(), context).is_pending())
        });
        assert!(pending.await);
        held.pop();
        let connect = || -> Connecting<'static> { panic!("there is a place") };
        links.open(connect).await.unwrap();
    }
}
