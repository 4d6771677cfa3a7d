//! The shell around the policy: one task, which owns every child of process 1.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use corten_sys::process as sys;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};

use super::needs::Known;
use super::policy::{self, Act, Event, State};
use super::{Order, Places, control, logs, notify, process, tool};
use corten_api::machine as api;

use crate::console;
use crate::events::Events;
use crate::node::{ServiceEvent, ServiceState, ServiceView};
use crate::services::{Condition, ServiceSpec, stop_waves};

/// The API shows so many (the reference's number).
const HISTORY: usize = 64;
/// Children reaped before other work gets a turn, so that a storm of orphans delays nobody for long.
const REAPED_PER_TURN: usize = 256;

/// One service and where it is.
pub(super) struct Service {
    pub(super) spec: ServiceSpec,
    socket: PathBuf,
    pub(super) state: State,
    pub(super) view: ServiceView,
    history: VecDeque<ServiceEvent>,
}

impl Service {
    pub(super) fn new(spec: ServiceSpec, socket: PathBuf) -> Service {
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
        // A service that cannot start repeats itself; its history keeps it, the console need not.
        let said_before = self
            .history
            .iter()
            .rev()
            .take(2)
            .any(|event| event.message == message);
        if !said_before {
            console::service(self.spec.id, &message);
        }
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

    /// What the last entry of its history says, for the API.
    fn event(&self) -> api::ServiceStateEvent {
        let last = self.history.back();
        api::ServiceStateEvent {
            service: self.spec.id.to_owned(),
            action: self.view.state as i32,
            message: last.map(|event| event.message.clone()).unwrap_or_default(),
            health: Some((&self.view).into()),
        }
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
pub(super) struct Stopping {
    waves: VecDeque<Vec<&'static str>>,
    wave: Vec<&'static str>,
    done: Option<oneshot::Sender<()>>,
}

pub(super) struct Shell {
    pub(super) services: Vec<Service>,
    pub(super) places: Places,
    pub(super) logs: logs::Sender,
    pub(super) events: Events,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    pub(super) ready: mpsc::UnboundedReceiver<&'static str>,
    /// The other end of `ready`, for services to come.
    pub(super) speakers: mpsc::UnboundedSender<&'static str>,
    pub(super) known: Known,
    pub(super) children: Signal,
    pub(super) publisher: watch::Sender<Vec<ServiceView>>,
    /// By process id.
    pub(super) tools: HashMap<u32, tool::Running>,
    pub(super) stopping: Option<Stopping>,
    /// Who waits for a service to have started or stopped.
    pub(super) controls: Vec<control::Request>,
}

impl Shell {
    pub(super) async fn run(mut self) {
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
            self.answer_controls();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(_)
            | Order::Stop(_)
            | Order::Declare(_)
            | Order::Redefine(_)
            | Order::Control(_)
            | Order::Run(_)
                if self.stopping.is_some() => {}
            Order::Control(request) => self.control(request),
            Order::Declare(spec) => self.declare(spec),
            Order::Condition(condition, holds) => self.learn(condition, holds),
            Order::Run(job) => self.tools.extend(tool::start(job)),
            Order::Start(id) => self.happened(id, Event::Start),
            Order::Stop(id) => self.happened(id, Event::Stop),
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

    fn declare(&mut self, spec: ServiceSpec) {
        let id = spec.id;
        if self.services.iter().any(|service| service.spec.id == id) {
            return self.happened(id, Event::Start);
        }
        let socket = self.places.notify.join(format!("{id}.sock"));
        if let Err(error) = notify::listen(id, &socket, spec.uid, self.speakers.clone()) {
            return console::error(&format!("service {id}: cannot be heard: {error}"));
        }
        self.services.push(Service::new(spec, socket));
        self.happened(id, Event::Start);
    }

    /// Services that wait for the condition tell why they still do.
    fn learn(&mut self, condition: Condition, holds: Result<(), String>) {
        if !self.known.learn(condition, holds) {
            return;
        }
        for at in 0..self.services.len() {
            let waits = self.services.get(at).is_some_and(|service| {
                matches!(service.state, State::Waiting { .. })
                    && service.spec.needs.contains(&condition)
            });
            if waits {
                self.note_missing(at);
            }
        }
    }

    /// Feeds the event to the service's policy and carries out the answer.
    pub(super) fn happened(&mut self, id: &str, event: Event) {
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
            Act::AwaitDependencies => self.note_missing(at),
            Act::Spawn => {
                let service = self.services.get(at)?;
                return Some(
                    match process::spawn(&service.spec, &self.places, &service.socket, &self.logs) {
                        Ok(pid) => Event::Spawned(pid),
                        Err(error) => Event::SpawnFailed(error.to_string()),
                    },
                );
            }
            Act::Terminate(pid) => drop(sys::signal_group(pid, sys::Signal::TERM)),
            Act::Kill(pid) => drop(sys::signal_group(pid, sys::Signal::KILL)),
            Act::Note(state, message) => self.note(at, state, message),
            Act::Health(healthy) => self.services.get_mut(at)?.set_health(healthy),
        }
        None
    }

    fn note(&mut self, at: usize, state: ServiceState, message: String) {
        if let Some(service) = self.services.get_mut(at) {
            service.note(state, message);
            self.events.publish("", &service.event());
        }
    }

    fn note_missing(&mut self, at: usize) {
        let missing = self.missing(at);
        if !missing.is_empty() {
            let message = format!("Waiting for {}", missing.join(", "));
            self.note(at, ServiceState::Waiting, message);
        }
    }

    fn missing(&self, at: usize) -> Vec<String> {
        let is_up = |id: &str| {
            self.services
                .iter()
                .any(|other| other.spec.id == id && other.state.is_up())
        };
        let spec = self.services.get(at).map(|service| &service.spec);
        spec.map(|spec| self.known.missing(spec, is_up))
            .unwrap_or_default()
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
            if self.missing(at).is_empty() {
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
            } else if let Some(running) = self.tools.remove(&reaped.pid) {
                tool::ended(running, reaped.exit);
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
            old.len() != now.len()
                || old.iter().zip(&now).any(|(old, new)| {
                    old.events.last().map(|event| event.at)
                        != new.events.last().map(|event| event.at)
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
