//! Mounts the node's volumes, and keeps its data on them.

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
use corten_persistence::config_store::ConfigStore;
use corten_persistence::last_stop::{self, Evidence, LastStop};
use corten_persistence::oom;
use corten_server::node::Node as _;
use corten_sys::host;
use corten_types::stop::Kill;
use corten_volumes::{EPHEMERAL, Failure, Opened, Outcome, Progress, STATE};
use tokio::sync::Mutex;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::{Fatal, Machine, SERVICE_PATIENCE, config};
use crate::boot::system;

impl Machine {
    /// Mounts the volumes. A node with a broken disk still boots, so that it can report the failure.
    pub(super) async fn mount_volumes(&self) {
        if !Mode::now().can(Ability::Disks) {
            return self.use_directories();
        }
        let doubt = self.read_meta();
        let outcome = self.attach_volumes(doubt).await;
        self.raise_clock();
        match outcome {
            // The disk may appear later, when udevd has loaded its driver.
            Ok(Outcome::NoDisk) => {}
            Ok(Outcome::AwaitsConfig { disk }) => {
                self.awaits_config.store(true, Relaxed);
                console::say(&format!(
                    "volumes: STATE mounted on {disk}; EPHEMERAL waits for a machine config with its encryption \
                     settings"
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
                    "volumes: {failure}; until this is repaired, every restart loses config and data"
                ));
                self.volumes.send_replace(Progress::Failed(failure));
            }
        }
    }

    /// Uses the directories that the host of a container mounted in place of the volumes.
    fn use_directories(&self) {
        let is_given = |target: &&str| durable::is_volume(Path::new(target));
        let targets = [STATE.target, EPHEMERAL.target];
        let lacks: Vec<&str> = targets
            .into_iter()
            .filter(|target| !is_given(target))
            .collect();
        if !lacks.is_empty() {
            console::warn(&format!(
                "volumes: the host has mounted nothing on {}; its data are lost with the container",
                lacks.join(" and ")
            ));
        }
        self.volumes.send_replace(Progress::Settled);
    }

    /// Mounts STATE before EPHEMERAL: the config on STATE says how EPHEMERAL is opened. `doubt` is the reason why META
    /// does not say how STATE is encrypted.
    async fn attach_volumes(&self, doubt: Option<String>) -> Result<Outcome, Failure> {
        let mut opened = Opened::new();
        let outcome = self.attach_both(doubt, &mut opened).await;
        // Includes volumes that could not be mounted: the next boot opens them again.
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
        // An unusable config is reported in full where it would take effect.
        let (embedded, doubt) = match config::embedded() {
            Ok(embedded) => (embedded, doubt),
            Err(_) => (None, Some("the config in the image is invalid".to_owned())),
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
        // META cannot be written, but the partition table still marks the volumes as encrypted.
        if !opened.is_empty()
            && let Err(error) = meta.keep_encrypted()
        {
            console::warn(&format!(
                "cannot record in META that STATE is encrypted: {error}"
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

    /// The encryption of STATE by META, or else by the config in the image.
    fn state_encryption(&self, embedded: Option<&Document>) -> Result<Option<Encryption>, Failure> {
        let meta = self.node.meta().watch();
        let kept = meta.borrow().get(&STATE_ENCRYPTION).cloned();
        match kept {
            Some(value) => Encryption::from_meta(&value).map(Some).map_err(|problems| {
                let why =
                    format!("its encryption settings in META {STATE_ENCRYPTION:#04x} are invalid: {problems}");
                Failure::new(STATE.name, why)
            }),
            None => Ok(embedded
                .and_then(|config| config.encryption(SystemVolume::State))
                .cloned()),
        }
    }

    /// Restarts the node if a stored config now says how EPHEMERAL is opened. Programs already use /var, and a mount
    /// would hide their files.
    pub(super) fn mount_what_waited(&self) {
        // A restart would lose a config that is only in memory. The node would get it again, and restart without end.
        let is_kept = |store: &ConfigStore| store.load().document.is_some();
        if self.awaits_config.load(Relaxed) && self.node.config_store().is_some_and(is_kept) {
            let why = "the config has the encryption settings of EPHEMERAL";
            let _ = self.restarts.send(why.to_owned());
        }
    }

    /// Mounts the volumes that appeared once udevd had loaded the drivers, and loads the config from STATE.
    pub(super) async fn mount_late_volumes(&self) -> Result<(), Fatal> {
        if !self.awaits_disk() {
            return Ok(());
        }
        if timeout(SERVICE_PATIENCE, self.supervisor.up("udevd"))
            .await
            .is_err()
        {
            console::warn("volumes: udevd is not up; disks whose driver is a module are not found");
        }
        self.mount_and_load().await
    }

    /// Mounts the volumes, and loads the config from STATE.
    pub(super) async fn mount_and_load(&self) -> Result<(), Fatal> {
        self.mount_volumes().await;
        if self.awaits_disk() {
            return Ok(());
        }
        self.read_last_stop();
        // A config on STATE takes effect even if EPHEMERAL failed.
        if durable::is_volume(Path::new(STATE.target)) {
            system::make_directories().map_err(Fatal)?;
            self.load_config();
        }
        Ok(())
    }

    /// Whether the last attempt found no disk with the volumes.
    pub(super) fn awaits_disk(&self) -> bool {
        *self.volumes.borrow() == Progress::Awaited
    }

    /// Finishes the work that the API does not need: late volumes, and the growth of volumes.
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

    /// Has the config on STATE take precedence over the one in the image, which may already be active.
    fn serve_by_late_config(&self, before: Option<&Document>) {
        let Some(now) = self.node.config() else {
            return;
        };
        if before.is_some_and(|before| before.source() == now.source()) {
            return;
        }
        self.run_by_config();
    }

    /// Reads META. It has no file system that can be damaged, so it is read even without the volumes. Returns the
    /// reason if its values are unknown.
    fn read_meta(&self) -> Option<String> {
        let device = match corten_volumes::meta_partition() {
            Ok(device) => device?,
            // Two disks carry the node; the mount of the volumes reports that.
            Err(error) => return Some(error.to_string()),
        };
        let complaint = match self.node.meta().open(&device) {
            Ok(true) => return None,
            Ok(false) => "META: both copies of its values are damaged; it starts empty".to_owned(),
            Err(error) => format!("META: cannot read {}: {error}", device.display()),
        };
        console::warn(&complaint);
        Some(complaint)
    }

    /// Begins this boot's record on STATE and reports why the previous boot ended. Runs once, as soon as the node knows
    /// whether it has a STATE.
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
        // The record of this boot keeps the kills. It begins now, or again when STATE appears late.
        if Mode::now().can(Ability::KernelLog) {
            WATCH.call_once(|| drop(tokio::spawn(watch_for_kills())));
        }
    }

    /// Adds the findings of drivers that udevd has loaded by now: watchdogs, and memory that survives a reset.
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
            // A broken volume can store the evidence once it is repaired. A node without volumes never can, so it drops
            // the evidence.
            if !matches!(*self.volumes.borrow(), Progress::Failed(_)) {
                evidence.forget();
            }
            last_stop::amend(before.clone(), &evidence)
        };
        if last != before {
            self.tell_last_stop(last);
        }
        // The API is served by now, so clients can read the whole record.
        if has_state {
            warn_unless_kept(last_stop::clear_reported_words(state, &boot));
        }
        self.told_lock();
    }

    fn tell_last_stop(&self, last: Option<LastStop>) {
        let Some(last) = last else {
            return;
        };
        console::say(&format!("the previous boot ended by {}", last.stop));
        if !last.locked.is_empty() {
            console::say(&format!("the previous boot was locked: {}", last.locked));
        }
        if let Some(kill) = last.kills.last() {
            console::say(&format!("in the previous boot, {kill}"));
        }
        self.node.set_last_stop(last);
    }
}

/// The machine's own evidence of how the previous boot ended.
fn evidence() -> Evidence {
    if !Mode::now().can(Ability::KernelFileSystems) {
        return Evidence::default();
    }
    mounts::mount_early(mounts::PSTORE);
    Evidence::collect(Path::new("/sys"))
}

fn warn_unless_kept(kept: io::Result<()>) {
    if let Err(error) = kept {
        console::warn(&format!("cannot record why this boot ends: {error}"));
    }
}

/// Starts the only watch for OOM kills.
static WATCH: Once = Once::new();

/// Records the services' processes that the OOM killer ends. Runs until machined ends.
async fn watch_for_kills() {
    let watched = match KernelLog::open(Path::new("/dev/kmsg")) {
        Ok(log) => {
            // The log outlives a restart of the watch, so that no kill is reported twice.
            let log = Mutex::new(log);
            again(|| async { oom::watch(&mut *log.lock().await, remember).await }).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = watched {
        console::warn(&format!("OOM kills are not recorded: {error}"));
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
        console::warn(&format!("cannot record an OOM kill: {error}"));
    }
}
