//! Looks up the addresses of a host. The C library blocks its thread while a name server is silent, so the lookups of a
//! host have a thread of their own. Never occupies the threads that the parts of machined share.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::bulkhead::Bulkhead;

/// The lookups of one host, one at a time.
#[derive(Debug)]
pub struct Lookups {
    thread: Bulkhead,
    /// The last answer. Locked during a lookup, so that all who wait for it share its answer.
    last: Mutex<Option<Answer>>,
}

#[derive(Debug)]
struct Answer {
    at: Instant,
    found: Result<Vec<SocketAddr>, String>,
}

impl Lookups {
    /// No lookup yet; `patience` is the timeout of each.
    pub fn new(patience: Duration) -> Lookups {
        Lookups {
            thread: Bulkhead::new(1, patience),
            last: Mutex::new(None),
        }
    }

    /// The addresses of the host, by the hosts file and the name servers.
    ///
    /// # Errors
    /// The name has no address, or no answer came in time. While a lookup hangs, the next ones fail at once.
    pub async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        self.answer(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
            .await
    }

    async fn answer(
        &self,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let asked = Instant::now();
        let last = self.thread.within(self.last.lock()).await;
        let mut last = last.map_err(io::Error::other)?;
        let shared = last.as_ref().filter(|answer| answer.at >= asked);
        let shared = shared.map(|answer| answer.found.clone());
        let found = match shared {
            Some(found) => found,
            None => {
                let ended = self.thread.run(look_up).await;
                let found = ended.map_err(io::Error::other).flatten();
                let found = found.map_err(|error| error.to_string());
                *last = Some(Answer {
                    at: Instant::now(),
                    found: found.clone(),
                });
                found
            }
        };
        found.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A lookup that is counted, and that waits for its name server.
    fn lookup(
        count: &Arc<AtomicUsize>,
    ) -> (
        Sender<SocketAddr>,
        impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) {
        let (server, answers) = channel();
        let count = count.clone();
        let look_up = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(vec![answers.recv().map_err(io::Error::other)?])
        };
        (server, look_up)
    }

    fn address() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 6443))
    }

    #[tokio::test]
    async fn all_who_wait_for_a_lookup_share_its_answer() {
        let (lookups, count) = (Lookups::new(LONG), Arc::default());
        let (server, look_up) = lookup(&count);
        let mut first = Box::pin(lookups.answer(look_up));
        assert!(poll!(first.as_mut()).is_pending());
        let waiting = (0..100).map(|_| Box::pin(lookups.answer(lookup(&count).1)));
        let mut waiting: Vec<_> = waiting.collect();
        for one in &mut waiting {
            assert!(poll!(one.as_mut()).is_pending());
        }
        server.send(address()).unwrap();
        assert_eq!(first.await.unwrap(), [address()]);
        for found in join_all(waiting).await {
            assert_eq!(found.unwrap(), [address()]);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        // A later caller gets a new answer, here from a server that is gone.
        let (server, look_up) = lookup(&count);
        drop(server);
        lookups.answer(look_up).await.unwrap_err();
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn silent_name_server_occupies_one_thread_and_fails_later_lookups_at_once() {
        let (lookups, count) = (Lookups::new(Duration::from_millis(1)), Arc::default());
        let (server, look_up) = lookup(&count);
        let silent = lookups.answer(look_up).await.unwrap_err();
        assert!(silent.to_string().contains("no answer"), "{silent}");
        for _ in 0..100 {
            lookups.answer(lookup(&count).1).await.unwrap_err();
        }
        assert!(count.load(Ordering::SeqCst) <= 1);
        drop(server);
        assert_eq!(
            lookups.addresses("192.0.2.1", 6443).await.unwrap(),
            [address()]
        );
    }
}
