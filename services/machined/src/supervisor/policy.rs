//! What happens to one service, as a pure state machine: no clock, no process, no lock.
//!
//! The shell (`supervisor/mod.rs`) tells it what happened, carries out what it answers, and calls it again
//! at [`State::deadline`].

use std::time::{Duration, Instant};

use corten_sys::process::Exit;

use crate::node::ServiceState;

/// The time limits of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the start to `READY=1`; `None` when the service does not notify and counts as up at once.
    pub ready: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub stop: Duration,
    /// Pauses before a restart.
    pub backoff: Backoff,
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
    fn pause(self, deaths: u32) -> Duration {
        let factor = 2u32.saturating_pow(deaths.saturating_sub(1).min(16));
        self.first.saturating_mul(factor).min(self.longest)
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
        pid: u32,
        give_up: Instant,
        deaths: u32,
    },
    /// It is up.
    Running {
        pid: u32,
        since: Instant,
        deaths: u32,
    },
    /// It died and starts again at `until`.
    Pausing { until: Instant, deaths: u32 },
    /// It was told to end, and is killed at `kill_at`.
    Stopping {
        pid: u32,
        kill_at: Instant,
        again: bool,
    },
    /// It ended because it was told to.
    Finished,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It shall run.
    Start,
    /// It shall not run.
    Stop,
    /// It shall run anew, with its present declaration.
    Restart,
    /// Everything it depends on is up.
    DependenciesUp,
    /// The answer to [`Act::Spawn`].
    Spawned(u32),
    /// The other answer to [`Act::Spawn`].
    SpawnFailed(String),
    /// It said `READY=1`.
    Ready,
    /// Its process ended.
    Exited(Exit),
    /// The clock reached [`State::deadline`].
    Tick,
}

/// What the shell shall do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Start the process when the dependencies are up (then answer `DependenciesUp`).
    AwaitDependencies,
    /// Start the process.
    Spawn,
    /// Ask the process group to end.
    Terminate(u32),
    /// End the process group.
    Kill(u32),
    /// Write this into the history, as this state.
    Note(ServiceState, String),
    /// Health has become this.
    Health(bool),
}

impl State {
    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        match self {
            State::Starting { give_up, .. } => Some(give_up),
            State::Pausing { until, .. } => Some(until),
            State::Stopping { kill_at, .. } => Some(kill_at),
            _ => None,
        }
    }

    /// The process, while there is one.
    #[must_use]
    pub fn pid(self) -> Option<u32> {
        match self {
            State::Starting { pid, .. }
            | State::Running { pid, .. }
            | State::Stopping { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// Whether others may depend on it now.
    #[must_use]
    pub fn is_up(self) -> bool {
        matches!(self, State::Running { .. })
    }

    /// Whether nothing of it runs or is going to.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self, State::Initialized | State::Finished)
    }
}

/// One step. An event that means nothing in this state changes nothing.
#[must_use]
pub fn step(state: State, event: Event, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    match event {
        Event::Start => match state {
            State::Initialized | State::Finished => begin(0, "Starting service"),
            State::Stopping { pid, kill_at, .. } => (
                State::Stopping {
                    pid,
                    kill_at,
                    again: true,
                },
                vec![],
            ),
            _ => (state, vec![]),
        },
        Event::Stop => stop(state, now, limits, false),
        Event::Restart => stop(state, now, limits, true),
        Event::DependenciesUp => match state {
            State::Waiting { deaths } => (State::Spawning { deaths }, vec![Act::Spawn]),
            _ => (state, vec![]),
        },
        Event::Spawned(pid) => match state {
            State::Spawning { deaths } => spawned(pid, deaths, now, limits),
            _ => (state, vec![Act::Kill(pid)]),
        },
        Event::SpawnFailed(why) => match state {
            State::Spawning { deaths } => {
                pause(deaths, now, limits, &format!("Failed to start: {why}"))
            }
            _ => (state, vec![]),
        },
        Event::Ready => match state {
            State::Starting { pid, deaths, .. } => up(pid, deaths, now, "Service is ready"),
            _ => (state, vec![]),
        },
        Event::Exited(exit) => exited(state, exit, now, limits),
        Event::Tick => tick(state, now, limits),
    }
}

fn begin(deaths: u32, why: &str) -> (State, Vec<Act>) {
    let acts = vec![
        Act::Note(ServiceState::Starting, why.to_owned()),
        Act::AwaitDependencies,
    ];
    (State::Waiting { deaths }, acts)
}

fn spawned(pid: u32, deaths: u32, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    let message = format!("Process started with PID {pid}");
    match limits.ready {
        Some(limit) => (
            State::Starting {
                pid,
                give_up: now + limit,
                deaths,
            },
            vec![Act::Note(ServiceState::Starting, message)],
        ),
        None => up(pid, deaths, now, &message),
    }
}

fn up(pid: u32, deaths: u32, now: Instant, message: &str) -> (State, Vec<Act>) {
    let acts = vec![
        Act::Note(ServiceState::Running, message.to_owned()),
        Act::Health(true),
    ];
    (
        State::Running {
            pid,
            since: now,
            deaths,
        },
        acts,
    )
}

fn stop(state: State, now: Instant, limits: &Limits, again: bool) -> (State, Vec<Act>) {
    match state {
        State::Starting { pid, .. } | State::Running { pid, .. } => (
            State::Stopping {
                pid,
                kill_at: now + limits.stop,
                again,
            },
            vec![
                Act::Note(
                    ServiceState::Stopping,
                    format!("Sending SIGTERM to PID {pid}"),
                ),
                Act::Health(false),
                Act::Terminate(pid),
            ],
        ),
        State::Stopping { pid, kill_at, .. } => (
            State::Stopping {
                pid,
                kill_at,
                again,
            },
            vec![],
        ),
        _ if again => begin(0, "Starting service"),
        State::Initialized | State::Finished => (state, vec![]),
        // `Spawning` answers within the same turn of the shell, so nothing can be running here.
        State::Waiting { .. } | State::Spawning { .. } | State::Pausing { .. } => (
            State::Finished,
            vec![Act::Note(
                ServiceState::Finished,
                "Service finished successfully".into(),
            )],
        ),
    }
}

fn exited(state: State, exit: Exit, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    let (mut acts, (state, more)) = match state {
        State::Starting { pid, deaths, .. } => (
            vec![Act::Kill(pid)],
            pause(
                deaths,
                now,
                limits,
                &format!("Process ended before it was ready: {exit}"),
            ),
        ),
        State::Running { pid, since, deaths } => {
            let forgiven = now.saturating_duration_since(since) >= limits.backoff.forgiven_after;
            let deaths = if forgiven { 0 } else { deaths };
            (
                vec![Act::Kill(pid), Act::Health(false)],
                pause(deaths, now, limits, &format!("Process ended: {exit}")),
            )
        }
        State::Stopping {
            pid, again: true, ..
        } => (vec![Act::Kill(pid)], begin(0, "Starting service again")),
        State::Stopping {
            pid, again: false, ..
        } => (
            vec![Act::Kill(pid)],
            (
                State::Finished,
                vec![Act::Note(
                    ServiceState::Finished,
                    format!("Service finished: {exit}"),
                )],
            ),
        ),
        other => (vec![], (other, vec![])),
    };
    acts.extend(more);
    (state, acts)
}

fn pause(deaths: u32, now: Instant, limits: &Limits, why: &str) -> (State, Vec<Act>) {
    let deaths = deaths.saturating_add(1);
    let pause = limits.backoff.pause(deaths);
    let message = format!("{why}; starting again in {} ms", pause.as_millis());
    (
        State::Pausing {
            until: now + pause,
            deaths,
        },
        vec![Act::Note(ServiceState::Waiting, message)],
    )
}

fn tick(state: State, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    match state {
        State::Pausing { until, deaths } if now >= until => begin(deaths, "Starting service again"),
        State::Starting {
            pid,
            give_up,
            deaths,
        } if now >= give_up => {
            let seconds = limits.ready.unwrap_or_default().as_secs();
            let message = format!("Not ready after {seconds} s; killing PID {pid}");
            // It stays `Starting` until the kernel reports the death, which then counts as one.
            (
                State::Starting {
                    pid,
                    give_up: now + limits.stop,
                    deaths,
                },
                vec![Act::Note(ServiceState::Failed, message), Act::Kill(pid)],
            )
        }
        State::Stopping {
            pid,
            kill_at,
            again,
        } if now >= kill_at => (
            State::Stopping {
                pid,
                kill_at: now + limits.stop,
                again,
            },
            vec![
                Act::Note(
                    ServiceState::Stopping,
                    format!("Sending SIGKILL to PID {pid}"),
                ),
                Act::Kill(pid),
            ],
        ),
        other => (other, vec![]),
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
