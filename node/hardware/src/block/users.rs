//! Attaches user volumes once the config wants them and their disks are present, and releases them when the config
//! drops them.

use std::sync::Arc;
use std::time::Instant;

use corten_base::mount_table::Mount;
use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::block::{DiscoveredVolume, Disk, SystemDisk};
use corten_types::runtime::Service;
use corten_types::volume::VolumeStatus;
use corten_volumes::EPHEMERAL;
use corten_volumes::user::{Facts, UserVolume, wanted};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use super::config::label;
use super::kept::{AGAIN, Kept};
use super::outside::Outside;
use crate::devices::UDEVD;

#[derive(Debug, Clone)]
pub(crate) struct UserVolumes<O> {
    pub(crate) config: watch::Receiver<Option<Document>>,
    /// Every change triggers a check of the attached volumes.
    pub(crate) mounts: watch::Receiver<Vec<Mount>>,
    pub(crate) outside: O,
    /// Shared by all runs of the controller, so that the state survives a restart.
    pub(crate) kept: Arc<Mutex<Kept>>,
}

impl<O: Outside> Controller for UserVolumes<O> {
    fn name(&self) -> &'static str {
        "block.UserVolumeController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Disk>(Dependency::Weak),
            Input::of::<DiscoveredVolume>(Dependency::Weak),
            Input::of::<SystemDisk>(Dependency::Weak),
            Input::of::<VolumeStatus>(Dependency::Weak).with_id(EPHEMERAL.name),
            Input::of::<Service>(Dependency::Weak).with_id(UDEVD),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<VolumeStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut kept = self.kept.clone().lock_owned().await;
        // The volumes whose partitions are recorded.
        let mut known: Option<Vec<UserVolume>> = None;
        loop {
            let pending = kept.is_pending();
            let is_new = tokio::select! {
                () = context.event() => false,
                Ok(()) = self.config.changed() => true,
                Ok(()) = self.mounts.changed() => false,
                () = sleep(AGAIN), if pending => false,
            };
            if is_new || self.config.has_changed().unwrap_or_default() {
                kept.hurry();
            }
            let now = Instant::now();
            let config = self.config.borrow_and_update().clone();
            let wanted = config.as_ref().map(wanted).unwrap_or_default();
            let facts = facts(context)?;
            kept.settle(now).await;
            kept.look(&self.outside, &facts);
            kept.release(&self.outside, &wanted, now).await;
            if is_time(context)? {
                if config.is_some() && known.as_ref() != Some(&wanted) {
                    self.outside.forget_others(&wanted).await;
                    known = Some(wanted.clone());
                }
                kept.attach(&self.outside, &wanted, &facts, now).await;
            }
            context.start_outputs();
            let is_wanted = |held: &UserVolume| wanted.iter().any(|volume| volume.id == held.id);
            let leaving = kept.held().filter(|held| !is_wanted(held));
            for volume in wanted.iter().chain(leaving) {
                let status = kept.status(volume, &facts);
                context.put(Draft::new(&volume.id, status).label(label(volume), ""))?;
            }
            context.remove_others::<VolumeStatus>()?;
        }
    }
}

/// The disks and volumes to choose from.
fn facts(context: &Context) -> Result<Facts, Failure> {
    let system_disk = context.get::<SystemDisk>(SystemDisk::ID)?;
    let disks = context.list::<Disk>()?;
    let volumes = context.list::<DiscoveredVolume>()?;
    Ok(Facts {
        disks: disks.iter().map(|disk| (**disk).clone()).collect(),
        volumes: volumes.iter().map(|volume| (**volume).clone()).collect(),
        system_disk: system_disk.map_or_else(String::new, |disk| disk.dev_path.clone()),
    })
}

/// Whether EPHEMERAL is mounted and udevd has reported every device. Earlier, a selector could not recognize the system
/// disk.
fn is_time(context: &Context) -> Result<bool, Failure> {
    let ephemeral = context.get::<VolumeStatus>(EPHEMERAL.name)?;
    let udevd = context.get::<Service>(UDEVD)?;
    let system_disk = context.get::<SystemDisk>(SystemDisk::ID)?;
    let is_mounted = ephemeral.is_some_and(|volume| volume.phase == "ready");
    let is_up = udevd.is_some_and(|service| service.running && service.healthy);
    Ok(is_mounted && is_up && system_disk.is_some())
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
