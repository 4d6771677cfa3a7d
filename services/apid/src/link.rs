//! HTTP/2 connections to one answerer: made when needed, shared by calls, replaced when they end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
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
/// What machined may send of one stream before somebody reads it, in bytes; what all streams hold unread is this times
/// their number. Its messages may be small and many: with what HTTP/2 has of each they take three times as much.
pub(crate) const MACHINEDS: u32 = 32 * 1024;
/// And another node, which is further away.
pub(crate) const ANOTHER_NODES: u32 = 64 * 1024;
/// No limit to all streams together, so that one nobody reads does not hold up the others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// A piece of an answer that is put together with those behind it, and how long they get, in bytes: a frame of HTTP/2.
const SMALL: usize = 2 * 1024;
const TOGETHER: usize = 16 * 1024 - SMALL;
/// What of a stream waits to be sent.
const SEND_BUFFER: usize = 64 * 1024;
/// Headers of an answer, in bytes.
const HEADERS: u32 = 64 * 1024;
/// A connection with calls on it is asked for a sign of life, and dropped when none comes.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Begins HTTP/2 on a stream; `window` is what of an answer may be here unread, in bytes.
pub(crate) async fn handshake<T>(stream: T, window: u32) -> hyper::Result<SendRequest<Body>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
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
                        next: None,
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
        // After a rush of calls one connection is enough to wait for the next.
        let mut idle = 0;
        self.links.retain(|link| {
            let is_idle = link.streams() == 0;
            idle += usize::from(is_idle);
            !is_idle || idle == 1
        });
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
    /// What came behind small pieces and is not one of them.
    next: Option<Result<Frame<Bytes>, hyper::Error>>,
    _stream: Arc<()>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    /// Small pieces that are there together are one: each costs as much as a large one, here and on its way to the
    /// caller.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let first = match self.next.take() {
            Some(next) => Some(next),
            None => ready!(Pin::new(&mut self.body).poll_frame(context)),
        };
        let is_small = |data: &Bytes| data.len() < SMALL;
        let first = match first {
            Some(Ok(frame)) if frame.data_ref().is_some_and(is_small) => frame,
            other => return Poll::Ready(other),
        };
        let mut pieces = BytesMut::new();
        pieces.extend_from_slice(first.data_ref().map_or(&[], Bytes::as_ref));
        while pieces.len() < TOGETHER {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(is_small) => {
                    pieces.extend_from_slice(frame.data_ref().map_or(&[], Bytes::as_ref));
                }
                Poll::Ready(next) => {
                    self.next = next;
                    break;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(Frame::data(pieces.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.body.is_end_stream()
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
        let sender = handshake(stream, MACHINEDS).await.unwrap();
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

    #[tokio::test]
    async fn connections_of_a_rush_of_calls_end_after_it() {
        let links = Links::default();
        let ends = Mutex::new(Vec::new());
        let connect = || -> Connecting<'_> {
            Box::pin(async {
                let (stream, end) = tokio::io::duplex(1 << 16);
                ends.lock().unwrap().push(end);
                Ok(handshake(stream, MACHINEDS).await.unwrap())
            })
        };
        let mut held = Vec::new();
        for _ in 0..3 * STREAMS {
            held.push(links.open(connect).await.unwrap());
        }
        // Those that are used stay: the second, and of the others one.
        let used = held.swap_remove(STREAMS);
        held.clear();
        held.push(links.open(connect).await.unwrap());
        let streams = |links: &Links| {
            links
                .state()
                .links
                .iter()
                .map(Link::streams)
                .collect::<Vec<_>>()
        };
        assert_eq!(streams(&links), [1, 1]);
        drop((used, held));
        links.open(connect).await.unwrap();
        assert_eq!(streams(&links), [0]);
        assert_eq!(ends.lock().unwrap().len(), 3);
    }
}
