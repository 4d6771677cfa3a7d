//! The node as the API server sees it: views to read, a config or an action to submit.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corten_base::console;
use corten_base::events::Events;
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_config::installation::Installation;
use corten_controllers::{EtcdOrder, config};
use corten_credentials::certificates;
use corten_meta::Tag;
use corten_meta::tags::{
    LOCK, OWNER, PLATFORM_NETWORK, STATE_ENCRYPTION, TRIAL, UUID_OVERRIDE, WAS_ENCRYPTED,
};
use corten_persistence::meta::MetaError;
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError};
use corten_seed::PlatformNetwork;
use corten_server::node::{
    Action, Actor, Apply, Begin, Control, Install, Node, Reset, ServiceView, Stage, SubmitError,
    Upgrade,
};
use corten_supervisor::supervisor::logs;
use corten_volumes::{DeviceWipe, STATE, Target};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{NodeState, Request};
use crate::install::{self, By};
use crate::upgrade::{self, refused};

/// Timeout for etcd to end and for the deletion of its data; the controller waits for up to a minute.
const END_OF_MEMBER: Duration = Duration::from_secs(90);
const WIPING: SubmitError = SubmitError::Busy("a wipe of devices");
const INSTALLING: SubmitError = SubmitError::Busy("an installation, which ends with a reboot,");

impl NodeState {
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

    /// Checks that the targets of a reset are there and can be wiped.
    fn check_targets(&self, reset: &Reset) -> Result<(), SubmitError> {
        for target in &reset.targets {
            target.check().map_err(SubmitError::Refused)?;
        }
        let partitions = reset.targets.iter().filter_map(Target::partition);
        let partitions: Vec<&str> = partitions.collect();
        corten_volumes::check_wiped(&self.opened(), &partitions).map_err(SubmitError::Refused)
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
            (UUID_OVERRIDE, Some(_)) => Err(
                "the node uses the firmware's UUID only; to tell equal machines apart, use ${serial} or ${mac} in \
                 corten.config"
                    .to_owned(),
            ),
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
        let is_active_soon = matches!(how, Apply::Now | Apply::Try(_));
        if is_active_soon && self.config.borrow().is_some() {
            self.accepted.accept(document.clone());
            if let Err(error) = config::show(&self.store, &document) {
                console::warn(&format!("the accepted config is shown only later: {error}"));
            }
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
        self.cluster.send_replace(Some(EtcdOrder::Begin(begin)));
        Ok(())
    }

    fn end_member(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        Box::pin(async move {
            let (done, mut ended) = mpsc::channel(1);
            self.cluster.send_replace(Some(EtcdOrder::Leave(done)));
            let why = match timeout(END_OF_MEMBER, ended.recv()).await {
                Ok(Some(Ok(()))) => return Ok(()),
                Ok(Some(Err(why))) => why,
                Ok(None) | Err(_) => "etcd has not ended in time".to_owned(),
            };
            Err(SubmitError::Failed(format!(
                "the member has left the cluster, but its data are not deleted: {why}; try again"
            )))
        })
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

    fn check_reset<'a>(&'a self, reset: &'a Reset) -> BoxFuture<'a, Result<(), SubmitError>> {
        Box::pin(async move {
            self.check_not_ending()?;
            self.check_targets(reset)?;
            upgrade::check_reset(self, reset).await
        })
    }

    fn audit(&self, line: &str) {
        if let Some(log) = self.log.get() {
            log.send(logs::AUDIT, line.as_bytes().to_vec());
        }
    }

    fn submit(&self, mut action: Action, actor: Actor) -> Result<(), SubmitError> {
        if let Action::Reset(reset) = &mut action {
            self.check_targets(reset)?;
            // META last: STATE can still be opened after a power loss during the wipe.
            let is_meta = |target: &Target| target.partition() == Some("META");
            reset.targets.sort_by_key(is_meta);
        }
        // No wipe of devices may run concurrently with a reset's wipe, or after it.
        let _alone = match &action {
            Action::Reset(_) => Some(self.wiping.try_lock().map_err(|_| WIPING)?),
            _ => None,
        };
        // A forced action ends the waits of another one. machined takes it until it stops the services.
        let takes_over = matches!(
            action,
            Action::ForcedReboot | Action::Shutdown { forced: true }
        );
        if self.ending.swap(true, Ordering::AcqRel) && !takes_over {
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
