//! The node as the API sees it: views out, a config or an action in.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use corten_base::console;
use corten_base::events::Events;
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_config::kinds::SystemVolume;
use corten_config::platform::PlatformNetwork;
use corten_meta::Tag;
use corten_meta::tags::{LOCK, OWNER, PLATFORM_NETWORK, STATE_ENCRYPTION, TRIAL, WAS_ENCRYPTED};
use corten_resources::Store;
use corten_services::supervisor::{Supervisor, logs};
use corten_types::secrets::{authorities, joined};
use corten_volumes::user::OpenedVolumes;
use corten_volumes::{DeviceWipe, Opened, STATE, Target};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use crate::certificates;
use crate::config_store::ConfigStore;
use crate::last_stop::LastStop;
use crate::meta::{Meta, MetaError};
use crate::node::{
    Action, Actor, Apply, Begin, Control, Node, ServiceView, Stage, SubmitError, Upgrade,
};
use crate::upgrade;

const WIPING: SubmitError = SubmitError::Busy("a wipe of devices");

/// What a handler has asked for.
#[derive(Debug)]
pub enum Request {
    /// A validated config; kept already if it shall be.
    Apply(Box<Document>, Apply),
    /// The end of this boot, and who asked for it.
    Act(Action, Actor),
}

/// Shared by the API server and `machine.rs`, which alone changes it.
#[derive(Debug)]
pub struct NodeState {
    stage: watch::Sender<Stage>,
    /// Why the node is locked, while it is.
    lock: watch::Sender<Option<String>>,
    config: watch::Sender<Option<Document>>,
    requests: mpsc::UnboundedSender<Request>,
    /// Set once and for ever: nothing else is accepted any more.
    ending: AtomicBool,
    supervisor: Supervisor,
    store: Store,
    events: Events,
    meta: Arc<Meta>,
    last_stop: watch::Sender<Option<LastStop>>,
    /// Where configs are kept, from the moment the volume is there.
    kept: OnceLock<ConfigStore>,
    opened: Mutex<Opened>,
    user_volumes: OpenedVolumes,
    /// Held while devices are wiped.
    wiping: Mutex<()>,
    /// Somebody wants this node to be the first of a new cluster.
    cluster: watch::Sender<Option<Begin>>,
    /// Where the lines of the log `audit` go; nowhere in tests.
    log: OnceLock<logs::Sender>,
}

impl NodeState {
    /// A node that boots, and where its requests arrive.
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
            cluster: watch::Sender::default(),
            log: OnceLock::new(),
        };
        (Arc::new(state), receiver)
    }

    /// From now on the log `audit` goes there.
    pub fn log_to(&self, log: logs::Sender) {
        let _ = self.log.set(log);
    }

    /// Enters a stage.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// The stage, to be watched.
    pub fn stages(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Says why the node is locked, or that it is not.
    pub fn set_lock(&self, why: Option<String>) {
        self.lock.send_replace(why);
    }

    /// Why the node is locked, to be watched; `None`: it is not.
    pub fn locks(&self) -> watch::Receiver<Option<String>> {
        self.lock.subscribe()
    }

    /// The active machine config, to be watched.
    pub fn configs(&self) -> watch::Receiver<Option<Document>> {
        self.config.subscribe()
    }

    /// Makes a config the active one.
    pub fn set_config(&self, document: Document) {
        self.config.send_replace(Some(document));
    }

    /// With what the node is to be the first of a new cluster, to be watched; `None`: it is not.
    pub fn clusters(&self) -> watch::Receiver<Option<Begin>> {
        self.cluster.subscribe()
    }

    /// Makes known how the boot before ended.
    pub fn set_last_stop(&self, last: LastStop) {
        self.last_stop.send_replace(Some(last));
    }

    /// How the boot before ended, to be watched.
    pub fn last_stops(&self) -> watch::Receiver<Option<LastStop>> {
        self.last_stop.subscribe()
    }

    /// Its META.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// From now on configs are kept there.
    pub fn keep_configs(&self, store: ConfigStore) {
        let _ = self.kept.set(store);
    }

    /// Where configs are kept.
    pub fn config_store(&self) -> Option<&ConfigStore> {
        self.kept.get()
    }

    /// Has META say how STATE is encrypted: the next boot opens STATE before it can read this config, which is one
    /// that is kept. A config that says nothing of it leaves it as it is. Trying a passphrase may take long.
    pub fn keep_state_encryption(&self, document: &Document) {
        let Some(wanted) = document.encryption(SystemVolume::State) else {
            return;
        };
        // One that was kept from earlier may know none of today's keys.
        let unchanged = |why: String| {
            console::warn(&format!("how the volumes are opened is not changed: {why}"));
        };
        let opened = self.opened().clone();
        if let Err(why) = corten_volumes::check_keys(&opened, document) {
            return unchanged(why);
        }
        let value = wanted.to_meta().into_bytes();
        if self.meta.watch().borrow().get(&STATE_ENCRYPTION) == Some(&value) {
            return;
        }
        // A boot in which STATE could not be opened must not cost the key that does.
        if let Err(why) = corten_volumes::check_state_keys(&opened, Some(wanted)) {
            return unchanged(why);
        }
        match self.meta.change(STATE_ENCRYPTION, Some(value)) {
            // Without META there is no STATE either.
            Ok(()) | Err(MetaError::NoPartition) => {}
            Err(error) => console::warn(&format!(
                "how STATE is encrypted is not kept: {error}; the next boot opens it as before"
            )),
        }
    }

    /// Has META name the owner by the authorities of this config, which is one that is kept. Without META the node
    /// keeps no config either.
    pub fn keep_owner(&self, document: &Document) {
        if self.kept.get().is_none() {
            return;
        }
        let kept = self.meta.keep_owner(&joined(&authorities(document)));
        match kept {
            Ok(()) | Err(MetaError::NoPartition) => {}
            Err(error) => console::warn(&format!(
                "META does not name the owner of this node: {error}; should STATE be lost, nobody can call the node"
            )),
        }
    }

    /// The encrypted volumes.
    pub fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The encrypted volumes of users.
    pub fn user_volumes(&self) -> OpenedVolumes {
        self.user_volumes.clone()
    }

    /// Accepts nothing any more; whatever ends this boot.
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
            (OWNER, _) => Err("the node itself says who owns it, by its machine config".to_owned()),
            (LOCK, _) => Err("the node itself says why it was locked".to_owned()),
            (WAS_ENCRYPTED, _) => {
                Err("the node itself says whether STATE was encrypted".to_owned())
            }
            (TRIAL, _) => Err("the node itself says which version it tries".to_owned()),
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
        match (how, self.kept.get()) {
            (Apply::Now | Apply::Staged, Some(store)) => store
                .save(document.source())
                .map_err(|error| SubmitError::Failed(format!("cannot keep the config: {error}")))?,
            (Apply::Staged, None) => {
                let text = "mode staged needs a STATE volume to keep the config on; there is none";
                return Err(SubmitError::Refused(text.to_owned()));
            }
            (Apply::Try(_), _) if self.config.borrow().is_none() => {
                let text = "mode try needs a config to go back to; this node has none yet";
                return Err(SubmitError::Refused(text.to_owned()));
            }
            (Apply::Now | Apply::Try(_), _) => {}
        }
        // A staged one is that of the next boot, which sees to it.
        if how == Apply::Now {
            self.keep_state_encryption(&document);
            self.keep_owner(&document);
        }
        let request = Request::Apply(Box::new(document), how);
        self.requests
            .send(request)
            .map_err(|_| SubmitError::Busy("the end of this boot"))
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
            console::say(&format!("{device} is being wiped, as the API was asked to"));
            // Before: what is wanted there is looked at again as soon as the disk has changed.
            let state = Path::new(STATE.target);
            corten_volumes::user::forget(state, &wipe.ends());
            corten_volumes::user::forget_encrypted(state, &wipe.emptied());
            wipe.carry_out().map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy => SubmitError::Refused(format!(
                    "{device} is mounted, or open, or a part of something that is in use"
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

    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            can(Ability::Versions)?;
            self.check_not_ending()?;
            upgrade::roll_back(self).await
        })
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
            // What a power cut leaves of STATE can be opened still.
            let is_meta = |target: &Target| target.partition() == Some("META");
            reset.targets.sort_by_key(is_meta);
        }
        // What is wiped now must not be written to beside what a reset empties, nor after it.
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

/// Refuses what a node that runs where this one does cannot do.
fn can(ability: Ability) -> Result<(), SubmitError> {
    Mode::now().check(ability).map_err(SubmitError::Refused)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
