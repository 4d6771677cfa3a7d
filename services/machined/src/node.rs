//! The port between the API server and the node: a handler may read a view or
//! submit a named action, nothing else (docs/architecture.md, "Data flow").

use std::time::Duration;

use corten_base::events::Events;
use corten_config::Document;
use corten_meta::Tag;
use corten_resources::Store;
use corten_volumes::Target;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub use crate::meta::MetaError;
pub use corten_services::view::{Control, ServiceEvent, ServiceState, ServiceView};
pub use corten_volumes::DeviceWipe;

/// What a node does now, as the API's machine stage names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Boot phases are running.
    Booting,
    /// No machine config: only the maintenance API is served.
    Maintenance,
    /// The node has an owner, or may have one, and its machine config cannot be had: no caller is answered but
    /// the owner that META names.
    Locked,
    /// A machine config is active.
    Running,
    /// An orderly reboot is under way.
    Rebooting,
    /// An orderly shutdown is under way.
    ShuttingDown,
    /// An orderly end is under way, and what the node keeps on its disk is wiped.
    Resetting,
}

/// A named action a handler may submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stop everything in order, then reboot.
    Reboot,
    /// Reboot without waiting for services: all processes are ended at once.
    ForcedReboot,
    /// Stop everything in order, then power off.
    Shutdown {
        /// Without telling the cluster first.
        forced: bool,
    },
    /// Stop everything in order, wipe, then reboot or power off.
    Reset(Reset),
}

/// Who asked for an action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// The id that the action's events carry.
    pub id: String,
    /// In the words of apid's audit log; empty: somebody on the node itself.
    pub who: String,
}

/// What a reset wipes, and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// In this order.
    pub targets: Vec<Target>,
    /// After the node has left the cluster.
    pub graceful: bool,
    /// Otherwise the machine is switched off.
    pub reboot: bool,
}

/// How a config takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// Kept, and active at once.
    Now,
    /// Kept, and active after the next reboot.
    Staged,
    /// Active at once, not kept, and taken back after this time unless another
    /// config is applied to stay.
    Try(Duration),
}

/// An installer, and how it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// The image, by its name in a registry or in containerd.
    pub image: String,
    /// The namespace of containerd that has it, or gets it.
    pub namespace: &'static str,
    /// Also when etcd loses its quorum while this node is away.
    pub force: bool,
    /// The node goes on with the version that runs until somebody reboots it.
    pub staged: bool,
}

/// Why a submission was refused.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Another action or config is being carried out.
    #[error("{0} is already under way")]
    Busy(&'static str),
    /// The node cannot do this in its present stage.
    #[error("{0}")]
    Refused(String),
    /// The node could not do what it should be able to.
    #[error("{0}")]
    Failed(String),
}

/// What a new etcd begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Nothing.
    Empty,
    /// The snapshot that was uploaded before.
    Snapshot {
        /// It is a copy of a database file, and so has no checksum.
        skip_hash_check: bool,
    },
}

/// The node, as the API server sees it. Cheap calls, but for what waits for a disk.
pub trait Node: Send + Sync + 'static {
    /// What the node does now.
    fn stage(&self) -> Stage;
    /// Every declared service, by id.
    fn services(&self) -> Vec<ServiceView>;
    /// Everything the node knows of itself; handlers only read it.
    fn store(&self) -> &Store;
    /// What happened on it.
    fn events(&self) -> &Events;
    /// The active machine config, if there is one.
    fn config(&self) -> Option<Document>;
    /// Whether this node could serve by a config.
    fn check_config(&self, document: &Document) -> Result<(), SubmitError>;
    /// Hands over a validated config, whole. From maintenance the node goes on to `Running`.
    /// Where configs are kept, it is on the disk when this returns, which may take a while.
    fn apply_config(&self, document: Document, how: Apply) -> Result<(), SubmitError>;
    /// Sets a META value, or deletes it. It is on the disk when this returns, which may take a while.
    fn change_meta(&self, tag: Tag, value: Option<Vec<u8>>) -> Result<(), MetaError>;
    /// Whether an applied config survives a reboot.
    fn config_is_kept(&self) -> bool;
    /// Starts, stops or restarts a declared service. Who receives is told when a stopped service has ended,
    /// or another one is being started; and hears nothing when the node ends first.
    fn control(
        &self,
        service: &str,
        control: Control,
    ) -> Result<oneshot::Receiver<()>, SubmitError>;
    /// Wipes disks and partitions that nobody uses, one after the other, which may take hours.
    fn wipe_devices(&self, wipes: &[DeviceWipe]) -> Result<(), SubmitError>;
    /// Makes this node the first member of a new etcd, unless it has data of one.
    fn begin_cluster(&self, begin: Begin) -> Result<(), SubmitError>;
    /// Puts the version of an installer beside the one that runs, to be tried at the next start. Answers its version.
    /// Lines for a person go to `tell`. It may take an hour.
    fn upgrade(
        &self,
        upgrade: Upgrade,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>>;
    /// Has the version before be tried at the next start. Answers its version.
    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>>;
    /// Adds a line to the log `audit`.
    fn audit(&self, line: &str);
    /// Starts an action and returns at once.
    fn submit(&self, action: Action, actor: Actor) -> Result<(), SubmitError>;
}
