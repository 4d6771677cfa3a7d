//! Runs the services of the table: the thin shell around `policy.rs`.
//!
//! One task owns every child of this process: it alone starts children and it alone reaps, so no exit
//! status can be lost and no process id can be reused behind its back. Orphans are reaped on the way.
//! Everyone else has a [`Supervisor`]: orders go in, views come out, nobody waits for a service here.

pub mod logs;
pub mod notify;
pub mod policy;
mod process;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use corten_sys::process as sys;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::console;
use crate::node::{ServiceEvent, ServiceState, ServiceView};
use crate::services::{ServiceSpec, stop_waves};
use policy::{Act, Event, State};

/// The API shows so many (the reference's number).
const HISTORY: usize = 64;
/// Children reaped before other work gets a turn, so that a storm of orphans delays nobody for long.
const REAPED_PER_TURN: usize = 256;

/// Where the supervisor works.
#[derive(Debug, Clone)]
pub struct Places {
    /// The cgroup2 hierarchy.
    pub cgroups: PathBuf,
    /// A directory for the services' notify sockets.
    pub notify: PathBuf,
}

enum Order {
    Start(&'static str),
    Redefine(ServiceSpec),
    StopAll(oneshot::Sender<()>),
}

/// A handle: cheap to clone, never blocks.
#[derive(Debug, Clone)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    views: watch::Receiver<Vec<ServiceView>>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Order::Start(_) => "Start",
            Order::Redefine(_) => "Redefine",
            Order::StopAll(_) => "StopAll",
        })
    }
}

impl Supervisor {
    /// Declares the services and starts the task; none of them starts yet.
    ///
    /// # Errors
    /// When SIGCHLD cannot be caught or a notify socket cannot be bound.
    pub fn new(
        specs: Vec<ServiceSpec>,
        places: Places,
        logs: logs::Sender,
    ) -> std::io::Result<Supervisor> {
        // Anyone may pass to the socket that is his.
        fs::create_dir_all(&places.notify)?;
        fs::set_permissions(&places.notify, fs::Permissions::from_mode(0o711))?;
        let (orders, order_receiver) = mpsc::unbounded_channel();
        let (ready, ready_receiver) = mpsc::unbounded_channel();
        let mut services = Vec::new();
        for spec in specs {
            let socket = places.notify.join(format!("{}.sock", spec.id));
            notify::listen(spec.id, &socket, spec.uid, ready.clone())?;
            services.push(Service::new(spec, socket));
        }
        let (publisher, views) = watch::channel(services.iter().map(|s| s.view.clone()).collect());
        let shell = Shell {
            services,
            places,
            logs,
            orders: order_receiver,
            ready: ready_receiver,
            children: signal(SignalKind::child())?,
            publisher,
            stopping: None,
        };
        tokio::spawn(shell.run());
        Ok(Supervisor { orders, views })
    }

    /// Wants the service to run.
    pub fn start(&self, id: &'static str) {
        let _ = self.orders.send(Order::Start(id));
    }

    /// Replaces a service's declaration and starts it anew with it.
    pub fn redefine(&self, spec: ServiceSpec) {
        let _ = self.orders.send(Order::Redefine(spec));
    }

    /// Stops everything, dependents first, and starts nothing ever after. Ends when all have ended.
    pub async fn stop_all(&self) {
        let (done, ended) = oneshot::channel();
        let _ = self.orders.send(Order::StopAll(done));
        let _ = ended.await;
    }

    /// Waits until the service is up.
    pub async fn up(&self, id: &str) {
        let mut views = self.views.clone();
        let is_up = |views: &Vec<ServiceView>| {
            views
                .iter()
                .any(|view| view.id == id && view.healthy == Some(true))
        };
        let _ = views.wait_for(is_up).await;
    }

    /// The services now.
    #[must_use]
    pub fn views(&self) -> Vec<ServiceView> {
        self.views.borrow().clone()
    }
}

/// One service and where it is.
struct Service {
    spec: ServiceSpec,
    socket: PathBuf,
    state: State,
    view: ServiceView,
    history: VecDeque<ServiceEvent>,
}

impl Service {
    fn new(spec: ServiceSpec, socket: PathBuf) -> Service {
        let view = ServiceView {
            id: spec.id.to_owned(),
            state: ServiceState::Initialized,
            healthy: None,
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        };
        Service {
            spec,
            socket,
            state: State::Initialized,
            view,
            history: VecDeque::new(),
        }
    }

    fn note(&mut self, state: ServiceState, message: String) {
        console::service(self.spec.id, &message);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(ServiceEvent {
            message,
            state,
            at: SystemTime::now(),
        });
        self.view.state = state;
        self.view.events = self.history.iter().cloned().collect();
    }

    fn set_health(&mut self, healthy: bool) {
        self.view.healthy = Some(healthy);
        self.view.health_message = if healthy {
            String::new()
        } else {
            "the service is not up".to_owned()
        };
        self.view.health_changed = SystemTime::now();
    }
}

/// An orderly stop under way.
struct Stopping {
    waves: VecDeque<Vec<&'static str>>,
    wave: Vec<&'static str>,
    done: Option<oneshot::Sender<()>>,
}

struct Shell {
    services: Vec<Service>,
    places: Places,
    logs: logs::Sender,
    orders: mpsc::UnboundedReceiver<Order>,
    ready: mpsc::UnboundedReceiver<&'static str>,
    children: Signal,
    publisher: watch::Sender<Vec<ServiceView>>,
    stopping: Option<Stopping>,
}

impl Shell {
    async fn run(mut self) {
        let mut more_children = false;
        loop {
            let deadline = self
                .services
                .iter()
                .filter_map(|service| service.state.deadline())
                .min();
            tokio::select! {
                Some(order) = self.orders.recv() => self.obey(order),
                Some(id) = self.ready.recv() => self.happened(id, Event::Ready),
                _ = self.children.recv() => more_children = self.reap(),
                () = tokio::task::yield_now(), if more_children => more_children = self.reap(),
                () = until(deadline) => self.tick(),
            }
            self.start_what_can();
            self.go_on_stopping();
            self.publish();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(_) | Order::Redefine(_) if self.stopping.is_some() => {}
            Order::Start(id) => self.happened(id, Event::Start),
            Order::Redefine(spec) => {
                let id = spec.id;
                if let Some(service) = self
                    .services
                    .iter_mut()
                    .find(|service| service.spec.id == id)
                {
                    service.spec = spec;
                    self.happened(id, Event::Restart);
                }
            }
            Order::StopAll(done) => {
                let specs: Vec<_> = self
                    .services
                    .iter()
                    .map(|service| service.spec.clone())
                    .collect();
                let waves = stop_waves(&specs).into();
                self.stopping = Some(Stopping {
                    waves,
                    wave: Vec::new(),
                    done: Some(done),
                });
            }
        }
    }

    /// Feeds the event to the service's policy and carries out the answer.
    fn happened(&mut self, id: &str, event: Event) {
        let Some(at) = self
            .services
            .iter()
            .position(|service| service.spec.id == id)
        else {
            return;
        };
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(service) = self.services.get_mut(at) else {
                return;
            };
            let (state, acts) =
                policy::step(service.state, event, Instant::now(), &service.spec.limits);
            service.state = state;
            for act in acts {
                events.extend(self.carry_out(at, act));
            }
        }
    }

    fn carry_out(&mut self, at: usize, act: Act) -> Option<Event> {
        match act {
            Act::AwaitDependencies => {
                let missing = self.missing_dependencies(at);
                let service = self.services.get_mut(at)?;
                if !missing.is_empty() {
                    let names: Vec<_> = missing
                        .iter()
                        .map(|id| format!("service {id:?} to be \"up\""))
                        .collect();
                    service.note(
                        ServiceState::Waiting,
                        format!("Waiting for {}", names.join(", ")),
                    );
                }
            }
            Act::Spawn => {
                let service = self.services.get(at)?;
                return Some(
                    match process::spawn(
                        &service.spec,
                        &self.places.cgroups,
                        &service.socket,
                        &self.logs,
                    ) {
                        Ok(pid) => Event::Spawned(pid),
                        Err(error) => Event::SpawnFailed(error.to_string()),
                    },
                );
            }
            Act::Terminate(pid) => drop(sys::signal_group(pid, sys::Signal::TERM)),
            Act::Kill(pid) => drop(sys::signal_group(pid, sys::Signal::KILL)),
            Act::Note(state, message) => self.services.get_mut(at)?.note(state, message),
            Act::Health(healthy) => self.services.get_mut(at)?.set_health(healthy),
        }
        None
    }

    fn missing_dependencies(&self, at: usize) -> Vec<&'static str> {
        let up = |id: &str| {
            self.services
                .iter()
                .any(|other| other.spec.id == id && other.state.is_up())
        };
        let needed = self
            .services
            .get(at)
            .map_or(&[] as &[_], |service| service.spec.depends_on);
        needed.iter().copied().filter(|id| !up(id)).collect()
    }

    fn start_what_can(&mut self) {
        for at in 0..self.services.len() {
            let waits = self
                .services
                .get(at)
                .filter(|s| matches!(s.state, State::Waiting { .. }));
            let Some(id) = waits.map(|service| service.spec.id) else {
                continue;
            };
            if self.missing_dependencies(at).is_empty() {
                self.happened(id, Event::DependenciesUp);
            }
        }
    }

    /// Reaps what has ended; true when there may be more.
    fn reap(&mut self) -> bool {
        for _ in 0..REAPED_PER_TURN {
            let reaped = match sys::reap() {
                Ok(Some(reaped)) => reaped,
                Ok(None) => return false,
                Err(error) => {
                    console::warn(&format!("cannot reap: {error}"));
                    return false;
                }
            };
            let owner = self
                .services
                .iter()
                .find(|service| service.state.pid() == Some(reaped.pid));
            if let Some(id) = owner.map(|service| service.spec.id) {
                self.happened(id, Event::Exited(reaped.exit));
            }
        }
        true
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let due = |service: &&Service| {
            service
                .state
                .deadline()
                .is_some_and(|deadline| deadline <= now)
        };
        let ids: Vec<_> = self
            .services
            .iter()
            .filter(due)
            .map(|service| service.spec.id)
            .collect();
        for id in ids {
            self.happened(id, Event::Tick);
        }
    }

    fn go_on_stopping(&mut self) {
        loop {
            let Some(stopping) = &mut self.stopping else {
                return;
            };
            let at_rest = |id: &&str| {
                self.services
                    .iter()
                    .any(|service| service.spec.id == *id && service.state.is_at_rest())
            };
            if !stopping.wave.iter().all(at_rest) {
                return;
            }
            let Some(wave) = stopping.waves.pop_front() else {
                if let Some(done) = stopping.done.take() {
                    let _ = done.send(());
                }
                return;
            };
            stopping.wave.clone_from(&wave);
            for id in wave {
                self.happened(id, Event::Stop);
            }
        }
    }

    fn publish(&self) {
        let now: Vec<_> = self
            .services
            .iter()
            .map(|service| service.view.clone())
            .collect();
        let changed = |old: &Vec<ServiceView>| {
            old.iter().zip(&now).any(|(old, new)| {
                old.events.last().map(|event| event.at) != new.events.last().map(|event| event.at)
                    || old.health_changed != new.health_changed
            })
        };
        self.publisher.send_if_modified(|views| {
            let modified = changed(views);
            if modified {
                views.clone_from(&now);
            }
            modified
        });
    }
}

/// Sleeps until then, or for ever.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
