//! The volumes in the node's life.

use std::path::Path;

use corten_config::Document;
use corten_sys::host;

use super::{Fatal, Machine};
use crate::boot::system;
use crate::console;
use crate::durable;
use crate::last_stop::{self, Evidence};
use crate::node::{Node, Stage};
use crate::volumes::{self, Outcome, Progress, STATE};

impl Machine {
    /// A node whose disk is broken still boots, to say so.
    pub(super) async fn mount_volumes(&self) {
        self.read_meta();
        match volumes::bring_up(&self.supervisor).await {
            // Its driver may come with udevd.
            Ok(Outcome::NoDisk) => {}
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

    /// Mounts what was not there before udevd had loaded the drivers, and reads the config it holds.
    pub(super) async fn mount_late_volumes(&self) -> Result<(), Fatal> {
        if !self.awaits_disk() {
            return Ok(());
        }
        self.supervisor.up("udevd").await;
        self.mount_volumes().await;
        if volumes::are_mounted() {
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

    /// META has no file system that could be damaged, so it is read even when the volumes are not there.
    fn read_meta(&self) {
        // Two disks: the volumes say so.
        let Ok(Some(device)) = volumes::meta_partition() else {
            return;
        };
        let complaint = match self.node.meta().open(&device) {
            Ok(true) => return,
            Ok(false) => "neither copy of its values is whole; it starts empty".to_owned(),
            Err(error) => format!("cannot read {}: {error}", device.display()),
        };
        console::warn(&format!("META: {complaint}"));
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
                self.node.set_last_stop(last);
            }
            Err(error) => console::warn(&format!("cannot keep why this boot ends: {error}")),
        }
    }
}
