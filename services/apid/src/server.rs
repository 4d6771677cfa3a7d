//! Accepts connections: limits, TLS handshake, identification of the caller.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use corten_daemon::{Bounds, Peer, Place, Places};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::caller::{Caller, Done, RECHECK};
use crate::log_limit::LogLimit;
use crate::proxy::Proxy;

/// Limits of concurrent connections. A peer may be a gateway of many operators or a forwarding node, but must not take
/// all connections.
pub(crate) const BOUNDS: Bounds = Bounds {
    connections: 512,
    each: 128,
    // A handshake takes milliseconds, but a client may open all its connections at once.
    strangers: 256,
    strangers_each: 128,
    for_admins: 32,
};
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Concurrent calls of one connection.
const STREAMS: u32 = 128;
/// Limit of the metadata of one call in bytes. 1,024 nodes as IPv6 addresses need 80 KiB.
const HEADERS: u32 = 128 * 1024;
/// Keep-alive of a silent peer, which is dropped without a reply. A peer that does not finish a call's metadata is
/// dropped, too: until then HTTP/2 lets it send no other frame, not even a reply.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);
/// Lifetime of a connection in maintenance mode. Any peer can connect then, so no connection may last for ever.
const MAINTENANCE_CONNECTION: Duration = Duration::from_secs(10 * 60);
/// Memory of a connection in bytes: TLS, HTTP/2, and unread data from its callers.
pub(crate) const CONNECTION: usize = crate::connection::CONNECTION + CONNECTION_WINDOW as usize;
/// Time for a call to finish that began just as its connection was found idle.
const DRAIN: Duration = Duration::from_secs(30 * 60);
/// Time for the calls of a connection whose certificate is no longer accepted. It is enough to report the refusal, and
/// too short for a stream to go on.
const FAREWELL: Duration = Duration::from_secs(3);
/// Flow-control windows in bytes of uploads (a config, a snapshot): the data a peer may send before it is read.
const STREAM_WINDOW: u32 = 32 * 1024;
const CONNECTION_WINDOW: u32 = 128 * 1024;
/// Buffer in bytes of an answer whose caller reads slowly. HTTP/2 takes one more frame.
pub(crate) const SEND_BUFFER: usize = 16 * 1024;
/// Interval of logging repeated refusals.
const TELL_REPEATED: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example without free file descriptors, instead of a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// The server.
#[derive(Debug)]
pub struct Server {
    proxy: Arc<Proxy>,
    places: Places,
    refusals: Arc<LogLimit>,
}

impl Server {
    pub(crate) fn new(proxy: Proxy, bounds: Bounds) -> Server {
        Server {
            proxy: Arc::new(proxy),
            places: Places::new(bounds),
            refusals: Arc::default(),
        }
    }

    /// Accepts and serves connections for ever.
    pub async fn run(&self, listener: TcpListener) {
        let mut clock = interval(TELL_REPEATED);
        let port = listener.local_addr().map_or(0, |address| address.port());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                now = clock.tick() => {
                    self.proxy.audit.tell_repeated(now.into_std());
                    continue;
                }
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    eprintln!(
                        "apid: cannot accept a connection on port {port}: {error}; trying again"
                    );
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // A peer over its limit is told at once: its connection is closed.
            if let Some((place, evicted)) = self.places.enter(Peer::of(from.ip())) {
                let refusals = self.refusals.clone();
                let connection = connection(stream, self.proxy.clone(), place, refusals);
                tokio::spawn(async {
                    tokio::select! {
                        () = connection => {}
                        () = evicted.wait() => {}
                    }
                });
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn proxy(&self) -> Arc<Proxy> {
        self.proxy.clone()
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> Places {
        self.places.clone()
    }
}

async fn connection(stream: TcpStream, proxy: Arc<Proxy>, place: Place, refusals: Arc<LogLimit>) {
    let _ = stream.set_nodelay(true);
    let (Ok(reached), Ok(from)) = (stream.local_addr(), stream.peer_addr()) else {
        return;
    };
    let current = proxy.identity.current();
    let acceptor = TlsAcceptor::from(current.server.clone());
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Port scans and health checks close at once and are not logged.
            if error.kind() != std::io::ErrorKind::UnexpectedEof {
                refusals.say(&format!("{}: {error}", from.ip()));
            }
            return;
        }
        Err(_) => return,
    };
    let caller = Caller::new(
        shown(&stream, proxy.maintenance),
        current,
        from,
        reached.ip(),
    );
    match caller {
        Ok(caller) => {
            // In maintenance mode every caller is a stranger.
            if caller.known().is_none_or(|known| place.keep(known)) {
                serve(stream, proxy, Arc::new(caller)).await;
            } else {
                let serial = &caller.serial;
                let text = format!("{}: too many connections, serial={serial}", from.ip());
                refusals.say(&text);
            }
        }
        Err(why) => refusals.say(&format!("{}: {why}", from.ip())),
    }
}

/// The caller's certificates, verified by TLS; `None` in maintenance mode, which asks for none.
fn shown(
    stream: &TlsStream<TcpStream>,
    maintenance: bool,
) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
    if maintenance {
        return None;
    }
    let (_, session) = stream.get_ref();
    Some(session.peer_certificates().unwrap_or_default())
}

async fn serve(stream: TlsStream<TcpStream>, proxy: Arc<Proxy>, caller: Arc<Caller>) {
    let longest = if proxy.maintenance {
        MAINTENANCE_CONNECTION
    } else {
        Duration::MAX
    };
    let calling = (proxy.clone(), caller.clone());
    let service = service_fn(move |request| {
        let (proxy, caller) = calling.clone();
        async move { Ok::<_, Infallible>(proxy.call(&caller, request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // The way a peer closes its connection does not matter, only that it is closed.
    let served = async {
        let done = tokio::select! {
            _ = connection.as_mut() => return,
            () = caller.silent() => return,
            done = caller.done(&proxy.identity, RECHECK) => done,
        };
        connection.as_mut().graceful_shutdown();
        let patience = match done {
            Done::Idle => DRAIN,
            Done::Refused => FAREWELL,
        };
        let _ = timeout(patience, connection).await;
    };
    let _ = timeout(longest, served).await;
}
