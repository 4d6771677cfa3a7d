//! The volumes in the node's life.

use super::{Fatal, Machine, api::keeps_old};
use crate::boot::system;
use crate::console;
use crate::node::{Node, Stage};
use crate::volumes::{self, Outcome};

impl Machine {
    /// A node whose disk is broken still boots, to say so.
    pub(super) async fn mount_volumes(&self) {
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
            }
            Err(failure) => console::warn(&format!(
                "volumes: {failure}; until this is mended, config and data are lost with every restart"
            )),
        }
    }

    /// Mounts what was not there before udevd had loaded the drivers, and goes on from what it holds.
    pub(super) async fn mount_late_volumes(&self) -> Result<(), Fatal> {
        if volumes::are_mounted() {
            return Ok(());
        }
        self.mount_volumes().await;
        if !volumes::are_mounted() {
            console::say("volumes: none; config and data last until the node restarts");
            return Ok(());
        }
        system::make_directories().map_err(Fatal)?;
        if self.node.config().is_some() {
            return Ok(());
        }
        self.load_config();
        if self.node.config().is_some() {
            match self.certify() {
                Ok(()) => {
                    self.restart_apid();
                    self.node.set_stage(Stage::Running);
                }
                Err(error) => keeps_old(&error),
            }
        }
        Ok(())
    }
}
