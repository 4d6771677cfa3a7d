//! Finds the owner of the node before the API answers its first caller, and again while the owner is in doubt.
//!
//! Owns the stages maintenance and locked. Never answers an anonymous caller before the volumes were examined; the
//! decision itself is in `standing.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_base::durable;
use corten_persistence::meta;
use corten_server::node::{Control, Node as _, Stage};
use corten_supervisor::CONTAINERD;
use corten_volumes::{Progress, STATE, StartDisk};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

use super::standing::{Findings, Standing, State, standing};
use super::{Fatal, Machine, lock};

/// Time to wait for the disk that the boot loader names as the start disk. An operator may replug a USB stick, and a
/// controller may start its disks one by one.
const START_DISK: Duration = Duration::from_secs(90);
/// Time to wait for any disk if the start disk is unknown (BIOS, a CD, the network). Only a machine with a bus that
/// discovers disks late needs it. After udevd has settled, the kernel needs about this long to find USB disks.
const ANY_DISK: Duration = Duration::from_secs(10);
/// Interval of the checks for the disk.
const LOOK: Duration = Duration::from_secs(1);
/// First and longest pause between the attempts of a locked node.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Kernel parameter that opens a locked node, and its only value.
const RECOVER: &str = "recover";
const MAINTENANCE: &str = "maintenance";

impl Machine {
    /// Finds the owner of a node without a config: on the volumes first, then from the config sources. Only if both
    /// have none, the node answers anonymous callers. A source with a config that is refused has one.
    ///
    /// # Errors
    /// The volumes' directories cannot be made.
    pub(super) async fn find_owner(self: &Arc<Machine>) -> Result<(), Fatal> {
        self.mount_late_volumes().await?;
        self.await_start_disk().await?;
        if self.node.config().is_none() {
            self.acquire_config().await?;
        }
        self.judge();
        Ok(())
    }

    /// Waits for the disk that the boot loader names as the start disk. If it names none, waits for any disk, provided
    /// that a bus may still discover one.
    async fn await_start_disk(&self) -> Result<(), Fatal> {
        let begun = Instant::now();
        let mut is_told = false;
        while self.awaits_disk() {
            // A disk that does not answer blocks a thread, not the boot.
            let look = spawn_blocking(corten_volumes::start_disk);
            let found = timeout_at(begun + START_DISK, look).await;
            let (what, limit) = match (found, corten_volumes::late_bus()) {
                (Ok(Ok(StartDisk::Missing)), _) => (
                    "the disk that the node was started from".to_owned(),
                    START_DISK,
                ),
                (Ok(Ok(StartDisk::Unnamed)), Some(bus)) => {
                    (format!("a {bus} disk that carries a node"), ANY_DISK)
                }
                _ => break,
            };
            if begun.elapsed() >= limit {
                break;
            }
            if !is_told {
                let seconds = limit.as_secs();
                console::say(&format!(
                    "volumes: {what} is not there yet; waiting up to {seconds} s for it"
                ));
                is_told = true;
            }
            sleep(LOOK).await;
            self.mount_late_volumes().await?;
        }
        Ok(())
    }

    /// Enters the stage that follows from the current findings.
    fn judge(&self) {
        match standing(&self.findings()) {
            Standing::Owned => {}
            Standing::Free => {
                if self.recovers() {
                    console::warn(
                        "corten.recover=maintenance: this node may have an owner, and any client may call it until it \
                         restarts without the parameter",
                    );
                }
                self.node.set_lock(None);
                self.node.set_stage(Stage::Maintenance);
            }
            Standing::Locked(why) => self.lock_node(&why),
        }
    }

    fn findings(&self) -> Findings {
        let state = match &*self.volumes.borrow() {
            _ if durable::is_volume(Path::new(STATE.target)) => State::Mounted,
            Progress::Failed(_) if self.never_made_state() => State::NeverMade,
            Progress::Failed(failure) => State::Broken(failure.to_string()),
            Progress::Awaited | Progress::Settled => State::NoDisk,
        };
        Findings {
            has_config: self.node.config().is_some(),
            unusable: lock(&self.unusable).clone(),
            has_owner: self.has_owner(),
            recover: self.recovers(),
            state,
        }
    }

    fn never_made_state(&self) -> bool {
        let meta = self.node.meta().watch();
        let was_encrypted = meta
            .borrow()
            .contains_key(&corten_meta::tags::WAS_ENCRYPTED);
        !was_encrypted && corten_volumes::is_state_never_made()
    }

    fn has_owner(&self) -> bool {
        meta::owner(&self.node.meta().watch().borrow()).is_some()
    }

    /// Whether there is a disk that carries the node, but not its META: several such disks, or a broken one.
    fn cannot_use_meta(&self) -> bool {
        let has_failed = matches!(*self.volumes.borrow(), Progress::Failed(_));
        has_failed && !self.node.meta().is_open()
    }

    /// Whether an operator at the machine requests recovery.
    pub(super) fn recovers(&self) -> bool {
        self.cmdline.ours(RECOVER) == Some(MAINTENANCE)
    }

    pub(super) fn lock_node(&self, why: &str) {
        let opens = if self.has_owner() {
            "the owner's certificate still opens the API (`cortenctl --insecure` with the owner's client config); \
             without it, start the node with the kernel parameter corten.recover=maintenance"
        } else if self.cannot_use_meta() {
            "until META can be used, no certificate opens the API; the kernel parameter corten.recover=maintenance \
             opens it to every client, and repairs nothing"
        } else {
            "META names no owner, so no certificate opens the API; start the node with the kernel parameter \
             corten.recover=maintenance"
        };
        let text = format!("{why}; {opens}");
        if self.node.locks().borrow().as_ref() != Some(&text) {
            console::warn(&format!("this node is locked: {text}"));
            block_in_place(|| self.keep_lock(&text));
        }
        self.node.set_lock(Some(text));
        self.node.set_stage(Stage::Locked);
    }

    /// Serves the API by the active config.
    pub(super) fn run_by_config(&self) {
        let served_strangers = self.node.stage() == Stage::Maintenance;
        self.node.set_lock(None);
        self.node.set_stage(Stage::Running);
        // apid reloads certificates by itself, but not the kind of callers it serves.
        if served_strangers {
            self.restart_apid();
        }
    }

    /// Retries operations whose failure may be temporary, while the node is locked. Containers do not start meanwhile:
    /// their data on EPHEMERAL may become available.
    ///
    /// # Errors
    /// The volumes' directories cannot be made.
    pub(super) async fn outlast_lock(&self) -> Result<(), Fatal> {
        let mut stages = self.node.stages();
        let mut pause = FIRST_PAUSE;
        while *stages.borrow_and_update() == Stage::Locked {
            tokio::select! {
                changed = stages.changed() => if changed.is_err() {
                    return Ok(());
                },
                () = sleep(pause) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.try_again().await?;
                }
            }
        }
        Ok(())
    }

    async fn try_again(&self) -> Result<(), Fatal> {
        // A STATE mounted now would be that of the next boot.
        if self.node.is_installing() {
            return Ok(());
        }
        lock(&self.unusable).take();
        if durable::is_volume(Path::new(STATE.target)) {
            self.load_config();
        } else {
            self.mount_and_load().await?;
        }
        // The owner may have supplied a config in the meantime.
        if self.node.stage() != Stage::Locked {
            return Ok(());
        }
        match self.node.config() {
            Some(_) => self.run_by_config(),
            // Once the owner is in doubt, the node stays closed to anonymous callers until it restarts.
            None => {
                if let Standing::Locked(why) = standing(&self.findings()) {
                    self.lock_node(&why);
                }
            }
        }
        Ok(())
    }

    /// Ends maintenance mode when a disk that carries the node appears. Runs until machined ends.
    pub(super) async fn follow_late_disks(self: Arc<Machine>) {
        let mut changes = self.uevents.follow("block");
        loop {
            if self.node.stage() == Stage::Maintenance && self.is_diskless() {
                let found = spawn_blocking(corten_volumes::meta_partition).await;
                // Two such disks also end maintenance.
                if !matches!(found, Ok(Ok(None)))
                    && let Err(Fatal(why)) = self.take_late_disk().await
                {
                    console::error(&format!("the disk that carries the node: {why}"));
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether this boot found no disk with the volumes, and no operator at the machine has overridden that.
    fn is_diskless(&self) -> bool {
        let settled = matches!(
            *self.volumes.borrow(),
            Progress::Awaited | Progress::Settled
        );
        settled
            && !durable::is_volume(Path::new(STATE.target))
            && !self.recovers()
            && !self.node.is_installing()
    }

    /// Mounts the volumes of a late disk, and serves by the config on them.
    async fn take_late_disk(&self) -> Result<(), Fatal> {
        self.lock_node("a disk that carries a node appeared");
        self.restart_apid();
        // containerd's files in /var are in memory; the mount of EPHEMERAL would hide them.
        if let Ok(stopped) = self.node.control(CONTAINERD, Control::Stop) {
            let _ = stopped.await;
        }
        self.try_again().await?;
        // A disk that was never used has no owner.
        if self.node.stage() == Stage::Locked {
            self.judge();
            self.restart_apid();
        }
        self.want_containerd();
        let _ = self.node.control(CONTAINERD, Control::Start);
        Ok(())
    }
}
