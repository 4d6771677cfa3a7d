//! States of a service.

use std::fmt;
use std::time::Instant;

use super::checks::Checks;

/// The running form of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// A child process with this PID.
    Process(u32),
    /// A container, or the attempt to start one.
    Container,
    /// A task of machined.
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

/// State of a service. `deaths` counts consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Declared, never asked to start.
    Initialized,
    /// Asked to start; waits for dependencies.
    Waiting { deaths: u32 },
    /// The shell was told to spawn it and has not answered.
    Spawning { deaths: u32 },
    /// It is up without a process: machined listens for the first connection.
    Listening { deaths: u32 },
    /// It runs but has not reported that it is ready.
    Starting {
        runs: Runs,
        give_up: Instant,
        deaths: u32,
    },
    /// It is up, and healthy according to `checks`.
    Running {
        runs: Runs,
        since: Instant,
        deaths: u32,
        checks: Checks,
    },
    /// It died and restarts at `until`.
    Pausing { until: Instant, deaths: u32 },
    /// It was asked to end, and is killed at `kill_at`.
    Stopping {
        runs: Runs,
        kill_at: Instant,
        again: bool,
    },
    /// It ended on request, or is not to restart.
    Finished,
}

impl State {
    /// Time at which [`Event::Tick`](super::Event::Tick) is due.
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

    /// The running form, if any.
    #[must_use]
    pub fn runs(self) -> Option<Runs> {
        match self {
            State::Starting { runs, .. }
            | State::Running { runs, .. }
            | State::Stopping { runs, .. } => Some(runs),
            _ => None,
        }
    }

    /// Whether dependents may use it now.
    #[must_use]
    pub fn is_up(self) -> bool {
        match self {
            State::Listening { .. } => true,
            State::Running { checks, .. } => checks.are_good(),
            _ => false,
        }
    }

    /// Whether it neither runs nor is about to.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self, State::Initialized | State::Finished)
    }
}
