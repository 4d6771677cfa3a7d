//! Accepts connections: rate limits, TLS handshake, the service.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use corten_api::securityapi::security_service_server::SecurityServiceServer;
use corten_daemon::{Bounds, Client, Clients, Peer, Places};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
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

    /// The clients that have called.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Accepts and serves connections for ever.
    pub(crate) async fn run(&self, listener: TcpListener) {
        let places = Places::new(BOUNDS);
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    eprintln!("trustd: accept: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // Checked before the handshake, which is the most expensive part.
            if !self.admits(peer) {
                continue;
            }
            // Never `None`: a stranger's place can always be evicted.
            let Some((place, evicted)) = places.enter(Peer::of(peer)) else {
                continue;
            };
            let (trust, limits) = (self.files.trust(), self.limits.clone());
            let connection = connection(stream, trust, peer, limits, self.clients.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = connection => {}
                    () = evicted.wait() => {}
                }
            });
        }
    }

    /// Whether a peer may open another connection now.
    fn admits(&self, peer: IpAddr) -> bool {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = limits.take(peer, Instant::now());
        drop(limits);
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
    clients: Clients,
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
    let called = Arc::<OnceLock<Client>>::default();
    let calls = called.clone();
    let service = service_fn(move |request| {
        calls.get_or_init(|| clients.enter());
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
async fn silence(called: &OnceLock<Client>) {
    sleep(FIRST_CALL).await;
    if called.get().is_some() {
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
        silence(&OnceLock::new()).await;
        assert_eq!(begun.elapsed().as_secs(), FIRST_CALL.as_secs());
        let called = OnceLock::from(Clients::default().enter());
        timeout(2 * CONNECTION, silence(&called)).await.unwrap_err();
    }
}
