//! How long a service may take, how its health is checked, and when it comes back.

use std::time::Duration;

use crate::health::HealthCheck;

/// How long one service may take, how its health is checked, and whether it comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the start to `READY=1`; `None` when the service does not notify and counts as up at once.
    pub ready: Option<Duration>,
    /// How it is asked whether it works once it is up; `None`: what is up works.
    pub health: Option<HealthCheck>,
    /// From SIGTERM to SIGKILL.
    pub stop: Duration,
    /// Whether it starts again when it has ended by itself.
    pub restart: Restart,
    /// Pauses before a restart.
    pub backoff: Backoff,
}

/// What becomes of a service that ended, or could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// It starts again.
    Always,
    /// It starts again unless it ended with exit code 0.
    UntilSuccess,
    /// It rests.
    Never,
}

/// How long a dead service waits before it starts again: the pause doubles with every death in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first death. Short, because a daemon killed once by accident should hardly be missed.
    pub first: Duration,
    /// At most. A service that cannot start must not keep the node's only core busy.
    pub longest: Duration,
    /// A service that was up this long begins with `first` again.
    pub forgiven_after: Duration,
}

impl Backoff {
    /// The pause after so many deaths in a row.
    #[must_use]
    pub fn pause(self, deaths: u32) -> Duration {
        let factor = 2u32.saturating_pow(deaths.saturating_sub(1).min(16));
        self.first.saturating_mul(factor).min(self.longest)
    }
}
