//! Conditions of writes, and events of watches.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use super::Store;
use crate::error::StoreError;
use crate::history::{LARGE, USUAL};
use crate::meta::{Namespace, ResourceDefinition};
use crate::metadata::{Phase, Pointer, Version};
use crate::query::{IdQuery, LabelTerm, Operator, Query};
use crate::resource::{Definition, Draft, Resource, Sensitivity, Spec};
use crate::watch::{Bookmark, Happened, Start, Watcher};

/// A small spec.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Number {
    pub(super) value: u64,
}

impl Spec for Number {
    const DEFINITION: Definition = Definition {
        type_name: "Numbers.test.corten",
        default_namespace: "test",
        aliases: &[],
        columns: &[],
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    };

    type Message = ();

    fn message(&self) {}
}

/// Another type with the same name.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Impostor;

impl Spec for Impostor {
    const DEFINITION: Definition = Number::DEFINITION;

    type Message = ();

    fn message(&self) {}
}

pub(super) fn number(id: &str, value: u64) -> Draft {
    Draft::new(id, Number { value })
}

pub(super) fn store() -> Store {
    let store = Store::new();
    store.register::<Number>().unwrap();
    store
}

fn at(id: &str) -> Pointer {
    Pointer::of::<Number>(id)
}

pub(super) fn watch_all(store: &Store, query: Query, start: Start) -> Watcher {
    let name = Number::DEFINITION.type_name;
    store.watch_kind("test", name, query, start).unwrap()
}

/// All pending events in short form: sign, id, version.
fn seen(watcher: &mut Watcher) -> Vec<String> {
    let word = |sign: &str, resource: &Resource| {
        let metadata = &resource.metadata;
        format!("{sign}{}@{}", metadata.pointer.id, metadata.version)
    };
    std::iter::from_fn(|| watcher.next_now())
        .map(|event| match event.happened {
            Happened::Created(new) => word("+", &new),
            Happened::Updated { new, old } => {
                assert_eq!(old.metadata.version.0 + 1, new.metadata.version.0);
                word("", &new)
            }
            Happened::Destroyed(old) => word("-", &old),
            Happened::Absent(pointer) => format!("no {}", pointer.id),
            Happened::Bootstrapped => "all".to_owned(),
            Happened::Noop => "noop".to_owned(),
            Happened::Errored(error) => error.to_string(),
        })
        .collect()
}

#[test]
fn the_store_describes_itself() {
    let store = store();
    let definitions = store.list_as::<ResourceDefinition>();
    let ids: Vec<_> = definitions.iter().map(|found| found.id()).collect();
    assert_eq!(
        ids,
        [
            "namespaces.meta.cosi.dev",
            "numbers.test.corten",
            "resourcedefinitions.meta.cosi.dev"
        ]
    );
    store.add_namespace("test", "for tests").unwrap();
    let namespace = store.get_as::<Namespace>("test").unwrap();
    assert_eq!(namespace.description, "for tests");
    let yaml = definitions[1].resource().spec().to_yaml().unwrap();
    assert!(yaml.contains("displayType: Number\n"), "{yaml}");
}

#[test]
fn unknown_types_and_namespaces_are_refused() {
    let store = Store::new();
    let unknown = StoreError::UnknownType("Numbers.test.corten".into());
    assert_eq!(store.create(number("a", 1), "").unwrap_err(), unknown);
    store.register::<Number>().unwrap();
    store.register::<Number>().unwrap();
    let taken = StoreError::TypeTaken("Numbers.test.corten");
    assert_eq!(store.register::<Impostor>().unwrap_err(), taken);
    assert_eq!(store.put(Draft::new("a", Impostor), "").unwrap_err(), taken);
    let elsewhere = number("a", 1).in_namespace("elsewhere");
    let error = store.create(elsewhere, "").unwrap_err();
    assert_eq!(error, StoreError::UnknownNamespace("elsewhere".into()));
}

#[test]
fn update_requires_the_version_it_is_based_on() {
    let store = store();
    let first = store.create(number("a", 1), "").unwrap();
    assert_eq!(first.metadata.version, Version(1));
    let exists = StoreError::AlreadyExists(at("a"));
    assert_eq!(store.create(number("a", 2), "").unwrap_err(), exists);
    let mut edited = Resource::clone(&first);
    edited.set_spec(Number { value: 2 });
    let second = store
        .update(edited.clone(), "", Some(Phase::Running))
        .unwrap();
    assert_eq!(second.metadata.version.to_string(), "2");
    assert_eq!(second.metadata.created, first.metadata.created);
    let conflict = StoreError::VersionConflict {
        pointer: at("a"),
        expected: Version(1),
        found: Version(2),
    };
    assert_eq!(store.update(edited, "", None).unwrap_err(), conflict);
    let mut alien = Resource::clone(&second);
    alien.set_spec(Impostor);
    assert!(matches!(
        store.update(alien, "", None),
        Err(StoreError::TypeTaken(_))
    ));
    assert_eq!(store.get_as::<Number>("a").unwrap().value, 2);
}

#[test]
fn only_the_owner_writes() {
    let store = store();
    let mine = store.create(number("a", 1), "me").unwrap();
    let conflict = StoreError::OwnerConflict {
        pointer: at("a"),
        owner: "me",
        writer: "you",
    };
    let update = store.update(Resource::clone(&mine), "you", None);
    assert_eq!(update.unwrap_err(), conflict);
    assert_eq!(store.put(number("a", 2), "you").unwrap_err(), conflict);
    assert_eq!(store.teardown(&at("a"), "you").unwrap_err(), conflict);
    assert_eq!(store.destroy(&at("a"), "you").unwrap_err(), conflict);
    assert_eq!(store.get(&at("a")).unwrap().metadata.version, Version(1));
}

#[test]
fn resource_with_finalizers_is_not_destroyed() {
    let store = store();
    store.create(number("a", 1), "me").unwrap();
    store.add_finalizer(&at("a"), "you").unwrap();
    store.add_finalizer(&at("a"), "you").unwrap();
    assert!(!store.teardown(&at("a"), "me").unwrap());
    let held = StoreError::PendingFinalizers {
        pointer: at("a"),
        finalizers: vec!["you"],
    };
    assert_eq!(store.destroy(&at("a"), "me").unwrap_err(), held);
    let down = StoreError::PhaseConflict {
        pointer: at("a"),
        expected: Phase::Running,
        found: Phase::TearingDown,
    };
    assert_eq!(store.put(number("a", 2), "me").unwrap_err(), down);
    assert_eq!(store.add_finalizer(&at("a"), "third").unwrap_err(), down);
    store.remove_finalizer(&at("a"), "you").unwrap();
    assert!(store.teardown(&at("a"), "me").unwrap());
    store.destroy(&at("a"), "me").unwrap();
    let gone = StoreError::NotFound(at("a"));
    assert_eq!(store.destroy(&at("a"), "me").unwrap_err(), gone);
    assert_eq!(store.teardown(&at("a"), "me").unwrap_err(), gone);
    store.remove_finalizer(&at("a"), "you").unwrap();
}

#[test]
fn put_of_an_equal_resource_is_no_change() {
    let store = store();
    let mut watcher = watch_all(&store, Query::default(), Start::Now);
    for value in [1, 1, 2] {
        store.put(number("a", value), "").unwrap();
    }
    store.put(number("a", 2).label("k", "v"), "").unwrap();
    store.put(number("a", 2).label("k", "v"), "").unwrap();
    assert_eq!(seen(&mut watcher), ["+a@1", "a@2", "a@3"]);
}

#[test]
fn lists_and_watches_take_queries() {
    let store = store();
    store.put(number("a1", 1).label("zone", "x"), "").unwrap();
    store.put(number("a2", 2).label("zone", "y"), "").unwrap();
    store.put(number("b1", 3), "").unwrap();
    let term = LabelTerm {
        key: "zone".into(),
        operator: Operator::Exists,
        values: vec![],
        invert: false,
    };
    let id = IdQuery::new("^.1$").unwrap();
    let query = Query::new(vec![vec![term]], Some(id)).unwrap();
    let found = store
        .list("test", Number::DEFINITION.type_name, &query)
        .unwrap();
    let ids: Vec<_> = found
        .iter()
        .map(|found| &*found.metadata.pointer.id)
        .collect();
    assert_eq!(ids, ["a1"]);
    let mut watcher = watch_all(&store, query, Start::Contents);
    store.put(number("b1", 3).label("zone", "x"), "").unwrap();
    store.put(number("a1", 1), "").unwrap();
    store.put(number("a1", 5), "").unwrap();
    store.put(number("a2", 5).label("zone", "x"), "").unwrap();
    store.put(number("b1", 4).label("zone", "x"), "").unwrap();
    assert_eq!(
        seen(&mut watcher),
        ["+a1@1", "all", "+b1@2", "-a1@2", "b1@3"]
    );
}

#[test]
fn watch_of_one_resource_begins_with_its_current_state() {
    let store = store();
    let mut before = store.watch(&at("a"), Start::Now).unwrap();
    store.put(number("a", 1), "").unwrap();
    store.put(number("b", 1), "").unwrap();
    let mut after = store.watch(&at("a"), Start::Now).unwrap();
    store.put(number("a", 2), "").unwrap();
    store.destroy(&at("a"), "").unwrap();
    assert_eq!(seen(&mut before), ["no a", "+a@1", "a@2", "-a@2"]);
    assert_eq!(seen(&mut after), ["+a@1", "a@2", "-a@2"]);
    let contents = store.watch(&at("a"), Start::Contents);
    assert_eq!(contents.unwrap_err(), StoreError::SingleWatch);
}

#[test]
fn watch_resumes_from_a_bookmark() {
    let store = store();
    let mut watcher = watch_all(&store, Query::default(), Start::Bookmarked);
    let mut bookmarks = vec![watcher.next_now().unwrap().bookmark.unwrap()];
    for value in 0..5 {
        store.put(number("a", value), "").unwrap();
        bookmarks.push(watcher.next_now().unwrap().bookmark.unwrap());
    }
    let all = ["+a@1", "a@2", "a@3", "a@4", "a@5"];
    for (told, bookmark) in bookmarks.iter().enumerate() {
        let bookmark = Bookmark::from_bytes(&bookmark.to_bytes()).unwrap();
        let mut again = watch_all(&store, Query::default(), Start::After(bookmark));
        assert_eq!(seen(&mut again), all[told..]);
    }
    let mut tail = watch_all(&store, Query::default(), Start::Tail(2));
    assert_eq!(seen(&mut tail), all[3..]);
    let mut tail = watch_all(&store, Query::default(), Start::Tail(100));
    assert_eq!(seen(&mut tail), all);
}

#[test]
fn foreign_or_expired_bookmark_is_refused() {
    let store = store();
    let bookmark = |store: &Store| {
        let mut watcher = watch_all(store, Query::default(), Start::Bookmarked);
        watcher.next_now().unwrap().bookmark.unwrap()
    };
    let refused = |bookmark| {
        let name = Number::DEFINITION.type_name;
        let watch = store.watch_kind("test", name, Query::default(), Start::After(bookmark));
        watch.is_err_and(|error| error == StoreError::BookmarkGone)
    };
    assert!(refused(bookmark(&self::store())));
    let old = bookmark(&store);
    assert!(!refused(old));
    for value in 0..=2 * USUAL.few as u64 {
        store.put(number("a", value), "").unwrap();
    }
    assert!(refused(old));
    assert!(!refused(bookmark(&store)));
    assert_eq!(
        Bookmark::from_bytes(b"short").unwrap_err(),
        StoreError::BookmarkGone
    );
}

#[test]
fn slow_watcher_gets_an_error_and_blocks_no_other_watcher() {
    let store = store();
    let mut slow = watch_all(&store, Query::default(), Start::Now);
    let mut fast = watch_all(&store, Query::default(), Start::Now);
    let kind = store.kind("test", Number::DEFINITION.type_name).unwrap();
    for value in 0..3 * USUAL.most as u64 {
        store.put(number("a", value), "").unwrap();
        assert!(fast.next_now().is_some());
        assert!(kind.state().history.len() <= USUAL.most);
    }
    let told = seen(&mut slow);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("fell behind"), "{told:?}");
    // Without the slow watcher the history shrinks.
    assert!(kind.state().history.len() <= 2 * USUAL.few);
}

/// A large spec that counts its references.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
struct Large {
    number: u64,
    #[serde(skip)]
    held: Arc<()>,
}

impl Spec for Large {
    const DEFINITION: Definition = Definition {
        type_name: "Larges.test.corten.dev",
        ..Number::DEFINITION
    };
    const IS_LARGE: bool = true;
    type Message = ();

    fn message(&self) {}
}

#[test]
fn history_of_large_resources_is_short_even_with_slow_watchers() {
    let store = store();
    store.register::<Large>().unwrap();
    let held = Arc::new(());
    let watch = |start| store.watch(&Pointer::of::<Large>("a"), start).unwrap();
    let mut slow = watch(Start::Now);
    let mut fast = watch(Start::Now);
    assert!(fast.next_now().is_some() && slow.next_now().is_some());
    for number in 0..100 {
        let held = held.clone();
        store
            .put(Draft::new("a", Large { number, held }), "")
            .unwrap();
        assert!(fast.next_now().is_some());
        // One per change in the history, one for the predecessor of the oldest, and this test's own.
        let now = Arc::strong_count(&held_by(&store));
        assert!(now <= LARGE.most + 3, "{number}: {now}");
    }
    let told = slow.next_now().unwrap().happened;
    assert!(matches!(
        told,
        Happened::Errored(StoreError::FellBehind { .. })
    ));
    drop(slow);
    assert!(Arc::strong_count(&held_by(&store)) <= 2 * LARGE.few + 3);
}

/// The value that all specs of the store share.
fn held_by(store: &Store) -> Arc<()> {
    store.get_as::<Large>("a").unwrap().held.clone()
}

#[tokio::test]
async fn a_watcher_sleeps_until_something_happens() {
    let store = store();
    let mut watcher = watch_all(&store, Query::default(), Start::Now);
    let nothing = timeout(Duration::from_millis(20), watcher.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    store.put(number("a", 1), "").unwrap();
    let event = timeout(Duration::from_secs(60), watcher.next())
        .await
        .unwrap();
    assert!(matches!(event.unwrap().happened, Happened::Created(_)));
}
