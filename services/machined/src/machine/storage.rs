//! The volumes in the node's life.

use std::io;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;

use corten_base::console;
use corten_base::durable;
use corten_base::kernel_log::KernelLog;
use corten_base::mode::{Ability, Mode};
use corten_base::mounts;
use corten_base::panics::again;
use corten_config::Document;
use corten_config::kinds::{Encryption, SystemVolume};
use corten_meta::tags::{STATE_ENCRYPTION, WAS_ENCRYPTED};
use corten_sys::host;
use corten_types::stop::Kill;
use corten_volumes::{EPHEMERAL, Failure, Opened, Outcome, Progress, STATE};
use tokio::sync::Mutex;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::{Fatal, Machine, SERVICE_PATIENCE, config};
use crate::boot::system;
use crate::config_store::ConfigStore;
use crate::last_stop::{self, Evidence, LastStop};
use crate::node::Node as _;
use crate::oom;

impl Machine {
    /// A node whose disk is broken still boots, to say so.
    pub(super) async fn mount_volumes(&self) {
        if !Mode::now().can(Ability::Disks) {
            return self.use_directories();
        }
        let doubt = self.read_meta();
        let outcome = self.attach_volumes(doubt).await;
        self.raise_clock();
        match outcome {
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

    /// Takes for volumes what the host of a container has mounted in their places.
    fn use_directories(&self) {
        let is_given = |target: &&str| durable::is_volume(Path::new(target));
        let targets = [STATE.target, EPHEMERAL.target];
        let lacks: Vec<&str> = targets
            .into_iter()
            .filter(|target| !is_given(target))
            .collect();
        if !lacks.is_empty() {
            console::warn(&format!(
                "volumes: the host has mounted nothing on {}; what is there is lost with the container",
                lacks.join(" and ")
            ));
        }
        self.volumes.send_replace(Progress::Settled);
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
        let Some(partitions) = corten_volumes::find()? else {
            return Ok(Outcome::NoDisk);
        };
        // Why it cannot be used is told in full when it would be.
        let (embedded, doubt) = match config::embedded() {
            Ok(embedded) => (embedded, doubt),
            Err(_) => (None, Some("the config in the image is wrong".to_owned())),
        };
        let of_state = self.state_encryption(embedded.as_ref())?;
        corten_volumes::check_clear(
            partitions.lacks_state()?,
            of_state.as_ref(),
            doubt.as_deref(),
        )?;
        let meta = self.node.meta();
        let was_encrypted = meta.watch().borrow().contains_key(&WAS_ENCRYPTED);
        partitions
            .attach_state(&self.supervisor, of_state.as_ref(), was_encrypted, opened)
            .await?;
        // A META that cannot be written: the partition table says it still.
        if !opened.is_empty()
            && let Err(error) = meta.keep_encrypted()
        {
            console::warn(&format!(
                "META does not say that STATE is encrypted: {error}"
            ));
        }
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
            let why = "the config says how EPHEMERAL is opened";
            let _ = self.restarts.send(why.to_owned());
        }
    }

    /// Mounts what was not there before udevd had loaded the drivers, and reads the config it holds.
    pub(super) async fn mount_late_volumes(&self) -> Result<(), Fatal> {
        if !self.awaits_disk() {
            return Ok(());
        }
        if timeout(SERVICE_PATIENCE, self.supervisor.up("udevd"))
            .await
            .is_err()
        {
            console::warn("volumes: udevd is not up; disks that need a module are not found");
        }
        self.mount_and_load().await
    }

    /// Mounts the volumes, and reads the config that STATE holds.
    pub(super) async fn mount_and_load(&self) -> Result<(), Fatal> {
        self.mount_volumes().await;
        if self.awaits_disk() {
            return Ok(());
        }
        self.read_last_stop();
        // The config counts, whatever became of EPHEMERAL.
        if durable::is_volume(Path::new(STATE.target)) {
            system::make_directories().map_err(Fatal)?;
            self.load_config();
        }
        Ok(())
    }

    /// No disk with the volumes was there at the last look.
    pub(super) fn awaits_disk(&self) -> bool {
        *self.volumes.borrow() == Progress::Awaited
    }

    /// What need not be done before the API answers: late volumes, and growth.
    pub(super) async fn finish_volumes(&self) -> Result<(), Fatal> {
        let before = self.node.config();
        self.mount_late_volumes().await?;
        self.outlast_lock().await?;
        if self.awaits_disk() {
            console::say("volumes: none; config and data last until the node restarts");
            self.volumes.send_replace(Progress::Settled);
            self.read_last_stop();
            return Ok(());
        }
        self.serve_by_late_config(before.as_ref());
        if corten_volumes::are_mounted()
            && let Err(failure) = corten_volumes::grow()
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
        self.run_by_config();
    }

    /// META has no file system that could be damaged, so it is read even when the volumes are not there. Why its
    /// values are not known, if they are not.
    fn read_meta(&self) -> Option<String> {
        let device = match corten_volumes::meta_partition() {
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

    /// Begins this boot's record on STATE and says why the boot before ended, once, as soon as it is known whether
    /// there is a STATE.
    pub(super) fn read_last_stop(&self) {
        if self.awaits_disk() {
            return;
        }
        let evidence = evidence();
        let state = Path::new(STATE.target);
        if durable::is_volume(state) {
            let (last, kept) = last_stop::begin(state, &host::boot_id(), &evidence);
            warn_unless_kept(kept);
            self.tell_last_stop(self.heed_lock(last));
        } else {
            self.tell_last_stop(self.heed_lock(last_stop::amend(None, &evidence)));
        }
        // What it tells is kept in this boot's record, which is begun now, or again when STATE comes late.
        if Mode::now().can(Ability::KernelLog) {
            WATCH.call_once(|| drop(tokio::spawn(watch_for_kills())));
        }
    }

    /// Adds what drivers know that are modules, which are loaded by now: watchdogs, memory that outlives a reset.
    pub(super) fn finish_last_stop(&self) {
        let evidence = evidence();
        let state = Path::new(STATE.target);
        let boot = host::boot_id();
        let before = self.node.last_stops().borrow().clone();
        let has_state = durable::is_volume(state);
        let last = if has_state {
            let (last, kept) = last_stop::learn(state, &boot, before.clone(), &evidence);
            warn_unless_kept(kept);
            last
        } else {
            // On a volume that is only broken they have a place when it is mended; without one they never do.
            if !matches!(*self.volumes.borrow(), Progress::Failed(_)) {
                evidence.forget();
            }
            last_stop::amend(before.clone(), &evidence)
        };
        if last != before {
            self.tell_last_stop(last);
        }
        // The API is served by now, so that all of it can be asked for.
        if has_state {
            warn_unless_kept(last_stop::told(state, &boot));
        }
        self.told_lock();
    }

    fn tell_last_stop(&self, last: Option<LastStop>) {
        let Some(last) = last else {
            return;
        };
        console::say(&format!("the boot before ended by {}", last.stop));
        if !last.locked.is_empty() {
            console::say(&format!("the boot before was locked: {}", last.locked));
        }
        if let Some(kill) = last.kills.last() {
            console::say(&format!("in the boot before, {kill}"));
        }
        self.node.set_last_stop(last);
    }
}

/// What the machine itself knows of the boot before.
fn evidence() -> Evidence {
    if !Mode::now().can(Ability::KernelFileSystems) {
        return Evidence::default();
    }
    mounts::mount_early(mounts::PSTORE);
    Evidence::collect(Path::new("/sys"))
}

fn warn_unless_kept(kept: io::Result<()>) {
    if let Err(error) = kept {
        console::warn(&format!("cannot keep why this boot ends: {error}"));
    }
}

/// Begins the one watch for what is killed for memory.
static WATCH: Once = Once::new();

/// Remembers the services' processes that are killed for memory, for ever.
async fn watch_for_kills() {
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
