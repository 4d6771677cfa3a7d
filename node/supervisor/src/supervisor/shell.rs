//! The shell around the policy: the single task that owns every child of process 1.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use corten_base::console;
use corten_base::events::Events;
use corten_base::panics::caught;
use corten_sys::process as sys;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};

use super::container;
use super::needs::Known;
use super::policy::{self, Act, Event, Runs, State};
use super::service::Service;
use super::{
    Order, Outside, Places, Scope, TakesEffect, control, logs, on_demand, process, task, tool,
};
use crate::view::{ServiceState, ServiceView};
use crate::{Condition, Id, Runner, ServiceSpec, outlives_others, stop_waves};

/// Maximum number of children reaped per turn, so that a storm of orphans delays other work only briefly.
const REAPED_PER_TURN: usize = 256;

/// An orderly stop in progress.
pub(super) struct Stopping {
    waves: VecDeque<Vec<Id>>,
    wave: Vec<Id>,
    done: Option<oneshot::Sender<()>>,
}

pub(super) struct Shell {
    pub(super) services: Vec<Service>,
    pub(super) places: Places,
    pub(super) logs: logs::Sender,
    pub(super) events: Events,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// Events from services and their followers.
    pub(super) told: mpsc::UnboundedReceiver<(Id, Event)>,
    /// The sending end of `told`, for later services.
    pub(super) speakers: mpsc::UnboundedSender<(Id, Event)>,
    pub(super) outside: Outside,
    pub(super) known: Known,
    pub(super) children: Signal,
    pub(super) publisher: watch::Sender<Vec<ServiceView>>,
    pub(super) tools: tool::Tools,
    pub(super) stopping: Option<Stopping>,
    /// Requests whose callers wait for a start or stop.
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
                .chain(self.tools.deadline())
                .min();
            tokio::select! {
                Some(order) = self.orders.recv() => self.obey(order),
                Some((id, event)) = self.told.recv() => self.happened(&id, event),
                _ = self.children.recv() => more_children = self.reap(),
                () = tokio::task::yield_now(), if more_children => more_children = self.reap(),
                () = until(deadline) => self.tick(),
            }
            self.start_what_can();
            self.go_on_stopping();
            self.services
                .retain(|service| !(service.leaves && service.state.is_at_rest()));
            self.publish();
            control::answer(&mut self.controls, &self.services);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(_)
            | Order::Stop(_)
            | Order::Declare(..)
            | Order::Forget(_)
            | Order::Control(_)
            | Order::Run(_)
                if self.stopping.is_some() => {}
            Order::Control(request) => {
                self.happened(&request.id, request.event());
                self.controls.push(request);
            }
            Order::Declare(spec, takes_effect) => self.declare(*spec, takes_effect),
            Order::Forget(id) => self.forget(&id),
            Order::Condition(condition, holds) => self.learn(condition, holds),
            Order::Run(job) => self.tools.start(job, &self.places),
            Order::Answer(asker) => {
                let _gone = asker.send(());
            }
            Order::Start(id) => self.happened(&id, Event::Start),
            Order::Stop(id) => self.happened(&id, Event::Stop),
            Order::StopAll(scope, done) => {
                let specs: Vec<_> = self
                    .services
                    .iter()
                    .map(|service| service.spec.clone())
                    .collect();
                let mut waves = stop_waves(&specs);
                if scope == Scope::Others {
                    for wave in &mut waves {
                        wave.retain(|id| !outlives_others(id));
                    }
                }
                self.stopping = Some(Stopping {
                    waves: waves.into(),
                    wave: Vec::new(),
                    done: Some(done),
                });
            }
        }
    }

    /// Starts a new service, restarts one with a changed declaration unless that waits, and leaves others alone.
    fn declare(&mut self, spec: ServiceSpec, takes_effect: TakesEffect) {
        let id = spec.id.clone();
        let event = match self
            .services
            .iter_mut()
            .find(|service| service.spec.id == id)
        {
            None => {
                self.services.push(Service::new(spec));
                Event::Start
            }
            Some(service) if takes_effect == TakesEffect::AtStart && service.is_asked_for() => {
                service.spec = spec;
                return;
            }
            Some(service) if service.spec != spec || service.leaves => {
                service.spec = spec;
                // The address may be another one.
                service.socket = None;
                service.leaves = false;
                Event::Restart
            }
            Some(service) if service.state == State::Initialized => Event::Start,
            Some(_) => return,
        };
        self.happened(&id, event);
    }

    fn forget(&mut self, id: &str) {
        let known = self.services.iter_mut();
        for service in known.filter(|service| *service.spec.id == *id) {
            service.leaves = true;
        }
        self.happened(id, Event::Stop);
    }

    /// Records a condition; services that still wait for it show the new reason.
    fn learn(&mut self, condition: Condition, holds: Result<(), String>) {
        if !self.known.learn(condition.clone(), holds) {
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
            .position(|service| *service.spec.id == *id)
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
            if state.is_at_rest() {
                service.socket = None;
            }
            for act in acts {
                events.extend(self.carry_out(at, act));
            }
        }
    }

    fn carry_out(&mut self, at: usize, act: Act) -> Option<Event> {
        match act {
            Act::AwaitDependencies => self.note_missing(at),
            Act::Listen(address) => return Some(self.listen(at, address)),
            Act::Spawn => return Some(self.spawn(at)),
            Act::Terminate(runs) => self.signal(at, runs, sys::Signal::TERM),
            Act::Kill(runs) => self.signal(at, runs, sys::Signal::KILL),
            Act::Note(state, message) => self.note(at, state, message),
            Act::Check => self.check(at),
            Act::Health(health) => self.services.get_mut(at)?.set_health(health),
        }
        None
    }

    fn listen(&mut self, at: usize, address: SocketAddr) -> Event {
        let Some(service) = self.services.get_mut(at) else {
            return Event::Failed("there is no such service".to_owned());
        };
        let (id, told) = (service.spec.id.clone(), self.speakers.clone());
        let listens = on_demand::listen(&mut service.socket, address, id, told);
        match listens {
            Ok(()) => Event::Listening,
            Err(error) => Event::Failed(format!("cannot listen on {address}: {error}")),
        }
    }

    fn spawn(&mut self, at: usize) -> Event {
        let Some(service) = self.services.get_mut(at) else {
            return Event::Failed("there is no such service".to_owned());
        };
        match &service.spec.runner {
            Runner::Process(process) => {
                let process = process.clone();
                let started = service
                    .open_sockets(process.uid, &self.places, &self.speakers)
                    .and_then(|socket| {
                        process::spawn(&service.spec, &process, socket, &self.places, &self.logs)
                    });
                match started {
                    Ok(pid) => Event::Spawned(Runs::Process(pid)),
                    Err(error) => Event::Failed(error.to_string()),
                }
            }
            Runner::Container(container) => {
                service.container = Some(container::start(
                    &service.spec,
                    container,
                    &self.places,
                    &self.logs,
                    self.outside.runtime.clone(),
                    self.speakers.clone(),
                ));
                Event::Spawned(Runs::Container)
            }
            Runner::Task(task) => {
                let id = &service.spec.id;
                service.task = Some(task::start(id, task, self.speakers.clone()));
                Event::Spawned(Runs::Task)
            }
            Runner::Unusable(why) => Event::Failed(why.clone()),
        }
    }

    /// Runs a health check in a task of its own.
    fn check(&self, at: usize) {
        let Some(spec) = self.services.get(at).map(|service| &service.spec) else {
            return;
        };
        let Some(check) = spec.limits.health.clone() else {
            return;
        };
        let (id, speakers) = (spec.id.clone(), self.speakers.clone());
        tokio::spawn(async move {
            // A check that panics must still produce an answer: without one no further check follows.
            let answer = caught(check.run()).await;
            let answer = answer.unwrap_or_else(|panicked| Err(format!("the check: {panicked}")));
            // The shell ends only with machined.
            let _ = speakers.send((id, Event::Checked(answer)));
        });
    }

    fn signal(&self, at: usize, runs: Runs, signal: sys::Signal) {
        match runs {
            // The process may have ended meanwhile.
            Runs::Process(pid) => drop(sys::signal_group(pid, signal)),
            Runs::Container => {
                let service = self.services.get(at);
                if let Some(container) = service.and_then(|service| service.container.as_ref()) {
                    container.signal(signal);
                }
            }
            Runs::Task => {
                let service = self.services.get(at);
                if let Some(task) = service.and_then(|service| service.task.as_ref()) {
                    task.abort();
                }
            }
        }
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
                .any(|other| *other.spec.id == *id && other.state.is_up())
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
            let Some(id) = waits.map(|service| service.spec.id.clone()) else {
                continue;
            };
            if self.missing(at).is_empty() {
                self.happened(&id, Event::DependenciesUp);
            }
        }
    }

    /// Reaps ended children; returns `true` if more may be waiting.
    fn reap(&mut self) -> bool {
        for _ in 0..REAPED_PER_TURN {
            let reaped = match (self.outside.reap)() {
                Ok(Some(reaped)) => reaped,
                Ok(None) => return false,
                Err(error) => {
                    console::warn(&format!("cannot collect ended processes: {error}"));
                    return false;
                }
            };
            let owner = self
                .services
                .iter()
                .find(|service| service.state.runs() == Some(Runs::Process(reaped.pid)));
            if let Some(id) = owner.map(|service| service.spec.id.clone()) {
                self.happened(&id, Event::Exited(reaped.exit));
            } else {
                self.tools.ended(reaped.pid, reaped.exit);
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
            .map(|service| service.spec.id.clone())
            .collect();
        for id in ids {
            self.happened(&id, Event::Tick);
        }
        self.tools.kill_late(now);
    }

    fn go_on_stopping(&mut self) {
        loop {
            let Some(stopping) = &mut self.stopping else {
                return;
            };
            // A removed service that has ended is unknown.
            let is_busy = |id: &Id| {
                self.services
                    .iter()
                    .any(|service| service.spec.id == *id && !service.state.is_at_rest())
            };
            if stopping.wave.iter().any(is_busy) {
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
                self.happened(&id, Event::Stop);
            }
        }
    }

    fn publish(&self) {
        let now: Vec<_> = self.services.iter().map(Service::shown).collect();
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

/// Sleeps until the deadline, or forever without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
