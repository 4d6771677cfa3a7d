//! A connection of HTTP/2 to an answerer: what may be on its way on it, how many calls are, and whether the other end
//! still lives.

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

/// What TLS and HTTP/2 take for a connection, in bytes.
pub(crate) const CONNECTION: usize = 50 * 1024;
/// Streams of one connection; the server at the other end admits 128.
pub(crate) const STREAMS: usize = 100;
/// What machined may send of one stream before somebody reads it, in bytes: so much is kept of an answer, however
/// small the pieces are in which it comes.
pub(crate) const MACHINEDS: u32 = 32 * 1024;
/// And another node, which is further away.
pub(crate) const ANOTHER_NODES: u32 = 64 * 1024;
/// No limit to all streams together, so that one nobody reads does not hold up the others. HTTP/2's budget for small
/// frames is half of it, and what frames of calls that were given up took of that is never given back: so it must be
/// large. What bounds small frames is that they are taken as they come ([`Turns`]).
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Calls that were given up of late (a second), of which more may come; each costs half a KiB. What comes of others is
/// an error, and a thousand of those end the connection, with all calls that are on it.
const GIVEN_UP: usize = 10 * STREAMS;
/// What of a stream waits to be sent.
const SEND_BUFFER: usize = 64 * 1024;
/// Headers of an answer, in bytes.
const HEADERS: u32 = 64 * 1024;
/// A connection with calls on it is asked for a sign of life, and dropped when none comes.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// A connection. It ends when nobody has it and no call is on it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Bytes>,
    /// How many there are.
    calls: watch::Sender<usize>,
}

/// A call's place on a connection, taken as long as this lives.
#[derive(Debug)]
pub(crate) struct Slot(watch::Sender<usize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

impl Connection {
    /// Begins HTTP/2 on a stream; `window` is what of an answer may be here unread, in bytes.
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
            // How it ends, those hear who have a call on it.
            tokio::select! {
                _ = driver => {}
                () = silence => {}
            }
        });
        Ok(Connection { sender, calls })
    }

    /// Whether it takes no more calls.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut nobody_waits = Context::from_waker(Waker::noop());
        matches!(
            self.sender.poll_ready(&mut nobody_waits),
            Poll::Ready(Err(_))
        )
    }

    /// Calls that are on it.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// A place for a call, if there is one.
    pub(crate) fn slot(&self) -> Option<(SendRequest<Bytes>, Slot)> {
        if self.calls() >= STREAMS {
            return None;
        }
        self.calls.send_modify(|calls| *calls += 1);
        Some((self.sender.clone(), Slot(self.calls.clone())))
    }
}

/// Comes back when there are calls and nothing is heard, not even when asked.
async fn silence(mut ping: PingPong, calls: watch::Sender<usize>, heard: Arc<AtomicBool>) {
    let mut number = calls.subscribe();
    // An error would mean that nobody counts any more, and this does.
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
            // Answers pings, and sends what is to be sent.
            poll_fn(|context| server.poll_closed(context)).await
        });
        let (answered, slot) = call(&connection).await;
        drop(answered.unwrap());
        assert_eq!(connection.calls(), 1);
        drop(slot);
        assert_eq!(connection.calls(), 0);
    }

    /// Kinds and flags of frames (RFC 9113, section 6), and a client's first bytes (section 3.4).
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

    /// Answers calls, each with a head (RFC 7541, section 6.1), and sends so many bytes one by one when it is given
    /// up, as if they had been on their way. Counts those that were.
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
        // This one's head comes behind all that.
        let (last, _) = call(&connection).await;
        drop((last.unwrap(), stays, slot));
    }
}
