//! Test support: a supervisor with a fake containerd.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use corten_base::events::Events;
use corten_sys::child::CapabilitySet;
use corten_sys::process::Signal;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;

use super::container::{Bundle, Runtime, Started};
use super::limits::{Backoff, Limits, Restart, Start};
use super::{Outside, Places, Supervisor, logs};
use crate::view::ServiceView;
use crate::{Container, Root, Runner, ServiceSpec};

/// State of the fake: its containers and the calls it received.
#[derive(Debug, Default)]
pub struct State {
    pub(super) away: bool,
    /// Whether a start never returns.
    pub(super) hangs: bool,
    /// Whether the answer to a start is lost, though the container runs.
    pub(super) loses_answers: bool,
    /// Running containers by id, with the PID of the first process.
    pub running: HashMap<String, (Bundle, u32)>,
    pub(super) ended: HashMap<String, i32>,
    /// Number of containers created.
    pub made: u32,
    pub(super) signals: Vec<Signal>,
    /// Number of signals to refuse while containerd is there.
    pub(super) refuses: u32,
}

/// A fake containerd. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Fake(Arc<Mutex<State>>, Arc<watch::Sender<()>>);

impl Fake {
    /// Changes the state and wakes waiters.
    pub fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let answer = act(&mut self.0.lock().unwrap());
        self.1.send_replace(());
        answer
    }

    /// Ends a running container.
    pub fn end(&self, id: &str, code: i32) {
        self.change(|state| {
            assert!(state.running.remove(id).is_some(), "{id} does not run");
            state.ended.insert(id.to_owned(), code);
        });
    }

    pub(super) async fn until<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        let mut changes = self.1.subscribe();
        let reached = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(&self.0.lock().unwrap()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), reached).await.unwrap()
    }
}

fn away() -> Status {
    Status::unavailable("away")
}

#[async_trait]
impl Runtime for Fake {
    async fn start(&self, id: &str, bundle: &Bundle) -> Result<Started, Status> {
        if self.change(|state| state.hangs) {
            std::future::pending::<()>().await;
        }
        self.change(|state| {
            if state.away {
                return Err(away());
            }
            if let Some((same, pid)) = state.running.get(id)
                && same == bundle
            {
                let taken_over = true;
                return Ok(Started {
                    pid: *pid,
                    taken_over,
                });
            }
            state.made += 1;
            let pid = 100 + state.made;
            state.ended.remove(id);
            state.running.insert(id.to_owned(), (bundle.clone(), pid));
            let mut output = fs::OpenOptions::new().write(true).open(&bundle.output)?;
            writeln!(output, "hello from {pid}")?;
            if state.loses_answers {
                state.away = true;
                return Err(away());
            }
            let taken_over = false;
            Ok(Started { pid, taken_over })
        })
    }

    async fn wait(&self, id: &str) -> Result<i32, Status> {
        self.until(|state| {
            if state.away {
                return Some(Err(away()));
            }
            if state.running.contains_key(id) {
                return None;
            }
            let ended = state.ended.get(id).copied();
            Some(ended.ok_or_else(|| Status::not_found("no such container")))
        })
        .await
    }

    async fn signal(&self, id: &str, signal: Signal) -> Result<(), Status> {
        self.change(|state| {
            if state.away {
                return Err(away());
            }
            if state.refuses > 0 {
                state.refuses -= 1;
                return Err(Status::internal("refused"));
            }
            state.signals.push(signal);
            if state.running.remove(id).is_some() {
                state.ended.insert(id.to_owned(), 128 + signal.as_raw());
            }
            Ok(())
        })
    }

    async fn remove(&self, id: &str) -> Result<(), Status> {
        self.change(|state| {
            if state.away {
                return Err(away());
            }
            state.running.remove(id);
            state.ended.remove(id);
            Ok(())
        })
    }
}

pub(super) const LIMITS: Limits = Limits {
    start: Start::AtOnce,
    ready: Some(Duration::from_secs(600)),
    health: None,
    stop: Duration::from_secs(600),
    restart: Restart::Always,
    backoff: Backoff {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(1),
        forgiven_after: Duration::from_secs(600),
    },
};

/// A container without preconditions.
pub fn spec(id: &str) -> ServiceSpec {
    let container = Container {
        root: Root::Directory("/usr/local/lib/containers/x".into()),
        writable_root: false,
        host_processes: false,
        writable_sysfs: false,
        args: vec!["/x".to_owned()],
        environment: Vec::new(),
        environment_file: None,
        mounts: Vec::new(),
        masked_paths: None,
        readonly_paths: None,
        propagation: "rslave".to_owned(),
        uid: 0,
        capabilities: CapabilitySet::empty(),
        memory_max: None,
        log_to_console: false,
    };
    ServiceSpec {
        id: id.into(),
        runner: Runner::Container(Box::new(container)),
        depends_on: Vec::new(),
        needs: Vec::new(),
        limits: LIMITS,
        oom_score_adj: 0,
        cgroup: "system/x".to_owned(),
    }
}

/// A supervisor and its runtime.
#[derive(Debug)]
pub struct World {
    /// The fake runtime.
    pub fake: Fake,
    /// The supervisor; it has no services yet.
    pub supervisor: Supervisor,
    /// Output of its services.
    pub logs: logs::Queue,
    /// Directory of its files.
    pub directory: tempfile::TempDir,
}

/// Creates a new world.
pub fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let places = Places {
        cgroups: directory.path().join("cgroup"),
        notify: directory.path().join("notify"),
        stage: directory.path().join("stage"),
        containers: directory.path().join("containers"),
    };
    let fake = Fake::default();
    // The test's own children do not belong to the supervisor.
    let outside = Outside {
        runtime: Arc::new(fake.clone()),
        reap: || Ok(None),
    };
    let (sender, logs) = logs::queue();
    let supervisor =
        Supervisor::new(Vec::new(), places, outside, sender, Events::default()).unwrap();
    World {
        fake,
        supervisor,
        logs,
        directory,
    }
}

impl World {
    /// Waits until the predicate holds for the service, and returns the last message of its history.
    pub async fn until(&self, id: &str, is: impl Fn(&ServiceView) -> bool) -> String {
        let mut views = self.supervisor.watch();
        let there = |views: &Vec<ServiceView>| views.iter().any(|view| view.id == id && is(view));
        let found = timeout(Duration::from_secs(20), views.wait_for(there)).await;
        let Ok(found) = found else {
            panic!("{id} is {:?}", self.supervisor.views());
        };
        let found = found.unwrap();
        let view = found.iter().find(|view| view.id == id).unwrap();
        view.events.last().unwrap().message.clone()
    }

    /// Waits until its history contains this message.
    pub async fn until_said(&self, id: &str, text: &str) {
        let said = |view: &ServiceView| view.events.iter().any(|event| event.message == text);
        self.until(id, said).await;
    }

    /// Waits until it is up, and returns the last message of its history.
    pub async fn until_up(&self, id: &str) -> String {
        self.until(id, |view| view.healthy == Some(true)).await
    }
}
