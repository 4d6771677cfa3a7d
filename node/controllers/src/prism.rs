//! KubePrism: a TCP load balancer for the API servers on the loopback address.
//!
//! It selects a server per connection and tracks which servers accept connections. It never inspects the traffic; TLS
//! is end to end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corten_base::lookups::Lookups;
use corten_dial::one_of;
use corten_kubernetes::Upstream;
use rustix::net::sockopt;
use tokio::io::{self, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// Limit of concurrent connections.
const CONNECTIONS: usize = 1024;
/// Interval of health checks.
const ROUND: Duration = Duration::from_secs(20);
/// Timeout of connecting to a server, DNS lookup included.
const DIAL: Duration = Duration::from_secs(5);
/// Timeout of acknowledgements; then a connection to a server is closed.
const SILENCE: Duration = Duration::from_secs(30);

/// The servers and their health. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Servers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: Vec<Server>,
    turn: usize,
}

#[derive(Debug, Clone)]
struct Server {
    upstream: Upstream,
    lookups: Arc<Lookups>,
    works: bool,
}

impl Servers {
    /// Replaces the servers. A new server counts as healthy until a connection fails.
    pub fn set(&self, upstreams: Vec<Upstream>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut state.all);
        let server = |upstream: Upstream| {
            let known = old.iter().find(|one| one.upstream == upstream);
            known.cloned().unwrap_or_else(|| Server {
                upstream,
                lookups: Arc::new(Lookups::new(DIAL)),
                works: true,
            })
        };
        state.all = upstreams.into_iter().map(server).collect();
    }

    /// All servers in the order of attempts: healthy ones round-robin, then the others.
    fn order(&self) -> Vec<Server> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut good, bad): (Vec<Server>, Vec<Server>) =
            state.all.iter().cloned().partition(|server| server.works);
        if !good.is_empty() {
            let turn = state.turn % good.len();
            good.rotate_left(turn);
        }
        state.turn = state.turn.wrapping_add(1);
        good.extend(bad);
        good
    }

    fn all(&self) -> Vec<Server> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.clone()
    }

    fn mark(&self, upstream: &Upstream, works: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = state.all.iter_mut().find(|one| one.upstream == *upstream);
        if let Some(server) = server {
            server.works = works;
        }
    }

    fn any_works(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.iter().any(|server| server.works)
    }

    /// Connects to the first server that accepts.
    async fn dial(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::other("no API server is known");
        for server in self.order() {
            let connected = server.connect().await;
            self.mark(&server.upstream, connected.is_ok());
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Checks each server once. Does not advance the round-robin.
    async fn look(&self) {
        let mut looks = JoinSet::new();
        for server in self.all() {
            let servers = self.clone();
            looks.spawn(async move {
                let works = server.connect().await.is_ok();
                servers.mark(&server.upstream, works);
            });
        }
        looks.join_all().await;
    }
}

impl Server {
    async fn connect(&self) -> io::Result<TcpStream> {
        let Upstream { host, port } = &self.upstream;
        let found = timeout(DIAL, self.lookups.addresses(host, *port)).await??;
        let stream = one_of(found, DIAL).await?;
        // Best effort: without these options a dead server is noticed later.
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, SILENCE);
        let silence = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(&stream, silence);
        Ok(stream)
    }
}

/// Forwards connections of `listener` to the servers, and reports to `healthy` after each check whether any server
/// works. Runs until it is dropped, which closes its connections.
pub async fn serve(listener: TcpListener, servers: Servers, healthy: watch::Sender<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut rounds = interval(ROUND);
    loop {
        tokio::select! {
            _ = rounds.tick() => {
                let (servers, healthy) = (servers.clone(), healthy.clone());
                connections.spawn(async move {
                    servers.look().await;
                    healthy.send_replace(servers.any_works());
                });
            }
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener, &places) => {
                // The client is gone already, or file descriptors ran out; a later accept may succeed.
                let Ok((client, place)) = accepted else {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let servers = servers.clone();
                connections.spawn(async move {
                    let _place = place;
                    let mut client = client;
                    if let Ok(mut server) = servers.dial().await {
                        // The way either end closes does not matter.
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        }
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let (client, _) = listener.accept().await?;
    Ok((client, place))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn listener() -> (TcpListener, Upstream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = Ipv4Addr::LOCALHOST.to_string();
        (listener, Upstream { host, port })
    }

    /// A server that sends its letter on each connection.
    async fn server(letter: u8) -> (Upstream, tokio::task::JoinHandle<()>) {
        let (listener, upstream) = listener().await;
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&[letter]).await;
            }
        });
        (upstream, task)
    }

    async fn ask(prism: &Upstream) -> Option<u8> {
        let mut stream = TcpStream::connect((&*prism.host, prism.port))
            .await
            .unwrap();
        let mut letter = [0];
        let read = stream.read_exact(&mut letter).await;
        read.is_ok().then_some(letter[0])
    }

    #[tokio::test]
    async fn connections_rotate_over_working_servers() {
        let (a, task_a) = server(b'a').await;
        let (b, _task_b) = server(b'b').await;
        let (listener, prism) = listener().await;
        let servers = Servers::default();
        servers.set(vec![a, b]);
        let health = watch::Sender::new(false);
        let mut healthy = health.subscribe();
        let task = tokio::spawn(serve(listener, servers, health));
        let mut seen = [ask(&prism).await, ask(&prism).await];
        seen.sort_unstable();
        assert_eq!(seen, [Some(b'a'), Some(b'b')]);
        task_a.abort();
        let _ = task_a.await;
        for _ in 0..4 {
            assert_eq!(ask(&prism).await, Some(b'b'));
        }
        assert!(*healthy.wait_for(|healthy| *healthy).await.unwrap());
        task.abort();
    }

    #[tokio::test]
    async fn connection_without_a_working_server_is_closed() {
        let (listener, prism) = listener().await;
        let (gone, nobody) = self::listener().await;
        drop(gone);
        let servers = Servers::default();
        servers.set(vec![nobody]);
        let task = tokio::spawn(serve(listener, servers, watch::Sender::new(false)));
        assert_eq!(ask(&prism).await, None);
        task.abort();
    }
    #[test]
    fn name_of_a_server_needs_no_shared_thread() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build();
        let (end, hangs) = std::sync::mpsc::channel::<()>();
        runtime.unwrap().block_on(async {
            // The only shared thread hangs.
            drop(tokio::task::spawn_blocking(move || hangs.recv()));
            let (server, _task) = server(b'a').await;
            let servers = Servers::default();
            servers.set(vec![Upstream {
                host: "localhost".to_owned(),
                ..server
            }]);
            servers.dial().await.unwrap();
            drop(end);
        });
    }
}
