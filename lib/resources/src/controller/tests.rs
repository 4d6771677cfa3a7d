//! Controllers on an in-memory store.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use super::{Context, Controller, Dependency, Failure, GraphError, Input, Notice, Output, Runtime};
use crate::error::StoreError;
use crate::metadata::Pointer;
use crate::resource::{Definition, Draft, Sensitivity, Spec};
use crate::store::Store;
use crate::watch::{Happened, Start};

const DEFINITION: Definition = Definition {
    type_name: "Sources.test.corten",
    default_namespace: "test",
    aliases: &[],
    columns: &[],
    sensitivity: Sensitivity::NonSensitive,
    only_declared_aliases: false,
};

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Source(u32);

impl Spec for Source {
    const DEFINITION: Definition = DEFINITION;

    type Message = ();

    fn message(&self) {}
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Doubled(u32);

impl Spec for Doubled {
    const DEFINITION: Definition = Definition {
        type_name: "Doubleds.test.corten",
        ..DEFINITION
    };

    type Message = ();

    fn message(&self) {}
}

/// Doubles every source, holds the source with a finalizer, and fails on some values.
#[derive(Clone)]
struct Doubler {
    runs: Arc<AtomicU32>,
}

impl Controller for Doubler {
    fn name(&self) -> &'static str {
        "test.Doubler"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Source>(Dependency::Strong),
            Input::of::<Doubled>(Dependency::DestroyReady),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Doubled>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        loop {
            context.event().await;
            context.start_outputs();
            let sources = context.list::<Source>()?;
            for source in &sources {
                let pointer = &source.metadata().pointer;
                if source.metadata().phase == crate::Phase::TearingDown {
                    continue;
                }
                match source.0 {
                    13 => return Err("unlucky".into()),
                    14 => panic!("unluckier"),
                    value => {
                        context.hold(pointer)?;
                        context.put(Draft::new(source.id(), Doubled(2 * value)))?;
                    }
                }
            }
            if context.remove_others::<Doubled>()? {
                for source in sources {
                    if source.metadata().phase == crate::Phase::TearingDown {
                        context.let_go(&source.metadata().pointer)?;
                    }
                }
            }
        }
    }
}

/// A running doubler and its notices.
struct Bench {
    store: Store,
    runs: Arc<AtomicU32>,
    notices: Arc<Mutex<Vec<Notice>>>,
    _task: tokio::task::JoinSet<()>,
}

fn bench() -> Bench {
    let store = Store::new();
    let runs = Arc::<AtomicU32>::default();
    let mut runtime = Runtime::new(store.clone());
    runtime.add(Doubler { runs: runs.clone() }).unwrap();
    let notices = Arc::<Mutex<Vec<Notice>>>::default();
    let heard = notices.clone();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(runtime.run(move |notice| heard.lock().unwrap().push(notice)));
    Bench {
        store,
        runs,
        notices,
        _task: task,
    }
}

impl Bench {
    fn source(&self, id: &str, value: u32) {
        self.store.put(Draft::new(id, Source(value)), "").unwrap();
    }

    /// Waits until the double has this value, or is gone.
    async fn doubled(&self, id: &str, expected: Option<u32>) {
        let pointer = Pointer::of::<Doubled>(id);
        let mut watcher = self.store.watch(&pointer, Start::Now).unwrap();
        let reached = async {
            while let Some(event) = watcher.next().await {
                let now = match event.happened {
                    Happened::Absent(_) | Happened::Destroyed(_) => None,
                    _ => self.store.get_as::<Doubled>(id).map(|found| found.0),
                };
                if now == expected {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(20), reached)
            .await
            .unwrap_or_else(|_| panic!("{id} does not become {expected:?}"));
    }
}

#[tokio::test]
async fn outputs_follow_inputs() {
    let bench = bench();
    bench.source("a", 1);
    bench.source("b", 2);
    bench.doubled("a", Some(2)).await;
    bench.doubled("b", Some(4)).await;
    bench.source("a", 5);
    bench.doubled("a", Some(10)).await;
    let double = bench.store.get_as::<Doubled>("a").unwrap();
    assert_eq!(double.metadata().owner, "test.Doubler");
}

#[tokio::test]
async fn teardown_of_an_input_waits_for_finalizers_of_its_output() {
    let bench = bench();
    bench.source("a", 1);
    bench.doubled("a", Some(2)).await;
    let (source, double) = (Pointer::of::<Source>("a"), Pointer::of::<Doubled>("a"));
    bench.store.add_finalizer(&double, "reader").unwrap();
    assert!(!bench.store.teardown(&source, "").unwrap());
    let mut watcher = bench.store.watch(&double, Start::Now).unwrap();
    let tearing_down = async {
        while let Some(event) = watcher.next().await {
            if let Happened::Updated { new, .. } = event.happened
                && new.metadata.phase == crate::Phase::TearingDown
            {
                return;
            }
        }
    };
    timeout(Duration::from_secs(20), tearing_down)
        .await
        .unwrap();
    assert!(bench.store.destroy(&source, "").is_err());
    bench.store.remove_finalizer(&double, "reader").unwrap();
    bench.doubled("a", None).await;
    let gone = async {
        while bench.store.destroy(&source, "").is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failing_run_is_reported_and_retried_with_backoff() {
    let bench = bench();
    bench.source("a", 13);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let notices = bench.notices.lock().unwrap().clone();
    assert!((3..=6).contains(&notices.len()), "{notices:?}");
    assert!(
        notices
            .iter()
            .all(|notice| !notice.panicked && notice.error == "unlucky")
    );
    let waits: Vec<_> = notices.iter().map(|notice| notice.retry_in).collect();
    assert!(waits.is_sorted(), "{waits:?}");
    bench.source("a", 1);
    bench.doubled("a", Some(2)).await;
    // A success in between resets the backoff.
    bench.source("a", 13);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let last = bench.notices.lock().unwrap().last().cloned().unwrap();
    assert!(last.retry_in < Duration::from_secs(1), "{last}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_controller_stays_in_that_controller() {
    let bench = bench();
    bench.source("b", 1);
    bench.source("a", 14);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let notice = bench.notices.lock().unwrap().first().cloned().unwrap();
    assert!(notice.panicked);
    assert_eq!(notice.error, "unluckier");
    bench.source("a", 3);
    bench.doubled("a", Some(6)).await;
    assert!(bench.runs.load(Ordering::SeqCst) >= 2);
}

/// Fails after two minutes, every time.
#[derive(Clone)]
struct Tiring;

impl Controller for Tiring {
    fn name(&self) -> &'static str {
        "test.Tiring"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        Err("tired".into())
    }
}

#[tokio::test(start_paused = true)]
async fn long_run_resets_the_backoff() {
    let mut runtime = Runtime::new(Store::new());
    runtime.add(Tiring).unwrap();
    let notices = Arc::<Mutex<Vec<Notice>>>::default();
    let heard = notices.clone();
    let run = runtime.run(move |notice| heard.lock().unwrap().push(notice));
    let ended = timeout(Duration::from_secs(1_000), run).await;
    assert!(ended.is_err(), "{ended:?}");
    let notices = notices.lock().unwrap().clone();
    assert!(notices.len() > 6, "{notices:?}");
    assert!(
        notices
            .iter()
            .all(|notice| notice.retry_in < Duration::from_secs(1))
    );
}

/// Makes undeclared calls.
#[derive(Clone)]
struct Meddler;

impl Controller for Meddler {
    fn name(&self) -> &'static str {
        "test.Meddler"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Source>(Dependency::Weak).with_id("mine")]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let refused = |error: StoreError, does: &str| {
            assert!(
                matches!(error, StoreError::Undeclared { does: what, .. } if what == does),
                "{error}"
            );
        };
        assert!(context.get::<Source>("mine")?.is_some());
        refused(context.get::<Source>("other").unwrap_err(), "reads");
        refused(context.list::<Source>().unwrap_err(), "reads");
        refused(context.get::<Doubled>("mine").unwrap_err(), "reads");
        let write = context.put(Draft::new("mine", Source(2)));
        refused(write.unwrap_err(), "writes");
        let pointer = Pointer::of::<Source>("mine");
        refused(context.remove(&pointer).unwrap_err(), "writes");
        refused(context.hold(&pointer).unwrap_err(), "holds");
        Ok(())
    }
}

#[tokio::test]
async fn undeclared_access_of_a_controller_is_refused() {
    let store = Store::new();
    let mut runtime = Runtime::new(store.clone());
    runtime.add(Meddler).unwrap();
    store.put(Draft::new("mine", Source(1)), "").unwrap();
    let notices = Arc::<Mutex<Vec<Notice>>>::default();
    let heard = notices.clone();
    let run = runtime.run(move |notice| heard.lock().unwrap().push(notice));
    timeout(Duration::from_secs(20), run).await.unwrap();
    assert_eq!(*notices.lock().unwrap(), []);
    assert_eq!(store.get_as::<Source>("mine").unwrap().0, 1);
}

/// Also writes doubles.
#[derive(Clone)]
struct Rival(&'static str, Output);

impl Controller for Rival {
    fn name(&self) -> &'static str {
        self.0
    }

    fn outputs(&self) -> Vec<Output> {
        vec![self.1]
    }

    async fn run(self, _: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn exclusive_output_has_a_single_owner() {
    let doubler = Doubler {
        runs: Arc::default(),
    };
    for (rival, exclusive) in [
        (Output::shared::<Doubled>(), "test.Doubler"),
        (Output::exclusive::<Doubled>(), "test.Doubler"),
    ] {
        let mut runtime = Runtime::new(Store::new());
        runtime.add(doubler.clone()).unwrap();
        let error = runtime.add(Rival("test.Rival", rival)).unwrap_err();
        let expected = GraphError::OutputTaken {
            first: "test.Doubler",
            second: "test.Rival",
            exclusive,
            type_name: "Doubleds.test.corten",
        };
        assert_eq!(error, expected);
    }
    let mut runtime = Runtime::new(Store::new());
    let shared = Output::shared::<Doubled>();
    runtime.add(Rival("test.A", shared)).unwrap();
    runtime.add(Rival("test.B", shared)).unwrap();
    let again = runtime.add(Rival("test.B", shared)).unwrap_err();
    assert_eq!(again, GraphError::NameTaken("test.B"));
    let error = runtime.add(doubler).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("and test.Doubler declares it exclusive"),
        "{error}"
    );
}

#[test]
fn graph_lists_inputs_and_outputs() {
    let mut runtime = Runtime::new(Store::new());
    let runs = Arc::default();
    runtime.add(Doubler { runs }).unwrap();
    runtime.add(Meddler).unwrap();
    assert_eq!(
        runtime.graph().to_string(),
        "test.Doubler\n\
         \x20 reads  test/Sources.test.corten (strong)\n\
         \x20 reads  test/Doubleds.test.corten (destroy-ready)\n\
         \x20 writes Doubleds.test.corten (YAML alone)\n\
         test.Meddler\n\
         \x20 reads  test/Sources.test.corten/mine\n"
    );
    let dot = runtime.graph().dot();
    assert!(
        dot.starts_with("digraph controllers {\n") && dot.ends_with("}\n"),
        "{dot}"
    );
    for edge in [
        r#""Sources.test.corten" -> "test.Doubler" [style=solid];"#,
        r#""test.Doubler" -> "Doubleds.test.corten";"#,
        r#""Sources.test.corten" -> "test.Meddler" [style=dashed];"#,
    ] {
        assert!(dot.contains(edge), "{dot}");
    }
}
