//! Effect of health checks on a running service.

use std::time::Instant;

use super::{Act, State, stop};
use crate::supervisor::limits::Limits;
use crate::view::ServiceState;

/// Health of a running service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Time of the next check; `None` while a check runs, or without a health check.
    next: Option<Instant>,
    /// Number of consecutive failures.
    bad: u32,
}

impl Checks {
    /// A service that has just come up counts as healthy.
    pub(super) fn begin(now: Instant, limits: &Limits) -> Checks {
        let delay = limits.health.as_ref().map(|health| health.initial_delay);
        Checks {
            next: delay.map(|delay| now + delay),
            bad: 0,
        }
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        self.next
    }

    pub(super) fn are_good(self) -> bool {
        self.bad == 0
    }
}

/// Starts a check if it is due.
pub(super) fn ask(mut state: State, now: Instant) -> (State, Vec<Act>) {
    if let State::Running { checks, .. } = &mut state
        && checks.next.is_some_and(|next| now >= next)
    {
        checks.next = None;
        return (state, vec![Act::Check]);
    }
    (state, vec![])
}

/// Processes the result of a check. A result that was not awaited belongs to an earlier process.
pub(super) fn answered(
    mut state: State,
    answer: Result<(), String>,
    now: Instant,
    limits: &Limits,
) -> (State, Vec<Act>) {
    let (State::Running { checks, .. }, Some(health)) = (&mut state, &limits.health) else {
        return (state, vec![]);
    };
    if checks.next.is_some() {
        return (state, vec![]);
    }
    let before = checks.bad;
    checks.bad = match answer {
        Ok(()) => 0,
        Err(_) => before.saturating_add(1),
    };
    checks.next = Some(now + health.interval);
    let bad = checks.bad;
    match answer {
        Err(why) if health.restart_after == Some(bad) => {
            let message = format!("Health check failed {bad} times in a row: {why}; restarting");
            let (state, acts) = stop(state, now, limits, true);
            let said = Act::Note(ServiceState::Running, message);
            (state, [vec![said], acts].concat())
        }
        Err(why) if before == 0 => {
            let message = format!("Health check failed: {why}");
            let acts = vec![
                Act::Health(Err(why)),
                Act::Note(ServiceState::Running, message),
            ];
            (state, acts)
        }
        Ok(()) if before > 0 => {
            let message = "Health check successful".to_owned();
            let acts = vec![
                Act::Health(Ok(())),
                Act::Note(ServiceState::Running, message),
            ];
            (state, acts)
        }
        _ => (state, vec![]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_sys::process::Exit;

    use super::*;
    use crate::health::{HealthCheck, Probe};
    use crate::supervisor::limits::{Backoff, Restart, Start};
    use crate::supervisor::policy::{Event, Runs, step};

    const DELAY: Duration = Duration::from_secs(3);
    const INTERVAL: Duration = Duration::from_secs(5);
    const RUNS: Runs = Runs::Process(7);

    fn limits(restart_after: Option<u32>) -> Limits {
        let second = Duration::from_secs(1);
        Limits {
            start: Start::AtOnce,
            ready: None,
            health: Some(HealthCheck {
                probe: Probe::Unix("/run/x.sock".into()),
                initial_delay: DELAY,
                interval: INTERVAL,
                timeout: second,
                restart_after,
            }),
            stop: second,
            restart: Restart::Always,
            backoff: Backoff {
                first: second,
                longest: second,
                forgiven_after: second,
            },
        }
    }

    /// A service at the time of its next check.
    struct Asked {
        limits: Limits,
        state: State,
        now: Instant,
    }

    impl Asked {
        /// It has just come up.
        fn new(limits: Limits) -> Asked {
            let (mut state, now) = (State::Initialized, Instant::now());
            for event in [Event::Start, Event::DependenciesUp, Event::Spawned(RUNS)] {
                (state, _) = step(state, event, now, &limits);
            }
            assert!(state.is_up());
            Asked { limits, state, now }
        }

        fn step(&mut self, event: Event) -> Vec<Act> {
            let (state, acts) = step(self.state, event, self.now, &self.limits);
            self.state = state;
            acts
        }

        /// Advances to the next check and answers it at once.
        fn answer(&mut self, answer: Result<(), &str>) -> Vec<Act> {
            self.now = self.state.deadline().unwrap();
            assert_eq!(self.step(Event::Tick), [Act::Check]);
            self.step(Event::Checked(answer.map_err(str::to_owned)))
        }
    }

    fn note(message: &str) -> Act {
        Act::Note(ServiceState::Running, message.to_owned())
    }

    #[test]
    fn health_checks_start_after_a_delay_and_never_overlap() {
        let mut asked = Asked::new(limits(None));
        let up = asked.now;
        assert_eq!(asked.state.deadline(), Some(up + DELAY));
        assert_eq!(asked.step(Event::Tick), []);
        asked.now = up + DELAY;
        assert_eq!(asked.step(Event::Tick), [Act::Check]);
        assert_eq!(asked.state.deadline(), None);
        assert_eq!(asked.step(Event::Tick), []);
        // The answer is slow.
        asked.now += Duration::from_secs(60);
        assert_eq!(asked.step(Event::Checked(Ok(()))), []);
        assert_eq!(asked.state.deadline(), Some(asked.now + INTERVAL));
        // Without a health check there are no checks.
        let unchecked = Asked::new(Limits {
            health: None,
            ..limits(None)
        });
        assert_eq!(unchecked.state.deadline(), None);
    }

    #[test]
    fn only_changes_of_the_health_are_reported() {
        let mut asked = Asked::new(limits(None));
        let bad = || Act::Health(Err("late".to_owned()));
        let failed = note("Health check failed: late");
        assert_eq!(asked.answer(Err("late")), [bad(), failed.clone()]);
        assert!(!asked.state.is_up());
        for _ in 0..100 {
            assert_eq!(asked.answer(Err("later")), []);
        }
        let good = [Act::Health(Ok(())), note("Health check successful")];
        assert_eq!(asked.answer(Ok(())), good);
        assert!(asked.state.is_up());
        assert_eq!(asked.answer(Ok(())), []);
        assert_eq!(asked.answer(Err("late")), [bad(), failed]);
    }

    #[test]
    fn repeated_health_check_failures_restart_the_service() {
        let mut asked = Asked::new(limits(Some(3)));
        for answer in [Err("late"), Err("late"), Ok(()), Err("late"), Err("late")] {
            asked.answer(answer);
            assert!(matches!(asked.state, State::Running { .. }));
        }
        let acts = asked.answer(Err("late"));
        let said = note("Health check failed 3 times in a row: late; restarting");
        assert_eq!(acts.first(), Some(&said));
        assert_eq!(acts.last(), Some(&Act::Terminate(RUNS)));
        // A service that hangs may ignore SIGTERM.
        asked.now = asked.state.deadline().unwrap();
        assert_eq!(asked.step(Event::Tick).last(), Some(&Act::Kill(RUNS)));
        asked.step(Event::Exited(Exit::Signal(9)));
        assert_eq!(asked.state, State::Waiting { deaths: 0 });
    }

    #[test]
    fn late_health_check_answer_is_ignored() {
        let late = || Event::Checked(Err("late".to_owned()));
        // The check was of an earlier process.
        let mut asked = Asked::new(limits(Some(1)));
        let before = asked.state;
        assert_eq!((asked.step(late()), asked.state), (vec![], before));
        asked.step(Event::Stop);
        let before = asked.state;
        assert_eq!((asked.step(late()), asked.state), (vec![], before));
    }
}
