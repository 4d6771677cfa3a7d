//! HTTP/2 connections to one answerer: made when needed, shared by calls, replaced when they end.

use std::pin::Pin;
use std::sync::Arc;
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
use tokio::sync::Mutex;
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
const STREAM_WINDOW: u32 = 65_535;
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

/// All connections to one answerer.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<State>);

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
            let (mut sender, stream) = self.open(connect()).await?;
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
    pub(crate) async fn open(
        &self,
        connect: Connecting<'_>,
    ) -> Result<(SendRequest<Body>, Arc<()>), Status> {
        let mut state = self.0.lock().await;
        state.links.retain(|link| !link.sender.is_closed());
        if let Some(link) = state.links.iter().find(|link| link.streams() < STREAMS) {
            return Ok((link.sender.clone(), link.streams.clone()));
        }
        if let Some((at, status)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(status.clone());
        }
        let connected = timeout(CONNECT, connect).await.unwrap_or_else(|_| {
            Err(Status::unavailable(format!(
                "no connection within {} s",
                CONNECT.as_secs()
            )))
        });
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
        self.0
            .try_lock()
            .is_ok_and(|state| state.links.iter().all(|link| link.streams() == 0))
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
