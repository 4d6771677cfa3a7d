//! A daemon that the supervisor starts at the first connection, and that ends when it has no connection.

use std::io;
use std::net;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};

/// Time without a connection after which a daemon ends. It is shorter than the interval of the supervisor's health checks
/// (10 s), which are connections, too.
const IDLE: Duration = Duration::from_secs(5);

/// Takes the listening socket from standard input (systemd.exec(5), `StandardInput=socket`).
///
/// # Errors
/// Standard input is no listening socket of TCP.
pub fn passed() -> Result<TcpListener, String> {
    let take = || {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let listener = net::TcpListener::from(socket);
        listener.local_addr()?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    take().map_err(|error| format!("standard input is not a listening socket: {error}"))
}

/// Counts the connections of a daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clients(Arc<Mutex<Uses>>);

#[derive(Debug)]
struct Uses {
    now: usize,
    last: Instant,
}

/// A connection; it counts until this is dropped.
#[derive(Debug)]
pub struct Client(Clients);

impl Default for Clients {
    fn default() -> Clients {
        Clients(Arc::new(Mutex::new(Uses {
            now: 0,
            last: Instant::now(),
        })))
    }
}

impl Clients {
    /// Counts an accepted connection, before anything else is awaited. A connection that is not accepted stays in the
    /// kernel's queue for the next process. A counted one keeps this process.
    #[must_use]
    pub fn enter(&self) -> Client {
        self.uses().now += 1;
        Client(self.clone())
    }

    /// Returns when there was no connection for some seconds.
    pub async fn none_for_long(&self) {
        loop {
            let quiet_at = self.uses().quiet_at();
            let now = Instant::now();
            if quiet_at <= now {
                return;
            }
            sleep_until(quiet_at).await;
        }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uses {
    /// Earliest time at which the daemon may end.
    fn quiet_at(&self) -> Instant {
        let last = if self.now > 0 {
            Instant::now()
        } else {
            self.last
        };
        last + IDLE
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut uses = self.0.uses();
        uses.now = uses.now.saturating_sub(1);
        uses.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn daemon_ends_some_seconds_after_its_last_client() {
        let begun = Instant::now();
        let clients = Clients::default();
        let first = clients.enter();
        let second = clients.enter();
        drop(second);
        timeout(100 * IDLE, clients.none_for_long())
            .await
            .unwrap_err();
        drop(first);
        sleep(IDLE / 2).await;
        let other = clients.clone();
        drop(other.enter());
        clients.none_for_long().await;
        assert_eq!(begun.elapsed(), 100 * IDLE + IDLE / 2 + IDLE);
    }

    #[test]
    fn standard_input_without_a_socket_is_an_error() {
        // The test's standard input is a file, a pipe or /dev/null.
        let error = passed().unwrap_err();
        assert!(error.starts_with("standard input is not a "), "{error}");
    }
}
