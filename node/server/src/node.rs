//! The interface between the API server and the node: a handler may read a view or submit a named action
//! (docs/architecture.md, "Data flow").

use std::time::Duration;

use corten_base::events::Events;
use corten_config::Document;
use corten_meta::Tag;
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError};
use corten_volumes::{EPHEMERAL, Target};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

pub use corten_kubernetes::etcd::Begin;
pub use corten_persistence::meta::MetaError;
pub use corten_supervisor::view::{Control, ServiceEvent, ServiceState, ServiceView};
pub use corten_types::stage::Stage;
pub use corten_volumes::DeviceWipe;

/// A named action that a handler may submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stop everything in order, then reboot.
    Reboot,
    /// The same for a version that was written: drain the node in the cluster first.
    Upgrade,
    /// Reboot at once: kill all processes without stopping services in order, whatever etcd loses.
    ForcedReboot,
    /// Stop everything in order, then power off.
    Shutdown {
        /// Skip draining the node in the cluster and checking etcd's quorum. Pods still get their time.
        forced: bool,
    },
    /// Stop everything in order, wipe, then reboot or power off.
    Reset(Reset),
}

/// Initiator of an action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// The id that the action's events carry.
    pub id: String,
    /// Description from apid's audit log; empty for a caller on the node itself.
    pub who: String,
}

/// Parameters of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// Devices to wipe, in this order.
    pub targets: Vec<Target>,
    /// Leave the cluster first.
    pub graceful: bool,
    /// Reboot afterwards; otherwise power off.
    pub reboot: bool,
}

impl Reset {
    /// Whether it wipes EPHEMERAL, and so the data of etcd.
    #[must_use]
    pub fn wipes_ephemeral(&self) -> bool {
        let wipes = |target: &Target| {
            *target == Target::SystemDisk || target.partition() == Some(EPHEMERAL.name)
        };
        self.targets.iter().any(wipes)
    }
}

/// Mode of applying a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// Stored, and active at once.
    Now,
    /// Stored, and active after the next reboot.
    Staged,
    /// Stored on the disk that the node is installed to, and active when the node starts from that disk.
    Install,
    /// Active at once, not stored, and reverted after this time unless another config is applied permanently.
    Try(Duration),
}

/// Parameters of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// Name of the installer image in a registry or in containerd.
    pub image: String,
    /// containerd's namespace for the image.
    pub namespace: &'static str,
    /// Proceed even if etcd loses its quorum while this node is away.
    pub force: bool,
    /// Install only: the running version stays until an operator reboots the node.
    pub staged: bool,
}

/// Parameters of an installation to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// Device of the disk, or a link to it.
    pub disk: String,
    /// Name of the installer image; `None` for the start medium.
    pub image: Option<String>,
}

/// Reason why a submission was refused.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Another action or config is in progress.
    #[error("{0} is already under way")]
    Busy(&'static str),
    /// The node cannot do this in its current stage.
    #[error("{0}")]
    Refused(String),
    /// The node failed to do it.
    #[error("{0}")]
    Failed(String),
}

/// The status of a refused submission.
pub(crate) fn refused(error: &SubmitError) -> Status {
    match error {
        SubmitError::Busy(_) | SubmitError::Refused(_) => {
            Status::failed_precondition(error.to_string())
        }
        SubmitError::Failed(_) => Status::internal(error.to_string()),
    }
}

/// The node as the API server sees it. Calls are cheap unless they wait for a disk.
pub trait Node: Send + Sync + 'static {
    /// Current stage.
    fn stage(&self) -> Stage;
    /// Every declared service, sorted by id.
    fn services(&self) -> Vec<ServiceView>;
    /// The resources; handlers only read them.
    fn store(&self) -> &Store;
    /// The inputs and outputs of the controllers.
    fn graph(&self) -> Result<Graph, GraphError>;
    /// The node's events.
    fn events(&self) -> &Events;
    /// The active machine config.
    fn config(&self) -> Option<Document>;
    /// Checks that this node can serve with a config.
    fn check_config(&self, document: &Document) -> Result<(), SubmitError>;
    /// Applies a validated config. In maintenance the node enters `Running`. A stored config is on the disk when this
    /// returns, which may take a while.
    fn apply_config(&self, document: Document, how: Apply) -> Result<(), SubmitError>;
    /// Sets or deletes a META value. It is on the disk when this returns, which may take a while.
    fn change_meta(&self, tag: Tag, value: Option<Vec<u8>>) -> Result<(), MetaError>;
    /// Whether an applied config survives a reboot.
    fn config_is_kept(&self) -> bool;
    /// Starts, stops or restarts a declared service. The receiver is notified when a stopped service has ended, or when
    /// a service is being started. Its sender is dropped if the node ends first.
    fn control(
        &self,
        service: &str,
        control: Control,
    ) -> Result<oneshot::Receiver<()>, SubmitError>;
    /// Wipes unused disks and partitions one after the other, which may take hours.
    fn wipe_devices(&self, wipes: &[DeviceWipe]) -> Result<(), SubmitError>;
    /// Makes this node the first member of a new etcd cluster, unless it has etcd data.
    fn begin_cluster(&self, begin: Begin) -> Result<(), SubmitError>;
    /// Stops etcd, whose member the cluster no longer has, and deletes its data. The node runs no etcd until a bootstrap
    /// or its next boot.
    fn end_member(&self) -> BoxFuture<'_, Result<(), SubmitError>>;
    /// Installs the version of an installer next to the running one, to be tried at the next boot. Returns the version.
    /// Sends progress for people to `tell`. It may take an hour.
    fn upgrade(
        &self,
        upgrade: Upgrade,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>>;
    /// Target disk of the installation that this config requests; `None` if the node is already installed, or the
    /// config requests none.
    fn install_target(&self, document: &Document) -> Result<Option<String>, SubmitError>;
    /// Installs the node to a disk. Returns the version. Sends progress lines to `tell`. It may take an hour.
    fn install(
        &self,
        install: Install,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>>;
    /// Schedules the previous version for the next boot. Returns the version.
    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>>;
    /// Checks that the node may reboot or shut down: etcd keeps its quorum meanwhile. Until the node is back, the other
    /// control plane nodes are refused.
    fn leave(&self) -> BoxFuture<'_, Result<(), SubmitError>>;
    /// Tells the other control plane nodes that this node stays up after all.
    fn stay(&self) -> BoxFuture<'_, ()>;
    /// Checks that the node can be wiped. For a graceful reset, checks also that etcd goes on without this node's member.
    fn check_reset<'a>(&'a self, reset: &'a Reset) -> BoxFuture<'a, Result<(), SubmitError>>;
    /// Adds a line to the log `audit`.
    fn audit(&self, line: &str);
    /// Starts an action and returns at once.
    fn submit(&self, action: Action, actor: Actor) -> Result<(), SubmitError>;
}
