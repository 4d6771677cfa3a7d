//! The life cycle of one service as a pure state machine: no clock, no process, no lock.
//!
//! The shell (`supervisor/shell.rs`) feeds it events, carries out its answers, and calls it again at
//! [`State::deadline`].

mod checks;
mod state;

use std::net::SocketAddr;
use std::time::Instant;

use corten_sys::process::Exit;

use super::limits::{Limits, Restart, Start};
use crate::view::ServiceState;
use checks::Checks;
pub use state::{Runs, State};

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Request to run.
    Start,
    /// Request to stop.
    Stop,
    /// Request to run anew with the current declaration.
    Restart,
    /// All dependencies are up.
    DependenciesUp,
    /// Success of [`Act::Listen`].
    Listening,
    /// The first connection to the listening socket.
    Connected,
    /// Success of [`Act::Spawn`].
    Spawned(Runs),
    /// Failure of [`Act::Listen`] or [`Act::Spawn`]. A container can fail later as well, if it could not be started or its fate is
    /// unknown.
    Failed(String),
    /// The service is ready; the text is for its history.
    Ready(String),
    /// The service ended.
    Exited(Exit),
    /// Result of [`Act::Check`].
    Checked(Result<(), String>),
    /// The time is [`State::deadline`].
    Tick,
}

/// An output of the state machine; the shell carries out outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Wait until the dependencies are up, then feed `DependenciesUp`.
    AwaitDependencies,
    /// Listen on this address, then feed `Listening`, and `Connected` at the first connection.
    Listen(SocketAddr),
    /// Start the process.
    Spawn,
    /// Ask the process group or the container to end.
    Terminate(Runs),
    /// Kill it.
    Kill(Runs),
    /// Add this message to the history, with this state.
    Note(ServiceState, String),
    /// Run a health check, then feed `Checked`.
    Check,
    /// The service is healthy, or not for this reason.
    Health(Result<(), String>),
}

/// Performs one step. An event without meaning in this state changes nothing.
#[must_use]
pub fn step(state: State, event: Event, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    match event {
        Event::Start => match state {
            State::Initialized | State::Finished => begin(0, "Starting service"),
            State::Stopping { runs, kill_at, .. } => (
                State::Stopping {
                    runs,
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
            State::Waiting { deaths } => enter(deaths, limits),
            _ => (state, vec![]),
        },
        Event::Listening => match (state, limits.start) {
            (State::Spawning { deaths }, Start::OnDemand(address)) => listening(deaths, address),
            _ => (state, vec![]),
        },
        Event::Connected => match state {
            State::Listening { deaths } => (State::Spawning { deaths }, vec![Act::Spawn]),
            _ => (state, vec![]),
        },
        Event::Spawned(runs) => match state {
            State::Spawning { deaths } => spawned(runs, deaths, now, limits),
            _ => (state, vec![Act::Kill(runs)]),
        },
        Event::Ready(what) => match state {
            State::Starting { runs, deaths, .. } => up(runs, deaths, now, limits, &what),
            _ => (state, vec![]),
        },
        Event::Failed(why) => ended(state, &Ending::failed(why), now, limits),
        Event::Exited(exit) => ended(state, &Ending::of(exit), now, limits),
        Event::Checked(answer) => checks::answered(state, answer, now, limits),
        Event::Tick => tick(state, now, limits),
    }
}

/// The end of a service.
struct Ending {
    how: String,
    succeeded: bool,
}

impl Ending {
    fn of(exit: Exit) -> Ending {
        Ending {
            how: exit.to_string(),
            succeeded: exit == Exit::Code(0),
        }
    }

    fn failed(why: String) -> Ending {
        Ending {
            how: why,
            succeeded: false,
        }
    }
}

fn begin(deaths: u32, why: &str) -> (State, Vec<Act>) {
    let acts = vec![
        Act::Note(ServiceState::Starting, why.to_owned()),
        Act::AwaitDependencies,
    ];
    (State::Waiting { deaths }, acts)
}

/// Starts a service whose dependencies are up, or listens for its first connection.
fn enter(deaths: u32, limits: &Limits) -> (State, Vec<Act>) {
    let act = match limits.start {
        Start::AtOnce => Act::Spawn,
        Start::OnDemand(address) => Act::Listen(address),
    };
    (State::Spawning { deaths }, vec![act])
}

fn listening(deaths: u32, address: SocketAddr) -> (State, Vec<Act>) {
    let message = format!("Listening on {address}; a connection starts the process");
    let acts = vec![
        Act::Health(Ok(())),
        Act::Note(ServiceState::Running, message),
    ];
    (State::Listening { deaths }, acts)
}

fn spawned(runs: Runs, deaths: u32, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    let message = match runs {
        Runs::Process(pid) => format!("Process started with PID {pid}"),
        Runs::Container => "Creating the container".to_owned(),
        Runs::Task => "Starting the task".to_owned(),
    };
    // Clients of a service on demand wait in the kernel's queue, as at a busy one: it stays up for them.
    let shown = match limits.start {
        Start::AtOnce => ServiceState::Starting,
        Start::OnDemand(_) => ServiceState::Running,
    };
    match limits.ready {
        Some(limit) => (
            State::Starting {
                runs,
                give_up: now + limit,
                deaths,
            },
            vec![Act::Note(shown, message)],
        ),
        None => up(runs, deaths, now, limits, &message),
    }
}

fn up(runs: Runs, deaths: u32, now: Instant, limits: &Limits, message: &str) -> (State, Vec<Act>) {
    let acts = vec![
        Act::Health(Ok(())),
        Act::Note(ServiceState::Running, message.to_owned()),
    ];
    let checks = Checks::begin(now, limits);
    let since = now;
    let state = State::Running {
        runs,
        since,
        deaths,
        checks,
    };
    (state, acts)
}

fn stop(state: State, now: Instant, limits: &Limits, again: bool) -> (State, Vec<Act>) {
    match state {
        State::Starting { runs, .. } | State::Running { runs, .. } => (
            State::Stopping {
                runs,
                kill_at: now + limits.stop,
                again,
            },
            vec![
                not_up(),
                Act::Note(ServiceState::Stopping, asking(runs)),
                Act::Terminate(runs),
            ],
        ),
        State::Stopping { runs, kill_at, .. } => (
            State::Stopping {
                runs,
                kill_at,
                again,
            },
            vec![],
        ),
        State::Listening { .. } => {
            let (state, mut acts) = if again {
                begin(0, "Starting service")
            } else {
                finish()
            };
            acts.insert(0, not_up());
            (state, acts)
        }
        _ if again => begin(0, "Starting service"),
        State::Initialized | State::Finished => (state, vec![]),
        // `Spawning` gets its answer within the same turn of the shell, so nothing runs here.
        State::Waiting { .. } | State::Spawning { .. } | State::Pausing { .. } => finish(),
    }
}

/// The end on request of a service without a process.
fn finish() -> (State, Vec<Act>) {
    rest(
        ServiceState::Finished,
        "Service finished successfully".to_owned(),
    )
}

fn asking(runs: Runs) -> String {
    match runs {
        Runs::Process(_) | Runs::Container => format!("Sending SIGTERM to {runs}"),
        Runs::Task => format!("Ending {runs}"),
    }
}

fn ended(state: State, ending: &Ending, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    let how = &ending.how;
    let (mut acts, (state, more)) = match state {
        State::Spawning { deaths } => (
            vec![],
            come_back(deaths, "Failed to start", ending, now, limits),
        ),
        State::Starting { runs, deaths, .. } => (
            vec![Act::Kill(runs)],
            come_back(deaths, "Ended before it was ready", ending, now, limits),
        ),
        State::Running { runs, .. }
            if ending.succeeded && matches!(limits.start, Start::OnDemand(_)) =>
        {
            (vec![Act::Kill(runs)], enter(0, limits))
        }
        State::Running {
            runs,
            since,
            deaths,
            ..
        } => {
            let forgiven = now.saturating_duration_since(since) >= limits.backoff.forgiven_after;
            let deaths = if forgiven { 0 } else { deaths };
            (
                vec![Act::Kill(runs), not_up()],
                come_back(deaths, "Ended", ending, now, limits),
            )
        }
        State::Stopping {
            runs, again: true, ..
        } => (vec![Act::Kill(runs)], begin(0, "Starting service again")),
        State::Stopping {
            runs, again: false, ..
        } => (
            vec![Act::Kill(runs)],
            rest(ServiceState::Finished, format!("Service finished: {how}")),
        ),
        other => (vec![], (other, vec![])),
    };
    acts.extend(more);
    (state, acts)
}

/// A service that ended by itself restarts after a delay, or stays down.
fn come_back(
    deaths: u32,
    what: &str,
    ending: &Ending,
    now: Instant,
    limits: &Limits,
) -> (State, Vec<Act>) {
    let message = format!("{what}: {}", ending.how);
    let rests = match limits.restart {
        Restart::Always => false,
        Restart::UntilSuccess => ending.succeeded,
        Restart::Never => true,
    };
    if rests && ending.succeeded {
        return rest(ServiceState::Finished, message);
    }
    if rests {
        return rest(ServiceState::Failed, message);
    }
    let deaths = deaths.saturating_add(1);
    let pause = limits.backoff.pause(deaths);
    let message = format!("{message}; starting again in {} ms", pause.as_millis());
    (
        State::Pausing {
            until: now + pause,
            deaths,
        },
        vec![Act::Note(ServiceState::Waiting, message)],
    )
}

fn not_up() -> Act {
    Act::Health(Err("the service is not up".to_owned()))
}

fn rest(state: ServiceState, message: String) -> (State, Vec<Act>) {
    (State::Finished, vec![Act::Note(state, message)])
}

fn tick(state: State, now: Instant, limits: &Limits) -> (State, Vec<Act>) {
    match state {
        State::Pausing { until, deaths } if now >= until => begin(deaths, "Starting service again"),
        State::Running { .. } => checks::ask(state, now),
        State::Starting {
            runs,
            give_up,
            deaths,
        } if now >= give_up => {
            let seconds = limits.ready.unwrap_or_default().as_secs();
            let message = format!("Not ready after {seconds} s; killing {runs}");
            // The state stays `Starting` until the kernel reports the death, which then counts as one.
            (
                State::Starting {
                    runs,
                    give_up: now + limits.stop,
                    deaths,
                },
                vec![Act::Note(ServiceState::Failed, message), Act::Kill(runs)],
            )
        }
        State::Stopping {
            runs,
            kill_at,
            again,
        } if now >= kill_at => (
            State::Stopping {
                runs,
                kill_at: now + limits.stop,
                again,
            },
            vec![
                Act::Note(ServiceState::Stopping, format!("Sending SIGKILL to {runs}")),
                Act::Kill(runs),
            ],
        ),
        other => (other, vec![]),
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
