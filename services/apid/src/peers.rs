//! Connections to other nodes: TLS to their apid, with this node's client certificate.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tonic::Status;

use crate::LOOKUPS;
use crate::answer::Answer;
use crate::connection::{ANOTHER_NODES, Connection};
use crate::link::{Links, describe};
use crate::local;
use crate::reply::Body;

/// Number of nodes whose connections are kept. Each costs about 50 KiB on both ends. The other end drops connections
/// that are idle for long.
const KEPT: usize = 128;
/// Timeout for connecting to all addresses of a name, part of the time for connection and TLS (`link.rs`).
const TCP: Duration = Duration::from_secs(3);

/// Opens a connection to the API port of a node, given by host name or IP address.
pub type Dial = Arc<dyn Fn(&str) -> BoxFuture<'static, io::Result<TcpStream>> + Send + Sync>;

/// Connections to all other nodes that were called.
pub(crate) struct Peers {
    dial: Dial,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    of: HashMap<String, Node>,
    /// Call counter, for finding the least recently called node.
    clock: u64,
}

struct Node {
    links: Arc<Links>,
    /// TLS configuration of its connections.
    config: Arc<ClientConfig>,
    used: u64,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Peers {
    pub(crate) fn new(dial: Dial) -> Peers {
        Peers {
            dial,
            nodes: Mutex::default(),
        }
    }

    /// Connects to a node unless there is a connection.
    pub(crate) async fn reach(&self, node: &str, config: &Arc<ClientConfig>) -> Result<(), Status> {
        let links = self.links(node, config);
        let opened = links.open(|| Box::pin(self.connect(node, config))).await;
        opened.map(drop).map_err(|status| named(node, &status))
    }

    /// Sends a request to a node and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        node: &str,
        config: &Arc<ClientConfig>,
        request: Request<Body>,
    ) -> Result<Response<Answer>, Status> {
        let links = self.links(node, config);
        links
            .send(request, || Box::pin(self.connect(node, config)))
            .await
            .map_err(|status| named(node, &status))
    }

    async fn connect(&self, node: &str, config: &Arc<ClientConfig>) -> Result<Connection, Status> {
        let name = ServerName::try_from(local::bare(node).to_owned())
            .map_err(|_| Status::invalid_argument("not a host name or an IP address"))?;
        let stream = (self.dial)(node)
            .await
            .map_err(|error| Status::unavailable(format!("cannot be reached: {error}")))?;
        let _ = stream.set_nodelay(true);
        let stream = TlsConnector::from(config.clone())
            .connect(name, stream)
            .await
            .map_err(|error| Status::unavailable(format!("not a trusted node: {error}")))?;
        Connection::begin(stream, ANOTHER_NODES)
            .await
            .map_err(|error| Status::unavailable(describe(&error)))
    }

    /// The shared connections to a node. Connections with an older certificate are left to their running calls.
    fn links(&self, node: &str, config: &Arc<ClientConfig>) -> Arc<Links> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.clock += 1;
        let used = nodes.clock;
        let key = node.to_ascii_lowercase();
        if let Some(known) = nodes.of.get_mut(&key)
            && Arc::ptr_eq(&known.config, config)
        {
            known.used = used;
            return known.links.clone();
        }
        nodes.make_room();
        let links = Arc::new(Links::default());
        let new = Node {
            links: links.clone(),
            config: config.clone(),
            used,
        };
        nodes.of.insert(key, new);
        links
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.nodes.lock().unwrap().of.len()
    }
}

impl Nodes {
    /// Forgets the least recently called idle nodes. Busy nodes stay; the limit of calls bounds their number.
    fn make_room(&mut self) {
        while self.of.len() >= KEPT {
            let idle = self.of.iter().filter(|(_, node)| node.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, node)| node.used) else {
                return;
            };
            let oldest = oldest.0.clone();
            self.of.remove(&oldest);
        }
    }
}

impl Node {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.links) == 1 && self.links.are_idle()
    }
}

fn named(node: &str, status: &Status) -> Status {
    Status::new(status.code(), format!("{node}: {}", status.message()))
}

/// Dials TCP port 50000.
pub(crate) fn network() -> Dial {
    let lookups = Arc::new(Semaphore::new(LOOKUPS));
    Arc::new(move |node| {
        let node = local::unbracketed(node).to_owned();
        let lookups = lookups.clone();
        Box::pin(async move {
            if let Ok(address) = node.parse::<IpAddr>() {
                return TcpStream::connect((address, corten_api::PORT)).await;
            }
            let look_up = move || (node, corten_api::PORT).to_socket_addrs();
            let found = one_of_few(&lookups, look_up).await?;
            let addresses = found.map_err(|error| {
                let text = format!("{error}; an IP address needs no name server");
                io::Error::new(error.kind(), text)
            })?;
            corten_dial::one_of(addresses.collect(), TCP).await
        })
    })
}

/// Runs blocking work that cannot be cancelled. Work that its caller abandons while it queues is never started and
/// takes no place in the queue.
async fn one_of_few<T: Send + 'static>(
    few: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let place = few.clone().acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let done = spawn_blocking(move || {
        let _until_it_is_done = place;
        work()
    });
    done.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use futures_util::poll;

    use super::*;
    use crate::tests::client::tls;

    #[tokio::test]
    async fn abandoned_name_lookups_do_not_block_later_ones() {
        let few = Arc::new(Semaphore::new(1));
        let (answers, name_server) = mpsc::channel::<()>();
        let mut hanging = Box::pin(one_of_few(&few, move || name_server.recv()));
        assert!(poll!(hanging.as_mut()).is_pending());
        let asked = Arc::<AtomicBool>::default();
        let was_asked = asked.clone();
        let ask = move || was_asked.store(true, Ordering::SeqCst);
        let mut behind = Box::pin(one_of_few(&few, ask));
        assert!(poll!(behind.as_mut()).is_pending());
        drop((hanging, behind));
        // The abandoned work still occupies its thread.
        assert_eq!(few.available_permits(), 0);
        drop(answers);
        assert_eq!(one_of_few(&few, || 7).await.unwrap(), 7);
        assert!(!asked.load(Ordering::SeqCst));
    }

    #[test]
    fn kept_connections_are_bounded_to_busy_and_recent_nodes() {
        let peers = Peers::new(network());
        let config = tls(None, None);
        let busy = peers.links("busy", &config);
        for n in 0..1000 {
            peers.links(&format!("n{n}"), &config);
        }
        assert_eq!(peers.kept(), KEPT);
        assert!(Arc::ptr_eq(&busy, &peers.links("BUSY", &config)));
        // Another certificate has other connections.
        assert!(!Arc::ptr_eq(&busy, &peers.links("busy", &tls(None, None))));
        let all: Vec<_> = (0..300)
            .map(|n| peers.links(&format!("m{n}"), &config))
            .collect();
        assert_eq!(peers.kept(), all.len());
        drop(all);
        peers.links("next", &config);
        assert_eq!(peers.kept(), KEPT);
    }
}
