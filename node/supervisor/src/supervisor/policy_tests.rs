use std::time::Duration;

use super::*;
use crate::supervisor::limits::Backoff;

const PROCESS: Runs = Runs::Process(7);

const LIMITS: Limits = Limits {
    start: Start::AtOnce,
    ready: Some(Duration::from_secs(60)),
    health: None,
    stop: Duration::from_secs(10),
    restart: Restart::Always,
    backoff: Backoff {
        first: Duration::from_millis(250),
        longest: Duration::from_secs(5),
        forgiven_after: Duration::from_secs(10),
    },
};

/// Feeds events in sequence, one per second.
fn play(events: &[Event]) -> (State, Vec<Act>, Instant) {
    play_with(events, &LIMITS)
}

fn play_with(events: &[Event], limits: &Limits) -> (State, Vec<Act>, Instant) {
    let mut now = Instant::now();
    let (mut state, mut acts) = (State::Initialized, vec![]);
    for event in events {
        now += Duration::from_secs(1);
        (state, acts) = step(state, event.clone(), now, limits);
    }
    (state, acts, now)
}

fn started() -> Vec<Event> {
    vec![
        Event::Start,
        Event::DependenciesUp,
        Event::Spawned(PROCESS),
        Event::Ready(String::new()),
    ]
}

#[test]
fn service_with_notification_is_up_only_after_it() {
    let (state, acts, _) = play(&[Event::Start, Event::DependenciesUp]);
    assert_eq!(
        (state, acts),
        (State::Spawning { deaths: 0 }, vec![Act::Spawn])
    );
    let (state, ..) = play(&[Event::Start, Event::DependenciesUp, Event::Spawned(PROCESS)]);
    assert!(!state.is_up());
    let (state, acts, _) = play(&started());
    assert!(state.is_up());
    assert!(acts.contains(&Act::Health(Ok(()))));
}

/// As `LIMITS`, for a service that starts on demand.
fn on_demand() -> (Limits, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], 3172));
    let start = Start::OnDemand(address);
    (Limits { start, ..LIMITS }, address)
}

/// Events until a client has made an on-demand service run.
fn demanded() -> Vec<Event> {
    vec![
        Event::Start,
        Event::DependenciesUp,
        Event::Listening,
        Event::Connected,
        Event::Spawned(PROCESS),
        Event::Ready(String::new()),
    ]
}

#[test]
fn on_demand_service_is_up_without_a_process_until_a_client_connects() {
    let (limits, address) = on_demand();
    let all = demanded();
    let (state, acts, _) = play_with(&all[..2], &limits);
    assert_eq!(acts, [Act::Listen(address)]);
    assert!(!state.is_up());
    let (state, acts, _) = play_with(&all[..3], &limits);
    assert!(state.is_up() && state.runs().is_none() && !state.is_at_rest());
    assert!(acts.contains(&Act::Health(Ok(()))));
    let (_, acts, _) = play_with(&all[..4], &limits);
    assert_eq!(acts, [Act::Spawn]);
    // The node does not become unready while a client starts the process.
    let (_, acts, _) = play_with(&all[..5], &limits);
    assert!(
        matches!(acts[..], [Act::Note(ServiceState::Running, _)]),
        "{acts:?}"
    );
    let (state, ..) = play_with(&all, &limits);
    assert_eq!(state.runs(), Some(PROCESS));
}

#[test]
fn on_demand_service_that_ends_idle_listens_again_and_one_that_dies_pauses_first() {
    let (limits, address) = on_demand();
    let ends = |exit| play_with(&[demanded(), vec![Event::Exited(exit)]].concat(), &limits);
    let (state, acts, _) = ends(Exit::Code(0));
    assert_eq!(state, State::Spawning { deaths: 0 });
    assert_eq!(acts, [Act::Kill(PROCESS), Act::Listen(address)]);
    let (state, ..) = ends(Exit::Code(1));
    assert!(
        matches!(state, State::Pausing { deaths: 1, .. }),
        "{state:?}"
    );
    let returns = [
        Event::Exited(Exit::Code(1)),
        Event::Tick,
        Event::DependenciesUp,
    ];
    let (_, acts, _) = play_with(&[&demanded()[..], &returns].concat(), &limits);
    assert_eq!(acts, [Act::Listen(address)]);
}

#[test]
fn on_demand_service_stops_and_restarts_while_it_listens() {
    let (limits, _) = on_demand();
    let after = |event| play_with(&[&demanded()[..3], &[event]].concat(), &limits);
    let (state, acts, _) = after(Event::Stop);
    assert!(state.is_at_rest());
    assert_eq!(acts.first(), Some(&not_up()));
    let (state, ..) = after(Event::Restart);
    assert_eq!(state, State::Waiting { deaths: 0 });
    // A port in use is a failed start.
    let taken = [
        Event::Start,
        Event::DependenciesUp,
        Event::Failed("in use".to_owned()),
    ];
    let (state, ..) = play_with(&taken, &limits);
    assert!(
        matches!(state, State::Pausing { deaths: 1, .. }),
        "{state:?}"
    );
}

#[test]
fn service_without_notification_is_up_at_once() {
    let limits = Limits {
        ready: None,
        ..LIMITS
    };
    let (state, ..) = play_with(
        &[Event::Start, Event::DependenciesUp, Event::Spawned(PROCESS)],
        &limits,
    );
    assert!(state.is_up());
}

#[test]
fn killed_service_restarts_after_a_short_pause() {
    let mut events = started();
    events.push(Event::Exited(Exit::Signal(9)));
    let (state, acts, now) = play(&events);
    assert_eq!(
        state,
        State::Pausing {
            until: now + Duration::from_millis(250),
            deaths: 1
        }
    );
    // The rest of its process group is killed.
    assert_eq!(acts.first(), Some(&Act::Kill(PROCESS)));
    let (early, acts) = step(state, Event::Tick, now, &LIMITS);
    assert_eq!((early, acts), (state, vec![]));
    let (state, acts) = step(
        state,
        Event::Tick,
        now + Duration::from_millis(250),
        &LIMITS,
    );
    assert_eq!(state, State::Waiting { deaths: 1 });
    assert_eq!(acts.last(), Some(&Act::AwaitDependencies));
}

#[test]
fn restart_pause_doubles_to_a_limit_and_resets() {
    let pauses: Vec<_> = (1..=7)
        .map(|deaths| LIMITS.backoff.pause(deaths).as_millis())
        .collect();
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    assert_eq!(LIMITS.backoff.pause(u32::MAX), Duration::from_secs(5));
    let since = Instant::now();
    let old = State::Running {
        runs: PROCESS,
        since,
        deaths: 6,
        checks: Checks::begin(since, &LIMITS),
    };
    let (state, _) = step(
        old,
        Event::Exited(Exit::Code(1)),
        since + Duration::from_secs(11),
        &LIMITS,
    );
    assert!(
        matches!(state, State::Pausing { deaths: 1, .. }),
        "{state:?}"
    );
    let (state, _) = step(
        old,
        Event::Exited(Exit::Code(1)),
        since + Duration::from_secs(9),
        &LIMITS,
    );
    assert!(
        matches!(state, State::Pausing { deaths: 7, .. }),
        "{state:?}"
    );
}

#[test]
fn program_that_fails_to_start_is_retried() {
    let (state, acts, _) = play(&[
        Event::Start,
        Event::DependenciesUp,
        Event::Failed("No such file".into()),
    ]);
    assert!(matches!(state, State::Pausing { deaths: 1, .. }));
    let Some(Act::Note(ServiceState::Waiting, note)) = acts.first() else {
        panic!("{acts:?}")
    };
    assert!(note.contains("No such file"), "{note}");
}

#[test]
fn service_that_never_becomes_ready_is_killed() {
    let (state, _, now) = play(&[Event::Start, Event::DependenciesUp, Event::Spawned(PROCESS)]);
    assert_eq!(state.deadline(), Some(now + Duration::from_secs(60)));
    let (state, acts) = step(state, Event::Tick, now + Duration::from_secs(60), &LIMITS);
    assert!(acts.contains(&Act::Kill(PROCESS)));
    let (state, _) = step(
        state,
        Event::Exited(Exit::Signal(9)),
        now + Duration::from_secs(61),
        &LIMITS,
    );
    assert!(matches!(state, State::Pausing { .. }));
}

#[test]
fn stop_sends_sigterm_first_and_sigkill_later() {
    let mut events = started();
    events.push(Event::Stop);
    let (state, acts, now) = play(&events);
    assert_eq!(acts.last(), Some(&Act::Terminate(PROCESS)));
    let (state, acts) = step(state, Event::Tick, now + Duration::from_secs(10), &LIMITS);
    assert_eq!(acts.last(), Some(&Act::Kill(PROCESS)));
    let (state, _) = step(state, Event::Exited(Exit::Signal(9)), now, &LIMITS);
    assert_eq!(state, State::Finished);
    assert!(state.is_at_rest());
}

#[test]
fn restart_starts_the_service_after_it_ended() {
    let mut events = started();
    events.extend([Event::Restart, Event::Exited(Exit::Code(0))]);
    let (state, acts, _) = play(&events);
    assert_eq!(state, State::Waiting { deaths: 0 });
    assert_eq!(acts.last(), Some(&Act::AwaitDependencies));
}

#[test]
fn a_stop_overrules_a_restart_and_a_pause() {
    let mut events = started();
    events.extend([Event::Restart, Event::Stop, Event::Exited(Exit::Code(0))]);
    assert_eq!(play(&events).0, State::Finished);
    let mut events = started();
    events.extend([Event::Exited(Exit::Code(1)), Event::Stop]);
    assert_eq!(play(&events).0, State::Finished);
}

#[test]
fn stray_events_do_not_change_a_finished_service() {
    for event in [
        Event::Ready(String::new()),
        Event::Exited(Exit::Code(0)),
        Event::Tick,
        Event::Stop,
    ] {
        let (state, acts) = step(State::Finished, event, Instant::now(), &LIMITS);
        assert_eq!((state, acts), (State::Finished, vec![]));
    }
}

#[test]
fn service_without_restart_stays_finished_and_can_be_started() {
    let ended = |restart, event: &Event| {
        let limits = Limits { restart, ..LIMITS };
        let mut events = started();
        events.push(event.clone());
        let (state, acts, _) = play_with(&events, &limits);
        (state, acts.last().cloned())
    };
    let rests_as = |(state, act): (State, Option<Act>)| match act {
        Some(Act::Note(shown, _)) if state == State::Finished => Some(shown),
        _ => None,
    };
    let success = Event::Exited(Exit::Code(0));
    let failures = [
        Event::Exited(Exit::Code(1)),
        Event::Exited(Exit::Signal(9)),
        Event::Failed("lost".to_owned()),
    ];
    let finished = Some(ServiceState::Finished);
    assert_eq!(rests_as(ended(Restart::Always, &success)), None);
    assert_eq!(rests_as(ended(Restart::UntilSuccess, &success)), finished);
    assert_eq!(rests_as(ended(Restart::Never, &success)), finished);
    for failure in &failures {
        assert_eq!(rests_as(ended(Restart::UntilSuccess, failure)), None);
        let failed = Some(ServiceState::Failed);
        assert_eq!(rests_as(ended(Restart::Never, failure)), failed);
    }
    let (state, _) = step(State::Finished, Event::Start, Instant::now(), &LIMITS);
    assert_eq!(state, State::Waiting { deaths: 0 });
}

#[test]
fn stop_of_a_starting_container_waits_for_its_end() {
    let events = [
        Event::Start,
        Event::DependenciesUp,
        Event::Spawned(Runs::Container),
        Event::Stop,
    ];
    let (state, acts, now) = play(&events);
    assert_eq!(acts.last(), Some(&Act::Terminate(Runs::Container)));
    // It may come up before the signal arrives.
    let (state, _) = step(state, Event::Ready(String::new()), now, &LIMITS);
    assert!(!state.is_up() && !state.is_at_rest(), "{state:?}");
    let (state, _) = step(state, Event::Failed("cancelled".to_owned()), now, &LIMITS);
    assert_eq!(state, State::Finished);
}
