//! Where a service is.

use std::fmt;
use std::time::Instant;

use super::checks::Checks;

/// What of a service runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// A child of ours with this process id.
    Process(u32),
    /// A container, or the attempt to start one.
    Container,
    /// A task of machined's own.
    Task,
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Process(pid) => write!(f, "PID {pid}"),
            Runs::Container => f.write_str("the container"),
            Runs::Task => f.write_str("the task"),
        }
    }
}

/// Where a service is. `deaths` counts those in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Declared, never asked to start.
    Initialized,
    /// Asked to start; a service it depends on is not up.
    Waiting { deaths: u32 },
    /// The shell was told to spawn it and has not answered.
    Spawning { deaths: u32 },
    /// It runs and has not said that it is ready.
    Starting {
        runs: Runs,
        give_up: Instant,
        deaths: u32,
    },
    /// It has come up, and works as far as `checks` know.
    Running {
        runs: Runs,
        since: Instant,
        deaths: u32,
        checks: Checks,
    },
    /// It died and starts again at `until`.
    Pausing { until: Instant, deaths: u32 },
    /// It was told to end, and is killed at `kill_at`.
    Stopping {
        runs: Runs,
        kill_at: Instant,
        again: bool,
    },
    /// It ended because it was told to, or because it is not to start again.
    Finished,
}

impl State {
    /// When [`Event::Tick`](super::Event::Tick) is due.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        match self {
            State::Starting { give_up, .. } => Some(give_up),
            State::Running { checks, .. } => checks.deadline(),
            State::Pausing { until, .. } => Some(until),
            State::Stopping { kill_at, .. } => Some(kill_at),
            _ => None,
        }
    }

    /// What runs.
    #[must_use]
    pub fn runs(self) -> Option<Runs> {
        match self {
            State::Starting { runs, .. }
            | State::Running { runs, .. }
            | State::Stopping { runs, .. } => Some(runs),
            _ => None,
        }
    }

    /// Whether others may depend on it now.
    #[must_use]
    pub fn is_up(self) -> bool {
        matches!(self, State::Running { checks, .. } if checks.are_good())
    }

    /// Whether nothing of it runs or is going to.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self, State::Initialized | State::Finished)
    }
}
