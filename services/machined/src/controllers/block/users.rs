//! The volumes of users: made and mounted when the config wants them and their disks are there, unmounted when it
//! no longer does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use super::config::{label, mount_spec};
use crate::console;
use crate::controllers::devices::UDEVD;
use crate::resources::block::{DiscoveredVolume, Disk, SystemDisk};
use crate::resources::runtime::Service;
use crate::resources::volume::VolumeStatus;
use crate::volumes::EPHEMERAL;
use crate::volumes::user::{Facts, Kind, Place, Trouble, UserVolume, World, wanted};

/// Between attempts at what is in use.
const AGAIN: Duration = Duration::from_secs(15);

/// Who does what is to be done; a test's does nothing.
pub(in crate::controllers) trait Outside:
    Clone + Send + Sync + 'static
{
    /// [`World::attach`].
    fn attach(
        &self,
        volume: &UserVolume,
        facts: &Facts,
    ) -> impl Future<Output = Result<Place, Trouble>> + Send;
    /// [`World::release`].
    fn release(
        &self,
        volume: &UserVolume,
        place: &Place,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// [`World::forget_others`].
    fn forget_others(&self, wanted: &[UserVolume]) -> impl Future<Output = ()> + Send;
}

impl Outside for World {
    async fn attach(&self, volume: &UserVolume, facts: &Facts) -> Result<Place, Trouble> {
        World::attach(self, volume, facts).await
    }

    async fn release(&self, volume: &UserVolume, place: &Place) -> Result<(), String> {
        World::release(self, volume, place).await
    }

    async fn forget_others(&self, wanted: &[UserVolume]) {
        World::forget_others(self, wanted).await;
    }
}

#[derive(Debug, Clone)]
pub(in crate::controllers) struct UserVolumes<O> {
    pub(in crate::controllers) config: watch::Receiver<Option<Document>>,
    pub(in crate::controllers) outside: O,
    /// Shared by every run, so that it is known after a restart, too.
    pub(in crate::controllers) kept: Arc<Mutex<Kept>>,
}

/// What became of the volumes, by id.
#[derive(Debug, Default)]
pub(in crate::controllers) struct Kept {
    held: BTreeMap<String, Held>,
    tried: BTreeMap<String, Tried>,
}

/// A volume that is there.
#[derive(Debug)]
struct Held {
    volume: UserVolume,
    place: Place,
    /// Why it cannot go, though it should.
    stays: Option<String>,
}

/// A volume that is not there, and is not tried again until something about it is different.
#[derive(Debug)]
struct Tried {
    volume: UserVolume,
    facts: Facts,
    trouble: Trouble,
}

impl Tried {
    fn is_busy(&self) -> bool {
        matches!(self.trouble, Trouble::Busy(_))
    }
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
        // Whose partitions are kept in mind, beside no others.
        let mut known: Option<Vec<UserVolume>> = None;
        loop {
            let pending = kept.is_pending();
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(AGAIN), if pending => {}
            }
            let config = self.config.borrow_and_update().clone();
            let wanted = config.as_ref().map(wanted).unwrap_or_default();
            let facts = facts(context)?;
            kept.release(&self.outside, &wanted).await;
            if is_time(context)? {
                if config.is_some() && known.as_ref() != Some(&wanted) {
                    self.outside.forget_others(&wanted).await;
                    known = Some(wanted.clone());
                }
                kept.attach(&self.outside, &wanted, &facts).await;
            }
            context.start_outputs();
            let is_wanted = |id: &String| wanted.iter().any(|volume| volume.id == *id);
            let leaving = kept.held.iter().filter(|(id, _)| !is_wanted(id));
            for volume in wanted.iter().chain(leaving.map(|(_, held)| &held.volume)) {
                let status = kept.status(volume, &facts);
                context.put(Draft::new(&volume.id, status).label(label(volume), ""))?;
            }
            context.remove_others::<VolumeStatus>()?;
        }
    }
}

/// What there is to choose from.
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

/// EPHEMERAL is mounted, and udevd has told of every device. Before, a selector would not know the node's disk.
fn is_time(context: &Context) -> Result<bool, Failure> {
    let ephemeral = context.get::<VolumeStatus>(EPHEMERAL.name)?;
    let udevd = context.get::<Service>(UDEVD)?;
    let system_disk = context.get::<SystemDisk>(SystemDisk::ID)?;
    let is_mounted = ephemeral.is_some_and(|volume| volume.phase == "ready");
    let is_up = udevd.is_some_and(|service| service.running && service.healthy);
    Ok(is_mounted && is_up && system_disk.is_some())
}

impl Kept {
    /// Whether there is something to be tried again though nothing is different.
    fn is_pending(&self) -> bool {
        let stays = self.held.values().any(|held| held.stays.is_some());
        stays || self.tried.values().any(Tried::is_busy)
    }

    /// Lets go what is no longer wanted, or wanted otherwise: that makes room for what comes.
    async fn release(&mut self, outside: &impl Outside, wanted: &[UserVolume]) {
        let mut gone = Vec::new();
        for (id, held) in &mut self.held {
            if wanted.iter().any(|one| one.is_used_like(&held.volume)) {
                held.stays = None;
                continue;
            }
            match outside.release(&held.volume, &held.place).await {
                Ok(()) => gone.push(id.clone()),
                Err(why) => {
                    if held.stays.is_none() {
                        console::warn(&format!("volume {id}: {why}; it is tried again"));
                    }
                    held.stays = Some(why);
                }
            }
        }
        for id in gone {
            console::say(&format!("volume {id} is released; what is in it stays"));
            self.held.remove(&id);
        }
    }

    /// Makes and mounts what is not there yet.
    async fn attach(&mut self, outside: &impl Outside, wanted: &[UserVolume], facts: &Facts) {
        self.tried
            .retain(|id, _| wanted.iter().any(|volume| volume.id == *id));
        for volume in wanted {
            let id = &volume.id;
            let before = self.tried.get(id);
            let is_same = before.is_some_and(|tried| {
                tried.volume == *volume && tried.facts == *facts && !tried.is_busy()
            });
            if is_same || self.held.contains_key(id) || self.is_taken(volume) {
                continue;
            }
            match outside.attach(volume, facts).await {
                Ok(place) => {
                    console::say(&there(volume, &place));
                    self.tried.remove(id);
                    let held = Held {
                        volume: volume.clone(),
                        place,
                        stays: None,
                    };
                    self.held.insert(id.clone(), held);
                }
                Err(trouble) => {
                    let is_news = before.is_none_or(|tried| tried.trouble != trouble);
                    if let Trouble::Failed(why) = &trouble
                        && is_news
                    {
                        console::warn(&format!("volume {id}: {why}"));
                    }
                    let tried = Tried {
                        volume: volume.clone(),
                        facts: facts.clone(),
                        trouble,
                    };
                    self.tried.insert(id.clone(), tried);
                }
            }
        }
    }

    /// Another volume, which cannot go yet, is mounted where this one shall be.
    fn is_taken(&self, volume: &UserVolume) -> bool {
        let target = |volume: &UserVolume| volume.mounting.as_ref().map(|one| one.target.clone());
        let place = target(volume);
        let is_there = |held: &Held| place.is_some() && target(&held.volume) == place;
        self.held.values().any(is_there)
    }

    fn status(&self, volume: &UserVolume, facts: &Facts) -> VolumeStatus {
        let mut status = VolumeStatus {
            phase: "waiting",
            kind: match volume.kind {
                Kind::Directory => "directory",
                Kind::Partition(_) | Kind::Existing(_) => "partition",
            },
            mount_spec: volume.mounting.as_ref().map(mount_spec),
            ..VolumeStatus::default()
        };
        if let Some(held) = self.held.get(&volume.id) {
            status.phase = "ready";
            status.error_message = held.stays.clone().unwrap_or_default();
            status.location.clone_from(&held.place.device);
            status.mount_location.clone_from(&held.place.opened);
            if let Some(found) = facts.on(&held.place.device) {
                describe(&mut status, found);
            }
            let is_encrypted = held.place.device != held.place.opened;
            if is_encrypted {
                status.encryption_provider = "luks2";
            }
            let made = volume.formatted();
            // What the node made is known, also before udevd has looked again.
            if is_encrypted || !made.is_empty() {
                made.clone_into(&mut status.filesystem);
            }
            return status;
        }
        match self.tried.get(&volume.id).map(|tried| &tried.trouble) {
            Some(Trouble::Missing(why)) => {
                status.phase = "missing";
                status.error_message.clone_from(why);
            }
            Some(Trouble::Busy(why)) => status.error_message.clone_from(why),
            Some(Trouble::Failed(why)) => {
                status.phase = "failed";
                status.pre_fail_phase = "waiting";
                status.error_message.clone_from(why);
            }
            None => {
                let text = "EPHEMERAL, udevd, and what is still mounted in its place come first";
                text.clone_into(&mut status.error_message);
            }
        }
        status
    }
}

fn describe(status: &mut VolumeStatus, found: &DiscoveredVolume) {
    status.partition_index = found.partition_index;
    if !found.parent.is_empty() {
        status.parent_location = format!("/dev/{}", found.parent);
    }
    status.uuid.clone_from(&found.uuid);
    status.partition_uuid.clone_from(&found.partition_uuid);
    status.size = found.size;
    status.pretty_size.clone_from(&found.pretty_size);
    status.filesystem.clone_from(&found.name);
    if found.kind == "disk" {
        status.kind = "disk";
    }
}

fn there(volume: &UserVolume, place: &Place) -> String {
    let id = &volume.id;
    match (&volume.kind, &volume.mounting) {
        (Kind::Directory, Some(mounting)) => format!("volume {id}: directory {}", mounting.target),
        (_, Some(mounting)) => {
            format!(
                "volume {id}: {} mounted on {}",
                place.opened, mounting.target
            )
        }
        (_, None) => format!("volume {id}: {}", place.opened),
    }
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
