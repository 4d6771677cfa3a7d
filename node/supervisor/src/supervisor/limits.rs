//! Timeouts, health checks, start and restart policy of services.

use std::net::SocketAddr;
use std::time::Duration;

use crate::health::HealthCheck;

/// Timeouts, health check, start and restart policy of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// When it starts.
    pub start: Start,
    /// Timeout from the start to `READY=1`; `None` if the service does not notify and counts as up at once.
    pub ready: Option<Duration>,
    /// Health check of the running service; without one, a running service counts as healthy.
    pub health: Option<HealthCheck>,
    /// Timeout from SIGTERM to SIGKILL.
    pub stop: Duration,
    /// Restart policy.
    pub restart: Restart,
    /// Delays before restarts.
    pub backoff: Backoff,
}

/// When a service starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// As soon as its dependencies are up.
    AtOnce,
    /// At the first connection to this address, on which machined listens meanwhile. The process gets the listening
    /// socket as standard input. It ends with code 0 when no client has needed it for a while, and starts again at the
    /// next connection. An unspecified IPv6 address is for both families, or for IPv4 where the kernel has no IPv6.
    OnDemand(SocketAddr),
}

/// Whether a service restarts when it ends by itself or fails to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Always restart.
    Always,
    /// Restart unless the exit code is 0.
    UntilSuccess,
    /// Never restart.
    Never,
}

/// Exponential back-off before restarts: the delay doubles with every consecutive failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure. It is short, so that a daemon killed by accident is back at once.
    pub first: Duration,
    /// Maximum delay. A service that cannot start must not occupy a single-core node.
    pub longest: Duration,
    /// Uptime after which the delay starts again with `first`.
    pub forgiven_after: Duration,
}

impl Backoff {
    /// The delay after this number of consecutive failures.
    #[must_use]
    pub fn pause(self, deaths: u32) -> Duration {
        let factor = 2u32.saturating_pow(deaths.saturating_sub(1).min(16));
        self.first.saturating_mul(factor).min(self.longest)
    }
}
