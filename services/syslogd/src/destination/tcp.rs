//! Delivery by TCP with acknowledgements of the receiver's kernel. Data that was not acknowledged when a connection
//! broke is sent again on the next one, so a receiver may see a message twice. Data that its kernel acknowledged but
//! its program never read is lost; the protocol has no reply.

use super::follower::Follower;
use super::{CONNECT, too_slow};
use crate::store::Store;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Timeout of acknowledgements in milliseconds; then the receiver counts as gone.
const USER_TIMEOUT: u32 = 30_000;
/// Keep-alive interval of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Interval of checking for missing acknowledgements.
const LOOK: Duration = Duration::from_millis(100);
/// Limit of unacknowledged batches; each keeps a position to return to.
const MOST_UNDERWAY: usize = 1024;

/// A batch written to the socket.
struct Underway {
    /// Offset of its end in this connection's bytes.
    end: u64,
    log: Arc<str>,
    next: u64,
}

/// Delivers until the connection breaks. `place` is then after the last acknowledged batch.
pub(super) async fn deliver(
    store: &Store,
    address: &str,
    place: &mut Follower,
    on_delivery: &mut impl FnMut(),
) -> io::Error {
    let stream = match connect(address).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    let mut connection = Connection {
        stream,
        sent: 0,
        underway: VecDeque::new(),
    };
    match connection.pump(store, place, on_delivery).await {
        Ok(never) => match never {},
        Err(error) => {
            connection.settle(place, on_delivery);
            error
        }
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT, TcpStream::connect(address))
        .await
        .map_err(too_slow)??;
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(&stream, USER_TIMEOUT)?;
    rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

struct Connection {
    stream: TcpStream,
    sent: u64,
    underway: VecDeque<Underway>,
}

impl Connection {
    async fn pump(
        &mut self,
        store: &Store,
        place: &mut Follower,
        on_delivery: &mut impl FnMut(),
    ) -> io::Result<std::convert::Infallible> {
        let mut changed = store.changed();
        // Reads ahead of `place`, which only acknowledgements move.
        let mut ahead = place.clone();
        loop {
            changed.mark_unchanged();
            while self.underway.len() < MOST_UNDERWAY
                && let Some(batch) = ahead.next()
            {
                let bytes = batch.messages.concat();
                let (mut reader, mut writer) = self.stream.split();
                tokio::select! {
                    written = writer.write_all(&bytes) => written?,
                    gone = broken(&mut reader) => return Err(gone),
                }
                self.sent += bytes.len() as u64;
                self.underway.push_back(Underway {
                    end: self.sent,
                    log: batch.log,
                    next: batch.next,
                });
                self.settle(place, on_delivery);
            }
            let full = self.underway.len() >= MOST_UNDERWAY;
            let missing = !self.underway.is_empty();
            let (mut reader, _) = self.stream.split();
            tokio::select! {
                _ = changed.changed(), if !full => {}
                () = sleep(LOOK), if missing => if let Some(error) = self.stream.take_error()? {
                    return Err(error);
                },
                gone = broken(&mut reader) => return Err(gone),
            }
            self.settle(place, on_delivery);
        }
    }

    /// Moves `place` after the acknowledged batches.
    fn settle(&mut self, place: &mut Follower, on_delivery: &mut impl FnMut()) {
        let Ok(missing) = corten_sys::socket::unacknowledged(self.stream.as_fd()) else {
            return;
        };
        let acknowledged = self.sent.saturating_sub(missing);
        while let Some(batch) = self.underway.pop_front() {
            if batch.end > acknowledged {
                self.underway.push_front(batch);
                return;
            }
            place.go(&batch.log, batch.next);
            on_delivery();
        }
    }
}

/// Waits until the connection breaks; ignores received data. A peer that closed its sending side may still read; if it
/// does not, the next message causes a reset.
async fn broken(reader: &mut (impl AsyncRead + Unpin)) -> io::Error {
    let mut ignored = [0; 512];
    loop {
        match reader.read(&mut ignored).await {
            Ok(0) => return std::future::pending().await,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}
