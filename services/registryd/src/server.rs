//! Accepting connections, within bounds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::cache::Cache;
use crate::respond::respond;

/// Connections at once; containerd opens a few. Each costs at most a manifest or three chunks of a blob.
const CONNECTIONS: usize = 64;
/// A request's line and headers, in bytes.
const HEADERS: usize = 16 * 1024;
/// For a request to come, also on a connection that had one before.
const PATIENCE: Duration = Duration::from_secs(30);
/// After a failure to accept (no descriptors left) a pause, not a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the cache for ever.
pub async fn serve(listener: TcpListener, cache: Cache) {
    let cache = Arc::new(cache);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Taken before accepting: beyond the limit, clients wait in the kernel's queue.
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, cache.clone(), place))),
            Err(error) => {
                eprintln!("registryd: accept: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, cache: Arc<Cache>, _place: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let cache = cache.clone();
        async move { Ok::<_, Infallible>(respond(&cache, &request).await) }
    });
    // How a client hangs up is its own affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
