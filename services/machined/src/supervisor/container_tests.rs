//! Containers under the supervisor, with a runtime that plays containerd.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::sync::Mutex;

use corten_sys::child::CapabilitySet;
use tokio::sync::watch;

use super::*;
use crate::events::Events;
use crate::node::{Control, ServiceState, ServiceView};
use crate::services::{Condition, Root, Runner};
use crate::supervisor::limits::{Backoff, Limits, Restart};
use crate::supervisor::{Outside, Supervisor};

/// What runs in the fake, and what was asked of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    away: bool,
    /// Starting takes for ever.
    hangs: bool,
    /// The answer to a start is lost, though the container runs.
    loses_answers: bool,
    pub(crate) running: HashMap<String, (Bundle, u32)>,
    ended: HashMap<String, i32>,
    /// How many containers were made.
    pub(crate) made: u32,
    signals: Vec<Signal>,
    /// So many signals are refused, while containerd is there.
    refuses: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>, Arc<watch::Sender<()>>);

impl Fake {
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let answer = act(&mut self.0.lock().unwrap());
        self.1.send_replace(());
        answer
    }

    fn end(&self, id: &str, code: i32) {
        self.change(|state| {
            assert!(state.running.remove(id).is_some(), "{id} does not run");
            state.ended.insert(id.to_owned(), code);
        });
    }

    async fn until<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
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

const LIMITS: Limits = Limits {
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

pub(crate) fn spec(id: &str) -> ServiceSpec {
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

pub(crate) struct World {
    pub(crate) fake: Fake,
    pub(crate) supervisor: Supervisor,
    logs: logs::Queue,
    directory: tempfile::TempDir,
}

pub(crate) fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let places = Places {
        cgroups: directory.path().join("cgroup"),
        notify: directory.path().join("notify"),
        stage: directory.path().join("stage"),
        containers: directory.path().join("containers"),
    };
    let fake = Fake::default();
    // Children of the test's process are not the supervisor's.
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
    /// Waits until the service looks like this, and returns the last words of its history.
    pub(crate) async fn until(&self, id: &str, is: impl Fn(&ServiceView) -> bool) -> String {
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

    pub(crate) async fn until_said(&self, id: &str, text: &str) {
        let said = |view: &ServiceView| view.events.iter().any(|event| event.message == text);
        self.until(id, said).await;
    }

    pub(crate) async fn until_up(&self, id: &str) -> String {
        self.until(id, |view| view.healthy == Some(true)).await
    }
}

#[tokio::test]
async fn a_forgotten_service_is_known_until_it_has_ended_and_may_come_back() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.supervisor.forget("x");
    world.supervisor.forget("never declared");
    let mut views = world.supervisor.watch();
    let gone = views.wait_for(Vec::is_empty);
    timeout(Duration::from_secs(20), gone)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| assert!(state.running.is_empty()));
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    // One that is wanted again before it has ended goes on to be known.
    world.supervisor.forget("x");
    world.supervisor.declare(spec("x"));
    world.until("x", |view| view.pid == Some(103)).await;
    world.until_up("x").await;
}

#[tokio::test]
async fn all_stop_though_one_of_them_is_forgotten_meanwhile() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    let dependent = ServiceSpec {
        depends_on: vec!["x".into()],
        ..spec("y")
    };
    world.supervisor.declare(dependent);
    world.until_up("y").await;
    // Both end by themselves, and y, which is to end first, does so last.
    world.fake.change(|state| state.refuses = u32::MAX);
    world.supervisor.forget("x");
    let supervisor = world.supervisor.clone();
    let stopped = tokio::spawn(async move { supervisor.stop_all().await });
    let stopping = |view: &ServiceView| view.state == ServiceState::Stopping;
    world.until("y", stopping).await;
    world.fake.end("x", 0);
    let mut views = world.supervisor.watch();
    let gone = views.wait_for(|views| views.iter().all(|view| view.id != "x"));
    timeout(Duration::from_secs(20), gone)
        .await
        .unwrap()
        .unwrap();
    world.fake.end("y", 0);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_container_starts_speaks_ends_and_starts_again() {
    let mut world = world();
    world.supervisor.declare(spec("x"));
    assert_eq!(
        world.until_up("x").await,
        "Started task x (PID 101) for container x"
    );
    world.until("x", |view| view.pid == Some(101)).await;
    assert_eq!(
        world.logs.next_line().await,
        ("x".to_owned(), "hello from 101".to_owned())
    );
    world.fake.end("x", 3);
    world
        .until_said("x", "Ended: exit code 3; starting again in 1 ms")
        .await;
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
    world.until("x", |view| view.pid == Some(102)).await;
    assert_eq!(world.logs.next_line().await.1, "hello from 102");
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.until("x", |view| view.pid.is_none()).await;
}

#[tokio::test]
async fn a_container_waits_for_services_and_conditions_and_says_so() {
    let world = world();
    let waiting = ServiceSpec {
        depends_on: vec!["other".into()],
        needs: vec![Condition::Time],
        ..spec("x")
    };
    world.supervisor.declare(waiting);
    let both = "Waiting for service \"other\" to be \"up\", the time to be known";
    world.until_said("x", both).await;
    world.supervisor.declare(spec("other"));
    world.until_up("other").await;
    let conditions = world.supervisor.conditions();
    conditions.set(Condition::Time, Err("no server".to_owned()));
    world
        .until_said("x", "Waiting for the time to be known (no server)")
        .await;
    conditions.set(Condition::Time, Ok(()));
    world.until_up("x").await;
}

#[tokio::test]
async fn a_container_outlives_a_restart_of_containerd() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.away = true);
    // What is asked for meanwhile is done when it is back.
    let stopped = world.supervisor.control("x", Control::Stop);
    world
        .until("x", |view| view.state == ServiceState::Stopping)
        .await;
    world.fake.change(|state| {
        assert_eq!((state.running.len(), state.signals.len()), (1, 0));
        state.away = false;
    });
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| {
        assert_eq!(
            (state.made, state.signals.as_slice()),
            (1, &[Signal::TERM][..])
        );
    });
}

#[tokio::test]
async fn a_signal_that_was_refused_is_sent_again() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.refuses = 2);
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| {
        assert_eq!(
            (state.refuses, state.signals.as_slice()),
            (0, &[Signal::TERM][..])
        );
    });
}

#[tokio::test]
async fn a_container_that_ended_while_containerd_was_away_is_noticed() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.away = true);
    world.fake.change(|state| {
        state.running.clear();
        state.away = false;
    });
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
}

#[tokio::test]
async fn a_container_whose_start_was_not_answered_is_taken_over_not_doubled() {
    let world = world();
    world.fake.change(|state| state.loses_answers = true);
    // Not even one that is to be run once fails by it.
    let once = ServiceSpec {
        limits: Limits {
            restart: Restart::Never,
            ..LIMITS
        },
        ..spec("x")
    };
    world.supervisor.declare(once);
    world.fake.until(|state| state.away.then_some(())).await;
    world.fake.change(|state| {
        state.loses_answers = false;
        state.away = false;
    });
    world
        .until_said("x", "Took over task x (PID 101) for container x")
        .await;
    assert_eq!(world.fake.change(|state| state.made), 1);
}

#[tokio::test]
async fn what_is_declared_again_goes_on_and_what_is_declared_otherwise_starts_anew() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.supervisor.declare(spec("x"));
    let other = ServiceSpec {
        oom_score_adj: 7,
        ..spec("x")
    };
    world.supervisor.declare(other);
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
    world.fake.change(|state| {
        assert_eq!((state.made, state.running["x"].0.oom_score_adj), (2, 7));
    });
}

#[tokio::test]
async fn a_start_that_hangs_can_be_stopped() {
    let world = world();
    world.fake.change(|state| state.hangs = true);
    world.supervisor.declare(spec("x"));
    world.until_said("x", "Creating the container").await;
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_file_of_variables_that_is_a_pipe_is_refused_not_waited_for() {
    let world = world();
    let pipe = world.directory.path().join("env");
    make_fifo(&pipe).unwrap();
    let mut declared = spec("x");
    if let Runner::Container(container) = &mut declared.runner {
        container.environment_file = Some(pipe);
    }
    world.supervisor.declare(declared);
    let refused = |view: &ServiceView| {
        let mut events = view.events.iter();
        events.any(|event| event.message.contains("must be a regular file"))
    };
    world.until("x", refused).await;
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn all_are_stopped_dependents_first() {
    let world = world();
    let dependent = ServiceSpec {
        depends_on: vec!["x".into()],
        ..spec("y")
    };
    world.supervisor.declare(spec("x"));
    world.supervisor.declare(dependent);
    world.until_up("y").await;
    timeout(Duration::from_secs(20), world.supervisor.stop_all())
        .await
        .unwrap();
    let finished = |id: &str| {
        let views = world.supervisor.views();
        let view = views.into_iter().find(|view| view.id == id).unwrap();
        assert_eq!(view.state, ServiceState::Finished);
        view.events.last().unwrap().at
    };
    assert!(finished("y") <= finished("x"));
}

#[tokio::test]
async fn what_cannot_be_used_is_listed_as_failed_and_says_why() {
    let world = world();
    let broken = ServiceSpec {
        runner: Runner::Unusable("x.yaml: name: it is empty".to_owned()),
        limits: Limits {
            restart: Restart::Never,
            ..LIMITS
        },
        ..spec("x")
    };
    world.supervisor.declare(broken);
    let said = world
        .until("x", |view| view.state == ServiceState::Failed)
        .await;
    assert_eq!(said, "Failed to start: x.yaml: name: it is empty");
}

#[tokio::test]
async fn variables_come_from_declaration_and_file() {
    let world = world();
    let file = world.directory.path().join("env");
    let mut declared = spec("x");
    if let Runner::Container(container) = &mut declared.runner {
        container.environment = vec!["A=1".to_owned()];
        container.environment_file = Some(file.clone());
    }
    world.supervisor.declare(declared);
    let missing = |view: &ServiceView| {
        view.events
            .iter()
            .any(|event| event.message.contains("env: No such file"))
    };
    world.until("x", missing).await;
    fs::write(&file, "# comment\n\nB=2\nC=a=b\n").unwrap();
    world.until_up("x").await;
    let environment = world
        .fake
        .change(|state| state.running["x"].0.environment.clone());
    assert_eq!(environment[1..], ["A=1", "B=2", "C=a=b"]);
    for endless in ["/dev/zero", "/dev/stdin", "/proc"] {
        let error = read_environment(Path::new(endless)).unwrap_err();
        assert_eq!(error.to_string(), "must be a regular file");
    }
    fs::write(&file, "A=".repeat(1 << 20)).unwrap();
    let error = read_environment(&file).unwrap_err().to_string();
    assert!(error.contains("1048576 bytes or more"), "{error}");
    for (text, line) in [("A=1\nnovalue\n", 2), ("=1", 1), ("A=\0", 1)] {
        fs::write(&file, text).unwrap();
        let error = read_environment(&file).unwrap_err().to_string();
        assert_eq!(error, format!("line {line} is not NAME=value"));
    }
}
