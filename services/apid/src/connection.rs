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

/// Streams of one connection; the server at the other end admits 128.
pub(crate) const STREAMS: usize = 100;
/// What machined may send of one stream before somebody reads it, in bytes: so much is kept of an answer, however
/// small the pieces are in which it comes.
pub(crate) const MACHINEDS: u32 = 32 * 1024;
/// And another node, which is further away.
pub(crate) const ANOTHER_NODES: u32 = 64 * 1024;
/// No limit to all streams together, so that one nobody reads does not hold up the others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// What frames with less than 256 bytes lack of them, until they are taken out of HTTP/2, in bytes; it takes as much
/// memory for them. They are taken as they come ([`Turns`]): only who sends more at once than a turn has is cut off.
const SMALL_FRAMES: usize = 1024 * 1024;
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
            .data_frame_budget(SMALL_FRAMES)
            .initial_max_send_streams(STREAMS)
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

    use http::Request;

    use super::*;

    const WINDOW: u32 = 64 * 1024;

    async fn call(connection: &Connection) -> (Result<(), h2::Error>, Slot) {
        let (sender, slot) = connection.slot().unwrap();
        let mut sender = sender.ready().await.unwrap();
        let request = Request::get("http://node/").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        (response.await.map(drop), slot)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_to_who_says_nothing_ends_and_an_idle_connection_stays() {
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
    async fn who_answers_pings_may_take_his_time_with_the_call() {
        let (stream, far) = tokio::io::duplex(1 << 16);
        let connection = Connection::begin(stream, WINDOW).await.unwrap();
        tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            tokio::spawn(async move {
                sleep(100 * PING_EVERY).await;
                respond.send_response(http::Response::new(()), true)
            });
            // Answers pings, and sends what is to be sent.
            poll_fn(|context| server.poll_closed(context)).await
        });
        let (answered, slot) = call(&connection).await;
        answered.unwrap();
        assert_eq!(connection.calls(), 1);
        drop(slot);
        assert_eq!(connection.calls(), 0);
    }
}
