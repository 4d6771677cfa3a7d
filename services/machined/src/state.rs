//! Shared state of the node for the API: views to read, a config or an action to submit.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use corten_base::console;
use corten_base::events::Events;
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_config::installation::Installation;
use corten_config::kinds::SystemVolume;
use corten_config::platform::PlatformNetwork;
use corten_credentials::certificates;
use corten_meta::Tag;
use corten_meta::tags::{LOCK, OWNER, PLATFORM_NETWORK, STATE_ENCRYPTION, TRIAL, WAS_ENCRYPTED};
use corten_persistence::config_store::ConfigStore;
use corten_persistence::last_stop::LastStop;
use corten_persistence::meta::{Meta, MetaError};
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError};
use corten_server::node::{
    Action, Actor, Apply, Begin, Control, Install, Node, ServiceView, Stage, SubmitError, Upgrade,
};
use corten_services::supervisor::{Supervisor, logs};
use corten_types::secrets::{authorities, joined};
use corten_volumes::user::OpenedVolumes;
use corten_volumes::{DeviceWipe, Opened, STATE, Target};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use crate::install::{self, By};
use crate::upgrade::{self, refused};

const WIPING: SubmitError = SubmitError::Busy("a wipe of devices");
const INSTALLING: SubmitError = SubmitError::Busy("an installation, which ends with a reboot,");

/// A request of a handler.
#[derive(Debug)]
pub enum Request {
    /// A validated config; stored already if it is permanent.
    Apply(Box<Document>, Apply),
    /// The end of this boot, and its initiator.
    Act(Action, Actor),
}

/// State shared with the API server, which changes it through [`Node`] alone. `machine/` changes the rest.
#[derive(Debug)]
pub struct NodeState {
    stage: watch::Sender<Stage>,
    /// Reason of the lock while the node is locked.
    lock: watch::Sender<Option<String>>,
    config: watch::Sender<Option<Document>>,
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
    /// Initial data of the new cluster, after a bootstrap call.
    cluster: watch::Sender<Option<Begin>>,
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

    /// Makes a config the active one.
    pub fn set_config(&self, document: Document) {
        self.config.send_replace(Some(document));
    }

    /// A receiver of the new cluster's initial data; `None` without a bootstrap call.
    pub fn clusters(&self) -> watch::Receiver<Option<Begin>> {
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

    /// Records the owner in META: the authorities of this stored config. Without META the node stores no config either.
    pub fn keep_owner(&self, document: &Document) {
        if self.kept.get().is_none() {
            return;
        }
        let kept = self.meta.keep_owner(&joined(&authorities(document)));
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

    /// Whether no disk carries the node. A node with a disk is installed, even if its volumes failed.
    pub fn is_without_disk(&self) -> bool {
        // A container has no disks; its host installs it.
        Mode::now().can(Ability::Versions)
            && self.kept.get().is_none()
            && matches!(corten_volumes::meta_partition(), Ok(None))
    }

    /// Installs the node with this config, unless an installation is running.
    ///
    /// # Errors
    /// As [`install::install`].
    pub async fn install_by(
        &self,
        wanted: &Installation,
        (config, by): (Option<&Document>, By),
        tell: &mpsc::Sender<String>,
    ) -> Result<install::Installed, SubmitError> {
        if self.installing.swap(true, Ordering::AcqRel) {
            return Err(INSTALLING);
        }
        let done = install::install(self, &self.supervisor, (wanted, config, by), tell).await;
        if done.is_err() {
            self.installing.store(false, Ordering::Release);
        }
        done
    }

    /// Rejects all further requests, because the boot ends.
    pub fn set_ending(&self) {
        self.ending.store(true, Ordering::Release);
    }

    fn check_not_ending(&self) -> Result<(), SubmitError> {
        if self.ending.load(Ordering::Acquire) {
            return Err(SubmitError::Busy("the end of this boot"));
        }
        Ok(())
    }
}

impl Node for NodeState {
    fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    fn services(&self) -> Vec<ServiceView> {
        let mut views = self.supervisor.views();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn graph(&self) -> Result<Graph, GraphError> {
        corten_controllers::graph()
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn config(&self) -> Option<Document> {
        self.config.borrow().clone()
    }

    fn check_config(&self, document: &Document) -> Result<(), SubmitError> {
        certificates::check(document).map_err(|error| {
            SubmitError::Refused(corten_resources::controller::with_causes(&error))
        })?;
        let opened = self.opened().clone();
        corten_volumes::check_keys(&opened, document).map_err(SubmitError::Refused)?;
        corten_volumes::check_in_clear(&opened, document).map_err(SubmitError::Refused)?;
        self.user_volumes
            .check(self.config.borrow().as_ref(), document)
            .map_err(SubmitError::Refused)
    }

    fn change_meta(&self, tag: Tag, value: Option<Vec<u8>>) -> Result<(), MetaError> {
        let checked = match (tag, value.as_deref()) {
            (STATE_ENCRYPTION, value) => {
                let opened = self.opened().clone();
                corten_volumes::check_state_value(&opened, value)
            }
            (OWNER, _) => {
                Err("the node itself records its owner, from its machine config".to_owned())
            }
            (LOCK, _) => Err("the node itself records why it was locked".to_owned()),
            (WAS_ENCRYPTED, _) => {
                Err("the node itself records whether STATE was encrypted".to_owned())
            }
            (TRIAL, _) => Err("the node itself records the version on trial".to_owned()),
            (PLATFORM_NETWORK, Some(value)) => PlatformNetwork::from_meta(value)
                .map(drop)
                .map_err(|problems| problems.to_string()),
            _ => Ok(()),
        };
        checked.map_err(|why| MetaError::Refused(tag, why))?;
        self.meta.change(tag, value)
    }

    fn config_is_kept(&self) -> bool {
        self.kept.get().is_some()
    }

    fn apply_config(&self, document: Document, how: Apply) -> Result<(), SubmitError> {
        self.check_not_ending()?;
        self.check_config(&document)?;
        if self.is_installing() {
            return Err(INSTALLING);
        }
        match (how, self.kept.get()) {
            (Apply::Now | Apply::Staged, Some(store)) => {
                store.save(document.source()).map_err(|error| {
                    SubmitError::Failed(format!("cannot store the config: {error}"))
                })?;
            }
            (Apply::Staged, None) => return Err(refused("mode staged needs a STATE volume")),
            (Apply::Try(_), _) if self.config.borrow().is_none() => {
                return Err(refused(
                    "mode try needs a config to revert to; there is none",
                ));
            }
            (Apply::Now | Apply::Try(_) | Apply::Install, _) => {}
        }
        // A staged config is handled by the next boot.
        if how == Apply::Now {
            self.keep_state_encryption(&document);
            self.keep_owner(&document);
        }
        let sent = self.requests.send(Request::Apply(Box::new(document), how));
        sent.map_err(|_| SubmitError::Busy("the end of this boot"))
    }

    fn control(
        &self,
        service: &str,
        control: Control,
    ) -> Result<oneshot::Receiver<()>, SubmitError> {
        self.check_not_ending()?;
        Ok(self.supervisor.control(service, control))
    }

    fn wipe_devices(&self, wipes: &[DeviceWipe]) -> Result<(), SubmitError> {
        can(Ability::Disks)?;
        let _alone = self.wiping.try_lock().map_err(|_| WIPING)?;
        for wipe in wipes {
            self.check_not_ending()?;
            let device = &wipe.device;
            console::say(&format!("wiping {device}, as requested through the API"));
            // First forget the volume: controllers inspect the disk as soon as it has changed.
            let state = Path::new(STATE.target);
            corten_volumes::user::forget(state, &wipe.ends());
            corten_volumes::user::forget_encrypted(state, &wipe.emptied());
            wipe.carry_out().map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy => SubmitError::Refused(format!(
                    "{device} is mounted, open, or part of a device in use"
                )),
                _ => SubmitError::Failed(format!("{device} is not wiped: {error}")),
            })?;
            console::say(&format!("{device} is wiped"));
        }
        Ok(())
    }

    fn begin_cluster(&self, begin: Begin) -> Result<(), SubmitError> {
        self.check_not_ending()?;
        self.cluster.send_replace(Some(begin));
        Ok(())
    }

    fn upgrade(
        &self,
        upgrade: Upgrade,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            can(Ability::Versions)?;
            self.check_not_ending()?;
            upgrade::install(self, &self.supervisor, &upgrade, &tell).await
        })
    }

    fn install_target(&self, document: &Document) -> Result<Option<String>, SubmitError> {
        let is_new = || self.stage() == Stage::Maintenance && self.is_without_disk();
        let Some(wanted) = document.installation().filter(|_| is_new()) else {
            return Ok(None);
        };
        install::take(self, &wanted, By::Caller).map(|blank| Some(blank.name().to_owned()))
    }

    fn install(
        &self,
        install: Install,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            can(Ability::Versions)?;
            self.check_not_ending()?;
            let wanted = Installation::to(install.disk, install.image);
            let config = self.config();
            let done = self.install_by(&wanted, (config.as_ref(), By::Caller), &tell);
            Ok(done.await?.version)
        })
    }

    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            can(Ability::Versions)?;
            self.check_not_ending()?;
            upgrade::roll_back(self).await
        })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        Box::pin(upgrade::leave(self))
    }

    fn stay(&self) -> BoxFuture<'_, ()> {
        Box::pin(upgrade::stay(self))
    }

    fn audit(&self, line: &str) {
        if let Some(log) = self.log.get() {
            log.send(logs::AUDIT, line.as_bytes().to_vec());
        }
    }

    fn submit(&self, mut action: Action, actor: Actor) -> Result<(), SubmitError> {
        if let Action::Reset(reset) = &mut action {
            can(Ability::Reset)?;
            for target in &reset.targets {
                target.check().map_err(SubmitError::Refused)?;
            }
            let partitions = reset.targets.iter().filter_map(Target::partition);
            let partitions: Vec<&str> = partitions.collect();
            corten_volumes::check_wiped(&self.opened(), &partitions)
                .map_err(SubmitError::Refused)?;
            // META last: STATE can still be opened after a power loss during the wipe.
            let is_meta = |target: &Target| target.partition() == Some("META");
            reset.targets.sort_by_key(is_meta);
        }
        // No wipe of devices may run concurrently with a reset's wipe, or after it.
        let _alone = match &action {
            Action::Reset(_) => Some(self.wiping.try_lock().map_err(|_| WIPING)?),
            _ => None,
        };
        if self.ending.swap(true, Ordering::AcqRel) {
            return Err(SubmitError::Busy("the end of this boot"));
        }
        self.requests
            .send(Request::Act(action, actor))
            .map_err(|_| SubmitError::Busy("the end of this boot"))
    }
}

/// Refuses an operation that the node's environment does not allow.
fn can(ability: Ability) -> Result<(), SubmitError> {
    Mode::now().check(ability).map_err(SubmitError::Refused)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
