//! Accepting connections: limits, TLS, the method.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corten_api::securityapi::security_service_server::SecurityServiceServer;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::codegen::Service as _;

use crate::files::{Files, Trust};
use crate::limits::{Limits, Verdict};
use crate::sign::Signer;

/// Connections at once, those in their handshake included.
const CONNECTIONS: usize = 128;
/// A handshake that takes longer is not a node's.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A connection is for one call; nobody may keep a place for longer.
const CONNECTION: Duration = Duration::from_secs(30);
/// Calls of one connection at once.
const STREAMS: u32 = 2;
/// Metadata of one call, in bytes.
const HEADERS: u32 = 8 * 1024;
/// A request for [`corten_pki::MAX_NAMES`] names, with room to spare, in bytes.
const MESSAGE: usize = 64 * 1024;
/// After a failure to accept (no descriptors left) a pause, not a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    files: Files,
    limits: Arc<Mutex<Limits>>,
}

impl Server {
    pub(crate) fn new(files: Files, limits: Limits) -> Server {
        Server {
            files,
            limits: Arc::new(Mutex::new(limits)),
        }
    }

    /// Serves for ever.
    pub(crate) async fn run(&self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Taken before accepting: beyond the limit, peers wait in the kernel's queue.
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    eprintln!("trustd: accept: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // Before the handshake, which is what costs most.
            let Some(admission) = Admission::of(peer, &self.limits, place) else {
                continue;
            };
            tokio::spawn(connection(stream, self.files.trust(), admission));
        }
    }
}

/// A place taken by a peer; given back when dropped.
struct Admission {
    peer: IpAddr,
    limits: Arc<Mutex<Limits>>,
    _place: OwnedSemaphorePermit,
}

impl Admission {
    fn of(
        peer: IpAddr,
        limits: &Arc<Mutex<Limits>>,
        place: OwnedSemaphorePermit,
    ) -> Option<Admission> {
        let verdict = lock(limits).open(peer, Instant::now());
        if let Verdict::Refused { first } = verdict {
            if first {
                let peer = peer.to_canonical();
                eprintln!("trustd: {peer}: refused: it connects too often");
            }
            return None;
        }
        Some(Admission {
            peer,
            limits: limits.clone(),
            _place: place,
        })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.limits).close(self.peer);
    }
}

fn lock(limits: &Mutex<Limits>) -> std::sync::MutexGuard<'_, Limits> {
    limits.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connection(stream: TcpStream, trust: Arc<Trust>, admission: Admission) {
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(trust.tls.clone());
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Port scans and health checks close at once: not worth a line.
            if error.kind() != std::io::ErrorKind::UnexpectedEof {
                eprintln!("trustd: {}: {error}", admission.peer.to_canonical());
            }
            return;
        }
        Err(_) => return,
    };
    let signer = Signer {
        peer: admission.peer,
        trust,
        limits: admission.limits.clone(),
    };
    let service = SecurityServiceServer::new(signer)
        .max_decoding_message_size(MESSAGE)
        .max_encoding_message_size(MESSAGE);
    let service = service_fn(move |request| service.clone().call(request));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // How a peer hangs up is its own affair: only the end matters here.
    let _ = timeout(CONNECTION, connection).await;
}
