//! Runs the services of the table: a pure policy (`policy.rs`) in a thin shell (`shell.rs`).
//!
//! Owns every child of this process in a single task, which alone starts and reaps children and orphans, so it loses no
//! exit status. A [`Supervisor`] sends orders and receives views; no caller waits for a service here.

pub mod container;
mod control;
pub mod handover;
pub mod limits;
pub mod logs;
mod needs;
mod notify;
mod on_demand;
mod policy;
mod process;
mod service;
mod shell;
pub mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tool;

#[cfg(test)]
mod real_tests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use corten_base::events::Events;
use corten_base::mode::Mode;
use corten_sys::process::Reaped;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::view::{Control, ServiceView};
use crate::{Argument, Condition, Id, ServiceSpec, Tool, fitted, tool as tool_named};
use container::Runtime;
use service::Service;
use shell::Shell;

/// Paths of the supervisor.
#[derive(Debug, Clone)]
pub struct Places {
    /// Root of the cgroup2 hierarchy.
    pub cgroups: PathBuf,
    /// Directory for the services' notify sockets.
    pub notify: PathBuf,
    /// Empty directory over which sandboxes mount their roots.
    pub stage: PathBuf,
    /// Directory for output FIFOs and upper directories of containers.
    pub containers: PathBuf,
}

impl Places {
    fn notify_socket(&self, id: &str) -> PathBuf {
        self.notify.join(format!("{id}.sock"))
    }
}

/// External interfaces of the supervisor.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Runs containers.
    pub runtime: Arc<dyn Runtime>,
    /// Reaps one ended child of this process. No other code reaps.
    pub reap: fn() -> std::io::Result<Option<Reaped>>,
}

enum Order {
    Start(Id),
    Stop(Id),
    Declare(Box<ServiceSpec>, TakesEffect),
    Forget(Id),
    Control(control::Request),
    Condition(Condition, Result<(), String>),
    Run(tool::Job),
    Answer(oneshot::Sender<()>),
    StopAll(Scope, oneshot::Sender<()>),
}

/// The moment from which a changed declaration counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakesEffect {
    AtOnce,
    /// The next start of the service.
    AtStart,
}

/// Set of services to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All but the services that outlive the others.
    Others,
    Everything,
}

/// Handle of the supervisor: cheap to clone, never blocks.
#[derive(Debug, Clone)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    views: watch::Receiver<Vec<ServiceView>>,
}

/// Handle that reports conditions of services; cheap to clone.
#[derive(Debug, Clone)]
pub struct Conditions(mpsc::UnboundedSender<Order>);

impl Conditions {
    /// Reports that the condition holds, or does not for the given reason. A service that waits for it starts or shows
    /// the reason; a running service is unaffected.
    pub fn set(&self, condition: Condition, holds: Result<(), String>) {
        let _ = self.0.send(Order::Condition(condition, holds));
    }

    /// A handle without a receiver: for inspecting controllers that do not run, and for tests.
    #[must_use]
    pub fn unheard() -> Conditions {
        Conditions(mpsc::unbounded_channel().0)
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Order::Start(_) => "Start",
            Order::Stop(_) => "Stop",
            Order::Declare(..) => "Declare",
            Order::Forget(_) => "Forget",
            Order::Control(_) => "Control",
            Order::Condition(..) => "Condition",
            Order::Run(_) => "Run",
            Order::Answer(_) => "Answer",
            Order::StopAll(..) => "StopAll",
        })
    }
}

impl Supervisor {
    /// Declares the services and starts the supervisor's task; starts no service yet.
    ///
    /// # Errors
    /// SIGCHLD cannot be caught, or the directory of the notify sockets cannot be created.
    pub fn new(
        specs: Vec<ServiceSpec>,
        places: Places,
        outside: Outside,
        logs: logs::Sender,
        events: Events,
    ) -> std::io::Result<Supervisor> {
        // Each user must be able to traverse to the socket of its service.
        fs::create_dir_all(&places.notify)?;
        fs::set_permissions(&places.notify, fs::Permissions::from_mode(0o711))?;
        let (orders, order_receiver) = mpsc::unbounded_channel();
        let (speakers, told) = mpsc::unbounded_channel();
        let specs = specs.into_iter().map(|spec| fitted(spec, Mode::now()));
        let services: Vec<Service> = specs.map(Service::new).collect();
        let (publisher, views) = watch::channel(services.iter().map(|s| s.view.clone()).collect());
        let shell = Shell {
            services,
            places,
            outside,
            logs,
            events,
            orders: order_receiver,
            told,
            speakers,
            known: needs::Known::default(),
            children: signal(SignalKind::child())?,
            publisher,
            tools: tool::Tools::default(),
            stopping: None,
            controls: Vec::new(),
        };
        tokio::spawn(shell.run());
        Ok(Supervisor { orders, views })
    }

    /// Requests that the service runs.
    pub fn start(&self, id: &str) {
        let _ = self.orders.send(Order::Start(id.into()));
    }

    /// Requests that the service stops.
    pub fn stop(&self, id: &str) {
        let _ = self.orders.send(Order::Stop(id.into()));
    }

    /// Requests that a service runs as declared. A new service starts, a changed one restarts, and an unchanged one is
    /// left alone.
    pub fn declare(&self, spec: ServiceSpec) {
        let spec = fitted(spec, Mode::now());
        let _ = self
            .orders
            .send(Order::Declare(Box::new(spec), TakesEffect::AtOnce));
    }

    /// Changes how a service runs from its next start on. A new service starts.
    pub fn declare_next(&self, spec: ServiceSpec) {
        let spec = fitted(spec, Mode::now());
        let _ = self
            .orders
            .send(Order::Declare(Box::new(spec), TakesEffect::AtStart));
    }

    /// Stops the service and removes it once it has ended, unless it is declared again meanwhile.
    pub fn forget(&self, id: &str) {
        let _ = self.orders.send(Order::Forget(id.into()));
    }

    /// A handle for reporting conditions.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        Conditions(self.orders.clone())
    }

    /// Starts, stops or restarts a service for a caller that waits for completion; see machined's `Node::control`.
    pub fn control(&self, id: &str, control: Control) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Control(control::Request {
            id: id.to_owned(),
            control,
            done,
        }));
        ended
    }

    /// Runs a tool of the table (`services/tools.rs`) to its end, within its time limit. A directory that it filled
    /// belongs to the node afterwards.
    ///
    /// # Errors
    /// The tool cannot be run, fails, or exceeds its time limit; the text contains its own message.
    pub async fn run(&self, program: &str, arguments: Vec<Argument>) -> Result<(), String> {
        let tool = tool_named(program).ok_or_else(|| format!("{program} is not declared"))?;
        let filled = arguments.iter().filter_map(|argument| match argument {
            Argument::Fills(directory) => Some(directory.clone()),
            Argument::Word(_) | Argument::Reads(_) | Argument::Device(_) => None,
        });
        let filled: Vec<PathBuf> = filled.collect();
        handover::each(&filled, move |directory| {
            handover::give(directory, tool.uid)
        })
        .await?;
        self.run_job(tool, arguments).await?;
        handover::each(&filled, move |directory| {
            handover::take(directory, tool.uid)
        })
        .await
    }

    async fn run_job(&self, tool: Tool, arguments: Vec<Argument>) -> Result<(), String> {
        let (done, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Run(tool::Job {
            tool,
            arguments,
            done,
        }));
        ended.await.unwrap_or_else(|_| {
            Err(format!(
                "{} was not run: the supervisor is stopping",
                tool.program
            ))
        })
    }

    /// Waits until the supervisor's task has processed all earlier orders. Never returns if the task has ended.
    pub async fn answers(&self) {
        let (done, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Answer(done));
        if answered.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the supervisor's task has ended, which only a bug can cause. Then nothing reaps, starts or stops
    /// services any more. Returns a message.
    pub async fn lost(&self) -> String {
        let mut views = self.views.clone();
        while views.changed().await.is_ok() {}
        "the service supervisor ended unexpectedly".to_owned()
    }

    /// Stops all services but those that outlive the others, dependents first, and prevents any later start. Returns
    /// once they have ended.
    pub async fn stop_others(&self) {
        self.stop_in_order(Scope::Others).await;
    }

    /// Stops all services, dependents first, and prevents any later start. Returns once they have ended.
    pub async fn stop_all(&self) {
        self.stop_in_order(Scope::Everything).await;
    }

    async fn stop_in_order(&self, scope: Scope) {
        let (done, ended) = oneshot::channel();
        let _ = self.orders.send(Order::StopAll(scope, done));
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

    /// A receiver of changes to the services' views.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Vec<ServiceView>> {
        self.views.clone()
    }

    /// The current views of the services.
    #[must_use]
    pub fn views(&self) -> Vec<ServiceView> {
        self.views.borrow().clone()
    }
}
