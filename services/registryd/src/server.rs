//! Accepts a bounded number of connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use corten_daemon::{Client, Clients};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::cache::Cache;
use crate::respond::respond;

/// Limit of concurrent connections; containerd opens a few. Each costs at most a manifest or three chunks of a blob.
const CONNECTIONS: usize = 64;
/// Limit of the request line and headers in bytes.
const HEADERS: usize = 16 * 1024;
/// Timeout of a request's head, also on a reused connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of a client that reads nothing, so that another client gets its slot. The kernel enforces it, because a
/// pending write does not report it.
const UNREAD: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example without free file descriptors, instead of a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the cache for ever, and counts its connections.
pub async fn serve(listener: TcpListener, cache: Cache, clients: Clients) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    serve_within(listener, cache, places, UNREAD, clients).await;
}

async fn serve_within(
    listener: TcpListener,
    cache: Cache,
    places: Arc<Semaphore>,
    unread: Duration,
    clients: Clients,
) {
    let cache = Arc::new(cache);
    let unread = u32::try_from(unread.as_millis()).unwrap_or(u32::MAX);
    let port = listener.local_addr().map_or(0, |address| address.port());
    loop {
        // Acquired before accepting, so that further clients wait in the kernel's queue.
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                // tcp(7), TCP_USER_TIMEOUT, in milliseconds.
                let _ = set_tcp_user_timeout(&stream, unread);
                let held = (place, clients.enter());
                drop(tokio::spawn(connection(stream, cache.clone(), held)));
            }
            Err(error) => {
                eprintln!(
                    "registryd: cannot accept a connection on port {port}: {error}; trying again"
                );
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, cache: Arc<Cache>, _held: (OwnedSemaphorePermit, Client)) {
    let service = service_fn(move |request| {
        let cache = cache.clone();
        async move { Ok::<_, Infallible>(respond(&cache, &request).await) }
    });
    // The way a client closes its connection does not matter.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sha2::{Digest as _, Sha256};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn slow_reader_is_disconnected() {
        let root = tempfile::tempdir().unwrap();
        // More than the buffers of both sockets.
        let blob = vec![7; 64 << 20];
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&blob)));
        fs::create_dir(root.path().join("blob")).unwrap();
        fs::write(root.path().join("blob").join(&digest), &blob).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cache = Cache::new(vec![root.path().to_owned()]);
        let one = Arc::new(Semaphore::new(1));
        tokio::spawn(serve_within(
            listener,
            cache,
            one,
            Duration::from_millis(500),
            Clients::default(),
        ));
        let ask = async |path: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        };
        let mut stalled = ask(&format!("/v2/a/blobs/{digest}?ns=docker.io")).await;
        let mut start = [0; 15];
        stalled.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200 OK");
        let mut next = ask("/healthz").await;
        let mut answer = String::new();
        let read = next.read_to_string(&mut answer);
        timeout(Duration::from_secs(60), read)
            .await
            .unwrap()
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        drop(stalled);
    }
}
