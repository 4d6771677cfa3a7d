//! An HTTP/2 connection to an answerer: flow control, number of calls, and keep-alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::turns::Turns;

/// Memory of TLS and HTTP/2 for one connection, in bytes.
pub(crate) const CONNECTION: usize = 50 * 1024;
/// Limit of streams on one connection. The server admits 128.
pub(crate) const STREAMS: usize = 100;
/// Flow-control window of one stream from machined, in bytes: the unread data of an answer that is buffered, whatever
/// its frame sizes.
pub(crate) const MACHINEDS: u32 = 32 * 1024;
/// The same for another node, whose round-trip time is longer.
pub(crate) const ANOTHER_NODES: u32 = 64 * 1024;
/// The window of the connection has no limit, so that one unread stream does not block the others. The HTTP/2 library's
/// budget for small frames is half of it. Frames of abandoned calls use up that budget for good, so it must be large.
/// [`Turns`] bounds small frames: they are read as they arrive.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Limit of recently abandoned calls (within a second) whose late frames are tolerated; each costs half a KiB. A late
/// frame of any other call is an error, and a thousand errors end the connection with all its calls.
const GIVEN_UP: usize = 10 * STREAMS;
/// Send buffer of one stream in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// Limit of an answer's headers in bytes.
const HEADERS: u32 = 64 * 1024;
/// Keep-alive of a connection with calls, which is dropped without a reply.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// A connection. It ends when it has no owner and no call.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Bytes>,
    /// Number of calls.
    calls: watch::Sender<usize>,
}

/// A call's slot on a connection, released on drop.
#[derive(Debug)]
pub(crate) struct Slot(watch::Sender<usize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

impl Connection {
    /// Starts HTTP/2 on a stream. `window` limits the unread data of one answer, in bytes.
    pub(crate) async fn begin<T>(stream: T, window: u32) -> Result<Connection, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::<AtomicBool>::default();
        let (sender, mut driver) = Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(STREAMS)
            .max_concurrent_reset_streams(GIVEN_UP)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(HEADERS)
            .enable_push(false)
            .handshake(Turns::new(stream, heard.clone()))
            .await?;
        let calls = watch::Sender::new(0);
        let ping = driver.ping_pong().ok_or(Reason::INTERNAL_ERROR)?;
        let silence = silence(ping, calls.clone(), heard);
        tokio::spawn(async move {
            // Calls on the connection see the error themselves.
            tokio::select! {
                _ = driver => {}
                () = silence => {}
            }
        });
        Ok(Connection { sender, calls })
    }

    /// Whether it accepts no more calls.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut nobody_waits = Context::from_waker(Waker::noop());
        matches!(
            self.sender.poll_ready(&mut nobody_waits),
            Poll::Ready(Err(_))
        )
    }

    /// Number of calls on the connection.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// Takes a slot for a call; `None` if all are taken.
    pub(crate) fn slot(&self) -> Option<(SendRequest<Bytes>, Slot)> {
        if self.calls() >= STREAMS {
            return None;
        }
        self.calls.send_modify(|calls| *calls += 1);
        Some((self.sender.clone(), Slot(self.calls.clone())))
    }
}

/// Returns when there are calls but the peer sends nothing, not even a reply to a ping.
async fn silence(mut ping: PingPong, calls: watch::Sender<usize>, heard: Arc<AtomicBool>) {
    let mut number = calls.subscribe();
    // An error would mean that all senders are gone, but this task holds one.
    while number.wait_for(|calls| *calls > 0).await.is_ok() {
        heard.store(false, Ordering::Relaxed);
        sleep(PING_EVERY).await;
        if heard.load(Ordering::Relaxed) || *number.borrow() == 0 {
            continue;
        }
        if !matches!(
            timeout(PING_PATIENCE, ping.ping(Ping::opaque())).await,
            Ok(Ok(_))
        ) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io;

    use h2::RecvStream;
    use http::{Request, Response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const WINDOW: u32 = 64 * 1024;

    async fn call(connection: &Connection) -> (Result<RecvStream, h2::Error>, Slot) {
        let (sender, slot) = connection.slot().unwrap();
        let mut sender = sender.ready().await.unwrap();
        let request = Request::get("http://node/").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        (response.await.map(Response::into_body), slot)
    }

    #[tokio::test(start_paused = true)]
    async fn call_to_a_silent_peer_ends_and_an_idle_connection_stays() {
        let (stream, far) = tokio::io::duplex(1 << 16);
        let mut connection = Connection::begin(stream, WINDOW).await.unwrap();
        sleep(100 * PING_EVERY).await;
        assert!(!connection.is_closed() && connection.calls() == 0);
        let (answered, slot) = call(&connection).await;
        answered.unwrap_err();
        assert!(connection.is_closed());
        drop((slot, far));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_call_is_kept_while_the_peer_answers_pings() {
        let (stream, far) = tokio::io::duplex(1 << 16);
        let connection = Connection::begin(stream, WINDOW).await.unwrap();
        tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            tokio::spawn(async move {
                sleep(100 * PING_EVERY).await;
                respond.send_response(Response::new(()), true)
            });
            // Answers pings and flushes.
            poll_fn(|context| server.poll_closed(context)).await
        });
        let (answered, slot) = call(&connection).await;
        drop(answered.unwrap());
        assert_eq!(connection.calls(), 1);
        drop(slot);
        assert_eq!(connection.calls(), 0);
    }

    /// Kinds and flags of frames (RFC 9113, section 6), and the client preface (section 3.4).
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const END_HEADERS: u8 = 4;
    const PREFACE: usize = 24;

    fn frame(kind: u8, flags: u8, [a, b, c, d]: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, a, b, c, d], payload].concat()
    }

    /// Answers each call with a head (RFC 7541, section 6.1). When the call is reset, sends `bytes` bytes one by one,
    /// as if they had been in flight. Counts the resets.
    async fn be_late(
        mut stream: DuplexStream,
        bytes: usize,
        given_up: watch::Sender<usize>,
    ) -> io::Result<()> {
        stream.read_exact(&mut [0; PREFACE]).await?;
        stream.write_all(&frame(SETTINGS, 0, [0; 4], b"")).await?;
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await?;
            let [high, middle, low, kind, _, id @ ..] = head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            stream
                .read_exact(&mut vec![0; usize::try_from(length).unwrap()])
                .await?;
            match kind {
                HEADERS => {
                    let head = frame(HEADERS, END_HEADERS, id, b"\x88");
                    stream.write_all(&head).await?;
                }
                RST_STREAM => {
                    let data = frame(DATA, 0, id, b"x").repeat(bytes);
                    stream.write_all(&data).await?;
                    given_up.send_modify(|calls| *calls += 1);
                }
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn late_data_of_cancelled_calls_does_not_break_other_calls() {
        const LATE: usize = 100;
        let (stream, far) = tokio::io::duplex(1 << 16);
        let (counts, mut given_up) = watch::channel(0);
        tokio::spawn(be_late(far, LATE, counts));
        let connection = Connection::begin(stream, WINDOW).await.unwrap();
        let (stays, slot) = call(&connection).await;
        let stays = stays.unwrap();
        let mut calls = Vec::new();
        while calls.len() < STREAMS - 1 {
            let (answered, slot) = call(&connection).await;
            calls.push((answered.unwrap(), slot));
        }
        let number = calls.len();
        drop(calls);
        given_up.wait_for(|calls| *calls == number).await.unwrap();
        // The head of this answer follows all of those bytes.
        let (last, _) = call(&connection).await;
        drop((last.unwrap(), stays, slot));
    }
}
