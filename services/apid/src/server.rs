//! Accepting connections: limits, TLS, who is there.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corten_api::roles::Role;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::identity::Identity;
use crate::proxy::{Caller, Proxy};
use crate::upstream::Upstream;

/// Connections at once, those in their handshake included. Each costs about
/// 100 KiB at worst; apid may use 128 MiB.
const CONNECTIONS: usize = 512;
/// A handshake that takes longer is not a client's.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Calls of one connection at once.
const STREAMS: u32 = 128;
/// Metadata of one call, in bytes.
const HEADERS: u32 = 64 * 1024;
/// A silent peer is asked for a sign of life, and dropped when none comes.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);
/// In maintenance anybody can connect: nobody may keep a connection for ever.
const MAINTENANCE_CONNECTION: Duration = Duration::from_secs(10 * 60);
/// Flow-control windows of uploads (a config, an image).
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// After a failure to accept (no descriptors left) a pause, not a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    identity: Identity,
    proxy: Arc<Proxy>,
}

impl Server {
    pub(crate) fn new(
        pki: PathBuf,
        machined: PathBuf,
        maintenance: bool,
    ) -> Result<Server, String> {
        let identity = Identity::load(pki, maintenance).map_err(|error| error.to_string())?;
        let proxy = Arc::new(Proxy {
            upstream: Upstream::new(machined),
            maintenance,
        });
        Ok(Server { identity, proxy })
    }

    /// Serves for ever.
    pub(crate) async fn run(&self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Taken before accepting: beyond the limit, peers wait in the
            // kernel's queue instead of costing memory here.
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    eprintln!("apid: accept: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let acceptor = TlsAcceptor::from(self.identity.config());
            let proxy = self.proxy.clone();
            tokio::spawn(connection(stream, acceptor, proxy, place));
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    proxy: Arc<Proxy>,
    _place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let Ok(reached) = stream.local_addr().map(|address| address.ip()) else {
        return;
    };
    let peer = stream
        .peer_addr()
        .map_or_else(|_| "?".to_owned(), |peer| peer.ip().to_string());
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Port scans and health checks close at once: not worth a line.
            if error.kind() != std::io::ErrorKind::UnexpectedEof {
                eprintln!("apid: {peer}: {error}");
            }
            return;
        }
        Err(_) => return,
    };
    match roles(&stream, proxy.maintenance) {
        Ok(roles) => serve(stream, proxy, roles, reached).await,
        Err(why) => eprintln!("apid: {peer}: {why}"),
    }
}

/// The caller's roles, from the certificate TLS has verified.
fn roles(stream: &TlsStream<TcpStream>, maintenance: bool) -> Result<Vec<Role>, String> {
    if maintenance {
        return Ok(vec![Role::Reader]);
    }
    let (_, session) = stream.get_ref();
    let leaf = session
        .peer_certificates()
        .and_then(|chain| chain.first())
        .ok_or("no client certificate")?;
    match corten_pki::has_exactly_client_auth(leaf) {
        Ok(true) => {}
        _ => return Err("the certificate's extended key usage is not exactly clientAuth".into()),
    }
    let names = corten_pki::organizations(leaf).map_err(|error| error.to_string())?;
    Ok(names.iter().filter_map(|name| Role::parse(name)).collect())
}

async fn serve(stream: TlsStream<TcpStream>, proxy: Arc<Proxy>, roles: Vec<Role>, reached: IpAddr) {
    let maintenance = proxy.maintenance;
    let caller = Caller { roles, reached };
    let service = service_fn(move |request| {
        let (proxy, caller) = (proxy.clone(), caller.clone());
        async move { Ok::<_, Infallible>(proxy.call(caller, request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // How a peer hangs up is its own affair: only the end matters here.
    if maintenance {
        let _ = timeout(MAINTENANCE_CONNECTION, connection).await;
    } else {
        let _ = connection.await;
    }
}
