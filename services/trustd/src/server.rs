//! Accepts connections: rate limits, TLS handshake, the service.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corten_api::securityapi::security_service_server::SecurityServiceServer;
use corten_daemon::{Bounds, Clients, Peer, Places};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::codegen::Service as _;

use crate::files::{Files, Trust};
use crate::limits::{Limits, Verdict};
use crate::sign::Signer;

/// Limits of concurrent connections. All peers are strangers, who evict each other, first the peer with the most
/// connections. An evicted node retries.
const BOUNDS: Bounds = Bounds {
    connections: 128,
    each: 8,
    strangers: 128,
    strangers_each: 8,
    for_admins: 0,
};
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Timeout from the end of the handshake to the first call.
const FIRST_CALL: Duration = Duration::from_secs(5);
/// Lifetime of a connection, which serves one call.
const CONNECTION: Duration = Duration::from_secs(30);
/// Concurrent calls of one connection.
const STREAMS: u32 = 2;
/// Limit of the metadata of one call in bytes.
const HEADERS: u32 = 8 * 1024;
/// Size limit of a request in bytes: [`corten_pki::MAX_NAMES`] names with room to spare.
const MESSAGE: usize = 64 * 1024;
/// Pause after a failed accept, for example without free file descriptors, instead of a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    files: Files,
    limits: Arc<Mutex<Limits>>,
    clients: Clients,
}

impl Server {
    pub(crate) fn new(files: Files, limits: Limits) -> Server {
        Server {
            files,
            limits: Arc::new(Mutex::new(limits)),
            clients: Clients::default(),
        }
    }

    /// Accepts and serves connections for ever.
    pub(crate) async fn run(&self, listener: TcpListener) {
        let places = Places::new(BOUNDS);
        let port = listener.local_addr().map_or(0, |address| address.port());
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    eprintln!(
                        "trustd: cannot accept a connection on port {port}: {error}; trying again"
                    );
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let client = self.clients.enter();
            // Checked before the handshake, which is the most expensive part.
            if !self.admits(peer) {
                continue;
            }
            // Never `None`: a stranger's place can always be evicted.
            let Some((place, evicted)) = places.enter(Peer::of(peer)) else {
                continue;
            };
            let connection = connection(stream, self.files.trust(), peer, self.limits.clone());
            tokio::spawn(async move {
                let _held = (place, client);
                tokio::select! {
                    () = connection => {}
                    () = evicted.wait() => {}
                }
            });
        }
    }

    /// Returns when the daemon may end: without a connection for some seconds, and with whole allowances, as those
    /// of the next process.
    pub(crate) async fn is_idle(&self) {
        loop {
            self.clients.none_for_long().await;
            let whole_at = self.limits().whole_at(Instant::now());
            match whole_at {
                None => return,
                Some(at) => sleep_until(at.into()).await,
            }
        }
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a peer may open another connection now.
    fn admits(&self, peer: IpAddr) -> bool {
        let verdict = self.limits().take(peer, Instant::now());
        if verdict == (Verdict::Refused { first: true }) {
            let peer = peer.to_canonical();
            eprintln!("trustd: {peer}: refused: it connects too often");
        }
        verdict == Verdict::Admitted
    }
}

async fn connection(
    stream: TcpStream,
    trust: Arc<Trust>,
    peer: IpAddr,
    limits: Arc<Mutex<Limits>>,
) {
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(trust.tls.clone());
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Port scans and health checks close at once and are not logged.
            if error.kind() != std::io::ErrorKind::UnexpectedEof {
                eprintln!("trustd: {}: {error}", peer.to_canonical());
            }
            return;
        }
        Err(_) => return,
    };
    let signer = Signer {
        peer,
        trust,
        limits,
    };
    let service = SecurityServiceServer::new(signer)
        .max_decoding_message_size(MESSAGE)
        .max_encoding_message_size(MESSAGE);
    let called = Arc::<AtomicBool>::default();
    let calls = called.clone();
    let service = service_fn(move |request| {
        calls.store(true, Ordering::Relaxed);
        service.clone().call(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // The way a peer closes its connection does not matter, only that it is closed.
    let served = async {
        tokio::select! {
            _ = connection => {}
            () = silence(&called) => {}
        }
    };
    let _ = timeout(CONNECTION, served).await;
}

/// Returns if there was no call before the timeout.
async fn silence(called: &AtomicBool) {
    sleep(FIRST_CALL).await;
    if called.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_connection_is_closed_and_a_calling_one_stays() {
        let begun = Instant::now();
        silence(&AtomicBool::new(false)).await;
        assert_eq!(begun.elapsed().as_secs(), FIRST_CALL.as_secs());
        let called = AtomicBool::new(true);
        timeout(2 * CONNECTION, silence(&called)).await.unwrap_err();
    }
}
