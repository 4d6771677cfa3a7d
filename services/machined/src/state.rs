//! Shared state of the node. `state/node.rs` serves the API from it; `machine/` changes the rest.

mod accepted;
mod node;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use corten_base::console;
use corten_base::events::Events;
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_config::kinds::SystemVolume;
use corten_controllers::EtcdOrder;
use corten_meta::tags::STATE_ENCRYPTION;
use corten_persistence::config_store::ConfigStore;
use corten_persistence::last_stop::LastStop;
use corten_persistence::meta::{Meta, MetaError};
use corten_resources::Store;
use corten_server::node::{Action, Actor, Apply, Stage};
use corten_supervisor::supervisor::{Supervisor, logs};
use corten_types::secrets::{joined, trusted_cas};
use corten_types::unattended_install::UnattendedInstallStatus;
use corten_volumes::Opened;
use corten_volumes::user::OpenedVolumes;
use tokio::sync::{mpsc, watch};

use accepted::Accepted;

/// A request of a handler.
#[derive(Debug)]
pub enum Request {
    /// A validated config; stored already if it is permanent.
    Apply(Box<Document>, Apply),
    /// The end of this boot, and its initiator.
    Act(Action, Actor),
}

/// State shared with the API server, which changes it through [`corten_server::node::Node`] alone. `machine/` changes the
/// rest.
#[derive(Debug)]
pub struct NodeState {
    stage: watch::Sender<Stage>,
    /// Reason of the lock while the node is locked.
    lock: watch::Sender<Option<String>>,
    config: watch::Sender<Option<Document>>,
    accepted: Accepted,
    /// The active config, or before there is one, that of an installation.
    network_config: watch::Sender<Option<Document>>,
    requests: mpsc::UnboundedSender<Request>,
    /// Set once: no further request is accepted.
    ending: AtomicBool,
    supervisor: Supervisor,
    store: Store,
    events: Events,
    meta: Arc<Meta>,
    last_stop: watch::Sender<Option<LastStop>>,
    /// Store of configs; set when its volume is mounted.
    kept: OnceLock<ConfigStore>,
    opened: Mutex<Opened>,
    user_volumes: OpenedVolumes,
    /// Held while devices are wiped.
    wiping: Mutex<()>,
    /// Set once an installation has begun; reset if it fails.
    installing: AtomicBool,
    /// The unattended installation of this boot, if there is one.
    installation: watch::Sender<Option<UnattendedInstallStatus>>,
    /// The last order about the member of etcd.
    cluster: watch::Sender<Option<EtcdOrder>>,
    /// Sender of the log `audit`; unset in tests.
    log: OnceLock<logs::Sender>,
}

impl NodeState {
    /// A booting node, and the receiver of its requests.
    #[must_use]
    pub fn new(
        supervisor: Supervisor,
        events: Events,
    ) -> (Arc<NodeState>, mpsc::UnboundedReceiver<Request>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        let state = NodeState {
            stage: watch::Sender::new(Stage::Booting),
            lock: watch::Sender::new(None),
            config: watch::Sender::new(None),
            accepted: Accepted::default(),
            network_config: watch::Sender::new(None),
            requests,
            ending: AtomicBool::new(false),
            supervisor,
            store: Store::new(),
            events,
            meta: Arc::default(),
            last_stop: watch::Sender::new(None),
            kept: OnceLock::new(),
            opened: Mutex::default(),
            user_volumes: OpenedVolumes::default(),
            wiping: Mutex::default(),
            installing: AtomicBool::new(false),
            installation: watch::Sender::new(None),
            cluster: watch::Sender::default(),
            log: OnceLock::new(),
        };
        (Arc::new(state), receiver)
    }

    /// Sets the sender of the log `audit`.
    pub fn log_to(&self, log: logs::Sender) {
        let _ = self.log.set(log);
    }

    /// Enters a stage.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// A receiver of the stage.
    pub fn stages(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Sets or clears the reason of the lock.
    pub fn set_lock(&self, why: Option<String>) {
        self.lock.send_replace(why);
    }

    /// A receiver of the lock's reason; `None` while unlocked.
    pub fn locks(&self) -> watch::Receiver<Option<String>> {
        self.lock.subscribe()
    }

    /// A receiver of the active machine config.
    pub fn configs(&self) -> watch::Receiver<Option<Document>> {
        self.config.subscribe()
    }

    /// A receiver of the newest accepted machine config, which clients see.
    pub fn accepted_configs(&self) -> watch::Receiver<Option<Document>> {
        self.accepted.subscribe()
    }

    /// Makes a config the active one.
    pub fn set_config(&self, document: Document) {
        self.accepted.activate(document.clone());
        self.network_config.send_replace(Some(document.clone()));
        self.config.send_replace(Some(document));
    }

    /// A receiver of the config by which the node reaches other machines: its network, clock, proxies and registries.
    /// It is the active config, or that of an installation that the node prepares.
    pub fn network_configs(&self) -> watch::Receiver<Option<Document>> {
        self.network_config.subscribe()
    }

    /// Has a node without a config reach other machines by that of an installation; `None` when the installation has
    /// failed.
    pub fn prepare_network(&self, document: Option<Document>) {
        if self.config.borrow().is_none() {
            self.network_config.send_replace(document);
        }
    }

    /// A receiver of orders about the member of etcd; `None` without one.
    pub fn clusters(&self) -> watch::Receiver<Option<EtcdOrder>> {
        self.cluster.subscribe()
    }

    /// Publishes how the previous boot ended.
    pub fn set_last_stop(&self, last: LastStop) {
        self.last_stop.send_replace(Some(last));
    }

    /// A receiver of the previous boot's end.
    pub fn last_stops(&self) -> watch::Receiver<Option<LastStop>> {
        self.last_stop.subscribe()
    }

    /// The node's META.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// Sets the store of configs.
    pub fn keep_configs(&self, store: ConfigStore) {
        let _ = self.kept.set(store);
    }

    /// The store of configs.
    pub fn config_store(&self) -> Option<&ConfigStore> {
        self.kept.get()
    }

    /// Stores the encryption settings of STATE in META, because the next boot opens STATE before it can read this
    /// stored config. A config without such settings changes nothing. Testing a passphrase may take long.
    pub fn keep_state_encryption(&self, document: &Document) {
        let Some(wanted) = document.encryption(SystemVolume::State) else {
            return;
        };
        // A config stored earlier may have none of the current keys.
        let unchanged = |why: String| {
            console::warn(&format!(
                "the encryption settings of the volumes stay as they are: {why}"
            ));
        };
        let opened = self.opened().clone();
        if let Err(why) = corten_volumes::check_keys(&opened, document) {
            return unchanged(why);
        }
        let value = wanted.to_meta().into_bytes();
        if self.meta.watch().borrow().get(&STATE_ENCRYPTION) == Some(&value) {
            return;
        }
        // A boot in which STATE could not be opened must not replace the key that opens it.
        if let Err(why) = corten_volumes::check_state_keys(&opened, Some(wanted)) {
            return unchanged(why);
        }
        match self.meta.change(STATE_ENCRYPTION, Some(value)) {
            // Without META there is no STATE.
            Ok(()) | Err(MetaError::NoPartition) => {}
            Err(error) => console::warn(&format!(
                "cannot store the encryption settings of STATE: {error}; the next boot uses the former settings"
            )),
        }
    }

    /// Records the owner in META: the CAs of this stored config. Without META the node stores no config either.
    pub fn keep_owner(&self, document: &Document) {
        if self.kept.get().is_none() {
            return;
        }
        let kept = self.meta.keep_owner(&joined(&trusted_cas(document)));
        match kept {
            Ok(()) | Err(MetaError::NoPartition) => {}
            Err(error) => console::warn(&format!(
                "cannot record the owner of this node in META: {error}; if STATE is lost, no client can call the node"
            )),
        }
    }

    /// The opened encrypted system volumes.
    pub fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The opened encrypted user volumes.
    pub fn user_volumes(&self) -> OpenedVolumes {
        self.user_volumes.clone()
    }

    /// Whether an installation runs or has succeeded. Its target disk must not count as a late disk of the node.
    pub fn is_installing(&self) -> bool {
        self.installing.load(Ordering::Acquire)
    }

    /// Publishes the progress of the unattended installation; `None` for an installation of another kind.
    pub fn set_installation(&self, status: Option<UnattendedInstallStatus>) {
        self.installation.send_replace(status);
    }

    /// A receiver of that progress; `None` without such an installation.
    pub fn installations(&self) -> watch::Receiver<Option<UnattendedInstallStatus>> {
        self.installation.subscribe()
    }

    /// Whether no disk carries the node. A node with a disk is installed, even if its volumes failed.
    pub fn is_without_disk(&self) -> bool {
        // A container has no disks; its host installs it.
        Mode::now().can(Ability::Versions)
            && self.kept.get().is_none()
            && matches!(corten_volumes::meta_partition(), Ok(None))
    }

    /// Rejects all further requests, because the boot ends.
    pub fn set_ending(&self) {
        self.ending.store(true, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
