//! Order and completeness of events under load, and for any order of calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::timeout;

use super::tests::{Number, number, store, watch_all};
use crate::error::StoreError;
use crate::metadata::{Phase, Pointer};
use crate::query::Query;
use crate::resource::{Resource, Typed};
use crate::watch::{Happened, Start, Watcher};

const WRITERS: u64 = 8;
const WRITES: u64 = 2_000;

/// A watcher's view of the store, built from events alone; every event is checked against it.
#[derive(Default)]
struct Belief {
    versions: BTreeMap<Arc<str>, u64>,
    events: u64,
}

impl Belief {
    fn learn(&mut self, happened: &Happened) {
        let version = |resource: &Resource| resource.metadata.version.0;
        let id = |resource: &Resource| resource.metadata.pointer.id.clone();
        match happened {
            Happened::Created(new) => {
                let before = self.versions.insert(id(new), version(new));
                assert_eq!(before, None, "created twice: {new:?}");
            }
            Happened::Updated { new, old } => {
                let before = self.versions.insert(id(new), version(new));
                assert_eq!(before, Some(version(old)), "something was missed: {new:?}");
                assert_eq!(
                    version(new),
                    version(old) + 1,
                    "something was missed: {new:?}"
                );
            }
            Happened::Destroyed(old) => {
                let before = self.versions.remove(&id(old));
                assert_eq!(before, Some(version(old)), "something was missed: {old:?}");
            }
            other => assert!(matches!(other, Happened::Bootstrapped), "{other:?}"),
        }
        self.events += 1;
    }
}

/// Follows until the ends of all writers were seen. A watcher that fell behind starts again.
async fn follow(store: super::Store, mut watcher: Watcher, last: u64) -> (Belief, u32) {
    let mut belief = Belief::default();
    let mut fell_behind = 0;
    loop {
        let event = timeout(Duration::from_secs(60), watcher.next()).await;
        let event = event.expect("an event within a minute").unwrap();
        if let Happened::Errored(error) = &event.happened {
            assert!(matches!(error, StoreError::FellBehind { missed } if *missed > 0));
            fell_behind += 1;
            belief = Belief::default();
            watcher = watch_all(&store, Query::default(), Start::Contents);
            continue;
        }
        belief.learn(&event.happened);
        let done = |writer| {
            let id = format!("end-{writer}");
            belief.versions.contains_key(id.as_str())
        };
        if matches!(
            event.happened,
            Happened::Created(_) | Happened::Bootstrapped
        ) && (0..last).all(done)
        {
            return (belief, fell_behind);
        }
    }
}

/// Creates, changes and destroys its own ids, and competes for a common one with optimistic concurrency.
async fn write(store: super::Store, writer: u64) -> u64 {
    let mut common = 0;
    for round in 0..WRITES {
        let id = format!("w{writer}-{}", round % 7);
        let pointer = Pointer::of::<Number>(&id);
        match round % 5 {
            4 => drop(store.destroy(&pointer, "")),
            _ => drop(store.put(number(&id, round), "").unwrap()),
        }
        if round % 10 == 0 {
            common += increment(&store);
            tokio::task::yield_now().await;
        }
    }
    store
        .create(number(&format!("end-{writer}"), 0), "")
        .unwrap();
    common
}

/// Increments the common counter; a version conflict causes a retry.
fn increment(store: &super::Store) -> u64 {
    loop {
        let current = store.get_as::<Number>("common").unwrap();
        let mut next = Resource::clone(current.resource());
        next.set_spec(Number {
            value: current.value + 1,
        });
        match store.update(next, "", Some(Phase::Running)) {
            Ok(_) => return 1,
            Err(error) => assert!(
                matches!(error, StoreError::VersionConflict { .. }),
                "{error}"
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watcher_sees_every_write_once_and_in_order() {
    let store = store();
    store.create(number("common", 0), "").unwrap();
    let watchers: Vec<_> = (0..20)
        .map(|_| {
            let watcher = watch_all(&store, Query::default(), Start::Contents);
            tokio::spawn(follow(store.clone(), watcher, WRITERS))
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(store.clone(), writer)))
        .collect();
    let mut common = 0;
    for writer in writers {
        common += writer.await.unwrap();
    }
    assert_eq!(store.get_as::<Number>("common").unwrap().value, common);
    let there: BTreeMap<_, _> = store
        .list_as::<Number>()
        .iter()
        .map(|found| {
            (
                found.metadata().pointer.id.clone(),
                found.metadata().version.0,
            )
        })
        .collect();
    let (mut kept_up, mut events) = (0, 0);
    for watcher in watchers {
        let (belief, fell_behind) = watcher.await.unwrap();
        assert_eq!(belief.versions, there);
        kept_up += u32::from(fell_behind == 0);
        events += belief.events;
    }
    assert!(events > 0);
    println!("{kept_up} of 20 watchers kept up, {events} events checked");
}

#[derive(Debug, Clone)]
enum Call {
    Put(u8, u64),
    Teardown(u8),
    Destroy(u8),
    Hold(u8),
    LetGo(u8),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..3_u8, 0..3_u64).prop_map(|(id, value)| Call::Put(id, value)),
        (0..3_u8).prop_map(Call::Teardown),
        (0..3_u8).prop_map(Call::Destroy),
        (0..3_u8).prop_map(Call::Hold),
        (0..3_u8).prop_map(Call::LetGo),
    ]
}

proptest! {
    /// For any order of calls: a refused call changes nothing and sends no event. A watcher that starts at any moment
    /// ends with the content of the store.
    #[test]
    fn events_of_a_watch_reproduce_the_contents_of_the_store(calls in prop::collection::vec(call(), 1..60), from in 0..60_usize) {
        let store = store();
        let mut watcher = watch_all(&store, Query::default(), Start::Contents);
        let mut late = None;
        for (turn, call) in calls.iter().enumerate() {
            if turn == from {
                late = Some(watch_all(&store, Query::default(), Start::Contents));
            }
            let id = |id: &u8| Pointer::of::<Number>(&id.to_string());
            let result = match call {
                Call::Put(id, value) => store.put(number(&id.to_string(), *value), "").map(drop),
                Call::Teardown(at) => store.teardown(&id(at), "").map(drop),
                Call::Destroy(at) => store.destroy(&id(at), ""),
                Call::Hold(at) => store.add_finalizer(&id(at), "x"),
                Call::LetGo(at) => store.remove_finalizer(&id(at), "x"),
            };
            let expected = matches!(
                result,
                Ok(())
                    | Err(StoreError::NotFound(_)
                        | StoreError::PhaseConflict { .. }
                        | StoreError::PendingFinalizers { .. })
            );
            prop_assert!(expected, "{result:?}");
        }
        let there: BTreeMap<_, _> = store
            .list_as::<Number>()
            .iter()
            .map(|found: &Typed<Number>| (found.metadata().pointer.id.clone(), found.metadata().version.0))
            .collect();
        for watcher in [Some(&mut watcher), late.as_mut()].into_iter().flatten() {
            let mut belief = Belief::default();
            while let Some(event) = watcher.next_now() {
                belief.learn(&event.happened);
            }
            prop_assert_eq!(&belief.versions, &there);
        }
    }
}
