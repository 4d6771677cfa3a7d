//! Whose the node is, in the node's life: found out before anybody is answered, and again while it is in doubt.
//!
//! Owns the stages maintenance and locked. Never answers a stranger before the volumes are looked at: the decision is
//! `standing.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_base::durable;
use corten_services::CONTAINERD;
use corten_volumes::{Progress, STATE, StartDisk};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

use super::standing::{Findings, Standing, State, standing};
use super::{Fatal, Machine, lock};
use crate::meta;
use crate::node::{Control, Node as _, Stage};

/// For the disk that the boot loader says the node was started from: a USB stick that was pulled out and put in again,
/// or a controller that starts its disks one by one.
const START_DISK: Duration = Duration::from_secs(90);
/// For any disk, where nothing names the one that the node was started from: BIOS, a CD, the network. Drivers look for
/// USB disks about so long after udevd is done with the bus.
const ANY_DISK: Duration = Duration::from_secs(10);
/// Between two looks for it.
const LOOK: Duration = Duration::from_secs(1);
/// Between two attempts of a locked node: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The kernel's parameter that opens a locked node, and its one value.
const RECOVER: &str = "recover";
const MAINTENANCE: &str = "maintenance";

impl Machine {
    /// Finds out whose a node without a config is: the volumes first, then the sources of a config, and only then
    /// anybody.
    ///
    /// # Errors
    /// Those of the volumes' directories.
    pub(super) async fn find_owner(self: &Arc<Machine>) -> Result<(), Fatal> {
        self.mount_late_volumes().await?;
        self.await_start_disk().await?;
        if self.node.config().is_none() {
            self.acquire_config().await?;
        }
        self.judge();
        Ok(())
    }

    /// Waits for the disk that the boot loader says the node was started from, or for any when it names none.
    async fn await_start_disk(&self) -> Result<(), Fatal> {
        let begun = Instant::now();
        let mut is_told = false;
        while self.awaits_disk() {
            // A disk that does not answer keeps a thread, not the boot.
            let look = spawn_blocking(corten_volumes::start_disk);
            let found = timeout_at(begun + START_DISK, look).await;
            let (what, limit) = match found {
                Ok(Ok(StartDisk::Missing)) => {
                    ("the disk that the node was started from", START_DISK)
                }
                Ok(Ok(StartDisk::Unnamed)) => ("a disk with a node", ANY_DISK),
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

    /// Takes the stage that fits what is known by now.
    fn judge(&self) {
        match standing(&self.findings()) {
            Standing::Owned => {}
            Standing::Free => {
                if self.recovers() {
                    console::warn(
                        "corten.recover=maintenance: this node may have an owner, and anybody may call it until it \
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

    /// Whether somebody at the machine wants it to be opened.
    fn recovers(&self) -> bool {
        self.cmdline.ours(RECOVER) == Some(MAINTENANCE)
    }

    pub(super) fn lock_node(&self, why: &str) {
        let by_certificate = if self.has_owner() {
            "the owner's certificate opens the API still (`cortenctl --insecure` with the owner's client config); without \
             it, "
        } else {
            "META names no owner, so that no certificate opens the API; "
        };
        let text = format!(
            "{why}; {by_certificate}start the node with the kernel parameter corten.recover=maintenance"
        );
        if self.node.locks().borrow().as_ref() != Some(&text) {
            console::warn(&format!("this node is locked: {text}"));
            block_in_place(|| self.keep_lock(&text));
        }
        self.node.set_lock(Some(text));
        self.node.set_stage(Stage::Locked);
    }

    /// Serves the API by the config that is active by now.
    pub(super) fn run_by_config(&self) {
        let served_strangers = self.node.stage() == Stage::Maintenance;
        self.node.set_lock(None);
        self.node.set_stage(Stage::Running);
        // It reads new certificates by itself, but not whom to serve.
        if served_strangers {
            self.restart_apid();
        }
    }

    /// Tries again what may pass, as long as the node is locked. Containers are not started meanwhile: what they keep
    /// on EPHEMERAL may come back with it.
    ///
    /// # Errors
    /// Those of the volumes' directories.
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
        // What is mounted then is the STATE of the next boot.
        if self.node.is_installing() {
            return Ok(());
        }
        lock(&self.unusable).take();
        if durable::is_volume(Path::new(STATE.target)) {
            self.load_config();
        } else {
            self.mount_and_load().await?;
        }
        // Meanwhile the owner may have brought one.
        if self.node.stage() != Stage::Locked {
            return Ok(());
        }
        match self.node.config() {
            Some(_) => self.run_by_config(),
            // Once in doubt, the node is not opened to anybody before it starts again.
            None => {
                if let Standing::Locked(why) = standing(&self.findings()) {
                    self.lock_node(&why);
                }
            }
        }
        Ok(())
    }

    /// Ends maintenance when a disk that carries the node appears, for ever.
    pub(super) async fn follow_late_disks(self: Arc<Machine>) {
        let mut changes = self.uevents.follow("block");
        loop {
            if self.node.stage() == Stage::Maintenance && self.is_diskless() {
                let found = spawn_blocking(corten_volumes::meta_partition).await;
                // Two of them are a reason to ask nobody, too.
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

    /// No disk with the volumes was found in this boot, and nobody at the machine said that this is no matter.
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

    /// Mounts the volumes of a disk that came late, and serves by the config they hold.
    async fn take_late_disk(&self) -> Result<(), Fatal> {
        self.lock_node("a disk that carries a node appeared");
        self.restart_apid();
        // What it wrote to /var lies in memory, and would lie under EPHEMERAL.
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
