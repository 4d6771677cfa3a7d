//! Runs the services of the table: a pure policy (`policy.rs`) in a thin shell (`shell.rs`).
//!
//! One task owns every child of this process: it alone starts children and it alone reaps, so no exit
//! status can be lost and no process id can be reused behind its back. Orphans are reaped on the way.
//! A container is containerd's child; a task of its own follows it (`container.rs`) and tells the shell. A service can
//! also be a task of machined itself (`task.rs`).
//! Everyone else has a [`Supervisor`]: orders go in, views come out, nobody waits for a service here.

pub mod container;
mod control;
pub mod handover;
pub mod limits;
pub mod logs;
mod needs;
mod notify;
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

/// Where the supervisor works.
#[derive(Debug, Clone)]
pub struct Places {
    /// The cgroup2 hierarchy.
    pub cgroups: PathBuf,
    /// A directory for the services' notify sockets.
    pub notify: PathBuf,
    /// An empty directory, over which a service in a sandbox gets its root.
    pub stage: PathBuf,
    /// A directory for containers' output and what they write to their roots.
    pub containers: PathBuf,
}

impl Places {
    fn notify_socket(&self, id: &str) -> PathBuf {
        self.notify.join(format!("{id}.sock"))
    }
}

/// What the supervisor works with.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Runs containers.
    pub runtime: Arc<dyn Runtime>,
    /// Reaps one ended child of this process, which nobody else does.
    pub reap: fn() -> std::io::Result<Option<Reaped>>,
}

enum Order {
    Start(Id),
    Stop(Id),
    Declare(Box<ServiceSpec>),
    Forget(Id),
    Control(control::Request),
    Condition(Condition, Result<(), String>),
    Run(tool::Job),
    Answer(oneshot::Sender<()>),
    StopAll(Scope, oneshot::Sender<()>),
}

/// Which services an orderly stop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All but those that outlive the others.
    Others,
    Everything,
}

/// A handle: cheap to clone, never blocks.
#[derive(Debug, Clone)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    views: watch::Receiver<Vec<ServiceView>>,
}

/// Says whether conditions of services hold; cheap to clone.
#[derive(Debug, Clone)]
pub struct Conditions(mpsc::UnboundedSender<Order>);

impl Conditions {
    /// From now on the condition holds, or does not, for the reason given. A service that waits for it starts,
    /// or tells the reason; one that runs goes on.
    pub fn set(&self, condition: Condition, holds: Result<(), String>) {
        let _ = self.0.send(Order::Condition(condition, holds));
    }

    /// Said to nobody: for looking at controllers that do not run, and for tests.
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
            Order::Declare(_) => "Declare",
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
    /// Declares the services and starts the task; none of them starts yet.
    ///
    /// # Errors
    /// When SIGCHLD cannot be caught or there can be no directory for the notify sockets.
    pub fn new(
        specs: Vec<ServiceSpec>,
        places: Places,
        outside: Outside,
        logs: logs::Sender,
        events: Events,
    ) -> std::io::Result<Supervisor> {
        // Anyone may pass to the socket that is his.
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

    /// Wants the service to run.
    pub fn start(&self, id: &str) {
        let _ = self.orders.send(Order::Start(id.into()));
    }

    /// Wants the service to run no longer.
    pub fn stop(&self, id: &str) {
        let _ = self.orders.send(Order::Stop(id.into()));
    }

    /// Wants a service to run as declared: a new one starts, one that was declared otherwise starts anew, and
    /// any other goes on as it is.
    pub fn declare(&self, spec: ServiceSpec) {
        let spec = fitted(spec, Mode::now());
        let _ = self.orders.send(Order::Declare(Box::new(spec)));
    }

    /// Stops the service, and knows it no longer when it has ended, unless it was declared anew.
    pub fn forget(&self, id: &str) {
        let _ = self.orders.send(Order::Forget(id.into()));
    }

    /// For those who know of conditions.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        Conditions(self.orders.clone())
    }

    /// Starts, stops or restarts a service for somebody who waits for it; see machined's `Node::control`.
    pub fn control(&self, id: &str, control: Control) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        let _ = self.orders.send(Order::Control(control::Request {
            id: id.to_owned(),
            control,
            done,
        }));
        ended
    }

    /// Runs a tool of the table (`services/tools.rs`) to its end, within its time. A directory that it filled is the
    /// node's then.
    ///
    /// # Errors
    /// It cannot be run, failed, or did not end; the text has the reason it gave.
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
        ended
            .await
            .unwrap_or_else(|_| Err(format!("{} was not run: everything ends", tool.program)))
    }

    /// Waits until the task that owns all children has seen to everything it was asked for before; for ever when it
    /// has broken off.
    pub async fn answers(&self) {
        let (done, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Answer(done));
        if answered.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the task that owns all children has broken off, which it does by a bug only. Nobody reaps, starts
    /// or stops anything then. Returns that it has.
    pub async fn lost(&self) -> String {
        let mut views = self.views.clone();
        while views.changed().await.is_ok() {}
        "the supervisor of services broke off".to_owned()
    }

    /// Stops what does not outlive the others, dependents first, and starts nothing ever after. Ends when all of
    /// it has ended.
    pub async fn stop_others(&self) {
        self.stop_in_order(Scope::Others).await;
    }

    /// Stops everything, dependents first, and starts nothing ever after. Ends when all have ended.
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

    /// The services, to be watched.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Vec<ServiceView>> {
        self.views.clone()
    }

    /// The services now.
    #[must_use]
    pub fn views(&self) -> Vec<ServiceView> {
        self.views.borrow().clone()
    }
}
