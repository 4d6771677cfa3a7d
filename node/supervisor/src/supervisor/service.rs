//! One service: its declaration, state and history.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use corten_api::machine as api;
use corten_base::console;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::container::Handle;
use super::on_demand::Socket;
use super::policy::{Event, Runs, State};
use super::{Places, notify};
use crate::view::{ServiceEvent, ServiceState, ServiceView};
use crate::{Id, ServiceSpec};

/// Maximum length of the history (the reference's number).
const HISTORY: usize = 64;
/// One service and its state.
pub(super) struct Service {
    pub(super) spec: ServiceSpec,
    /// Handle of its container, while there is one.
    pub(super) container: Option<Handle>,
    /// Handle to abort its task, while there is one.
    pub(super) task: Option<AbortHandle>,
    /// Listener on its notify socket, from its first start on.
    pub(super) listening: Option<JoinSet<()>>,
    /// Listening socket of a service that starts on demand, until it is stopped.
    pub(super) socket: Option<Socket>,
    pub(super) state: State,
    /// Whether it is removed once it has ended.
    pub(super) leaves: bool,
    pub(super) view: ServiceView,
    history: VecDeque<ServiceEvent>,
}

impl Service {
    /// Whether it was started, and is not to be removed.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.leaves && self.state != State::Initialized
    }

    pub(super) fn new(spec: ServiceSpec) -> Service {
        let view = ServiceView {
            id: spec.id.to_string(),
            state: ServiceState::Initialized,
            pid: None,
            healthy: None,
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        };
        Service {
            spec,
            container: None,
            task: None,
            listening: None,
            socket: None,
            state: State::Initialized,
            leaves: false,
            view,
            history: VecDeque::new(),
        }
    }

    /// Opens the socket for the readiness of its process, unless it is open. Returns a copy of the listening socket, if
    /// it starts on demand.
    ///
    /// # Errors
    /// The text names the socket.
    pub(super) fn open_sockets(
        &mut self,
        uid: u32,
        places: &Places,
        told: &mpsc::UnboundedSender<(Id, Event)>,
    ) -> io::Result<Option<OwnedFd>> {
        if self.listening.is_none() {
            let socket = places.notify_socket(&self.spec.id);
            let opened = notify::listen(self.spec.id.clone(), &socket, uid, told.clone());
            self.listening = Some(opened.map_err(|error| {
                let text = format!("cannot open its notification socket: {error}");
                io::Error::new(error.kind(), text)
            })?);
        }
        self.socket.as_ref().map(Socket::share).transpose()
    }

    /// The view for the API.
    pub(super) fn shown(&self) -> ServiceView {
        let pid = match self.state.runs() {
            Some(Runs::Process(pid)) => Some(pid),
            Some(Runs::Container) => self.container.as_ref().and_then(Handle::pid),
            Some(Runs::Task) => Some(std::process::id()),
            None => None,
        };
        ServiceView {
            pid,
            ..self.view.clone()
        }
    }

    pub(super) fn note(&mut self, state: ServiceState, message: String) {
        // A service that cannot start repeats its messages; the history keeps them, the console skips them.
        let said_before = self
            .history
            .iter()
            .rev()
            .take(2)
            .any(|event| event.message == message);
        if !said_before {
            console::service(&self.spec.id, &message);
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

    /// The last entry of its history as an event of the API.
    pub(super) fn event(&self) -> api::ServiceStateEvent {
        let last = self.history.back();
        api::ServiceStateEvent {
            service: self.spec.id.to_string(),
            action: self.view.state as i32,
            message: last.map(|event| event.message.clone()).unwrap_or_default(),
            health: Some((&self.view).into()),
        }
    }

    /// Records that it is healthy, or not for the given reason.
    pub(super) fn set_health(&mut self, health: Result<(), String>) {
        self.view.healthy = Some(health.is_ok());
        self.view.health_message = health.err().unwrap_or_default();
        self.view.health_changed = SystemTime::now();
    }
}
