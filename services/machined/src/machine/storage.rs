//! The volumes in the node's life.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use corten_config::Document;
use corten_config::kinds::{Encryption, SystemVolume};
use corten_sys::host;
use tokio::sync::Mutex;
use tokio::task::block_in_place;

use super::{Fatal, Machine, config};
use crate::boot::system;
use crate::config_store::ConfigStore;
use crate::console;
use crate::durable;
use crate::kernel_log::KernelLog;
use crate::last_stop::{self, Evidence};
use crate::meta::STATE_ENCRYPTION;
use crate::node::{Node, Stage};
use crate::oom::{self, Kill};
use crate::panics::again;
use crate::volumes::{self, Failure, Opened, Outcome, Progress, STATE};

impl Machine {
    /// A node whose disk is broken still boots, to say so.
    pub(super) async fn mount_volumes(&self) {
        let doubt = self.read_meta();
        match self.attach_volumes(doubt).await {
            // Its driver may come with udevd.
            Ok(Outcome::NoDisk) => {}
            Ok(Outcome::AwaitsConfig { disk }) => {
                self.awaits_config.store(true, Relaxed);
                console::say(&format!(
                    "volumes: STATE mounted on {disk}; EPHEMERAL waits for a machine config, which says how it is encrypted"
                ));
                self.volumes.send_replace(Progress::Settled);
            }
            Ok(Outcome::Mounted { disk, made }) => {
                let how = if made == 0 {
                    "mounted"
                } else {
                    "made and mounted"
                };
                console::say(&format!("volumes: STATE and EPHEMERAL {how} on {disk}"));
                self.volumes.send_replace(Progress::Settled);
            }
            Err(failure) => {
                console::warn(&format!(
                    "volumes: {failure}; until this is mended, config and data are lost with every restart"
                ));
                self.volumes.send_replace(Progress::Failed(failure));
            }
        }
    }

    /// STATE comes first: the config on it says how EPHEMERAL is opened. `doubt`: why META cannot say how STATE
    /// is.
    async fn attach_volumes(&self, doubt: Option<String>) -> Result<Outcome, Failure> {
        let mut opened = Opened::new();
        let outcome = self.attach_both(doubt, &mut opened).await;
        // Also of what could not be mounted: the next boot opens it again.
        *self.node.opened() = opened;
        outcome
    }

    async fn attach_both(
        &self,
        doubt: Option<String>,
        opened: &mut Opened,
    ) -> Result<Outcome, Failure> {
        let Some(partitions) = volumes::find()? else {
            return Ok(Outcome::NoDisk);
        };
        // Why it cannot be used is told in full when it would be.
        let (embedded, doubt) = match config::embedded() {
            Ok(embedded) => (embedded, doubt),
            Err(_) => (None, Some("the config in the image is wrong".to_owned())),
        };
        let of_state = self.state_encryption(embedded.as_ref())?;
        volumes::check_clear(
            partitions.lacks_state()?,
            of_state.as_ref(),
            doubt.as_deref(),
        )?;
        partitions
            .attach_state(&self.supervisor, of_state.as_ref(), opened)
            .await?;
        let encrypts = !opened.is_empty() || doubt.is_some();
        let kept = ConfigStore::on_volume(Path::new(STATE.target));
        let kept = kept.and_then(|store| store.load().document);
        let config = kept.or(embedded);
        partitions
            .attach_ephemeral(&self.supervisor, config.as_ref(), encrypts, opened)
            .await
    }

    /// What is in META, or else what the config in the image says.
    fn state_encryption(&self, embedded: Option<&Document>) -> Result<Option<Encryption>, Failure> {
        let meta = self.node.meta().watch();
        let kept = meta.borrow().get(&STATE_ENCRYPTION).cloned();
        match kept {
            Some(value) => Encryption::from_meta(&value).map(Some).map_err(|problems| {
                let why =
                    format!("META {STATE_ENCRYPTION:#04x} says how, and is wrong: {problems}");
                Failure::new(STATE.name, why)
            }),
            None => Ok(embedded
                .and_then(|config| config.encryption(SystemVolume::State))
                .cloned()),
        }
    }

    /// What uses /var by now would not find itself in another one, so that the node starts again.
    pub(super) fn mount_what_waited(&self) {
        // One that is in memory only would be asked for again, and the node start again, for ever.
        let is_kept = |store: &ConfigStore| store.load().document.is_some();
        if self.awaits_config.load(Relaxed) && self.node.config_store().is_some_and(is_kept) {
            self.restart.notify_one();
        }
    }

    /// Mounts what was not there before udevd had loaded the drivers, and reads the config it holds.
    pub(super) async fn mount_late_volumes(&self) -> Result<(), Fatal> {
        if !self.awaits_disk() {
            return Ok(());
        }
        self.supervisor.up("udevd").await;
        self.mount_volumes().await;
        // The config counts, whatever became of EPHEMERAL.
        if durable::is_volume(Path::new(STATE.target)) {
            system::make_directories().map_err(Fatal)?;
            self.load_config();
        }
        Ok(())
    }

    /// No disk with the volumes was there at the last look.
    fn awaits_disk(&self) -> bool {
        *self.volumes.borrow() == Progress::Awaited
    }

    /// What need not be done before the API answers: late volumes, and growth.
    pub(super) async fn finish_volumes(&self) -> Result<(), Fatal> {
        let before = self.node.config();
        self.mount_late_volumes().await?;
        if self.awaits_disk() {
            console::say("volumes: none; config and data last until the node restarts");
            self.volumes.send_replace(Progress::Settled);
            return Ok(());
        }
        self.serve_by_late_config(before.as_ref());
        if volumes::are_mounted()
            && let Err(failure) = volumes::grow(&self.supervisor).await
        {
            console::warn(&format!("volumes: {failure}"));
        }
        Ok(())
    }

    /// The config on STATE comes before the one in the image, which the node may be serving by already.
    fn serve_by_late_config(&self, before: Option<&Document>) {
        let Some(now) = self.node.config() else {
            return;
        };
        if before.is_some_and(|before| before.source() == now.source()) {
            return;
        }
        // It reads new certificates by itself, but not whom to serve.
        if before.is_none() {
            self.restart_apid();
        }
        self.node.set_stage(Stage::Running);
    }

    /// META has no file system that could be damaged, so it is read even when the volumes are not there. Why its
    /// values are not known, if they are not.
    fn read_meta(&self) -> Option<String> {
        let device = match volumes::meta_partition() {
            Ok(device) => device?,
            // Two disks: the volumes say so.
            Err(error) => return Some(error.to_string()),
        };
        let complaint = match self.node.meta().open(&device) {
            Ok(true) => return None,
            Ok(false) => "META: neither copy of its values is whole; it starts empty".to_owned(),
            Err(error) => format!("META: cannot read {}: {error}", device.display()),
        };
        console::warn(&complaint);
        Some(complaint)
    }

    /// Says why the boot before ended, where there is something to remember it.
    pub(super) fn read_last_stop(&self) {
        let evidence = Evidence::collect(Path::new("/sys"));
        let state = Path::new(STATE.target);
        let last = if durable::is_volume(state) {
            last_stop::begin(state, &host::boot_id(), evidence)
        } else {
            Ok(last_stop::without_record(evidence))
        };
        match last {
            Ok(None) => {}
            Ok(Some(last)) => {
                console::say(&format!("the boot before ended by {}", last.stop));
                if let Some(kill) = last.kills.last() {
                    console::say(&format!("in the boot before, {kill}"));
                }
                self.node.set_last_stop(last);
            }
            Err(error) => console::warn(&format!("cannot keep why this boot ends: {error}")),
        }
    }
}

/// Remembers the services' processes that are killed for memory, for ever.
pub(super) async fn watch_for_kills() {
    let watched = match KernelLog::open(Path::new("/dev/kmsg")) {
        Ok(log) => {
            // What was told once is not told again when this begins anew.
            let log = Mutex::new(log);
            again(|| async { oom::watch(&mut *log.lock().await, remember).await }).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = watched {
        console::warn(&format!(
            "what is killed for memory is not remembered: {error}"
        ));
    }
}

fn remember(kills: Vec<Kill>) {
    for kill in &kills {
        console::warn(&kill.to_string());
    }
    let state = Path::new(STATE.target);
    if !durable::is_volume(state) {
        return;
    }
    let kept = block_in_place(|| last_stop::record_kills(state, &host::boot_id(), kills));
    if let Err(error) = kept {
        console::warn(&format!("cannot keep what was killed for memory: {error}"));
    }
}
