//! Tracks user volumes: which exist, which do not, and the reasons.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use corten_base::console;
use corten_types::block::DiscoveredVolume;
use corten_types::volume::VolumeStatus;
use corten_volumes::user::{Facts, Kind, Place, Trouble, UserVolume};

use super::attempt::{self, Attempt};
use super::config::mount_spec;
use super::outside::Outside;

/// Pause before the first retry of a volume that is in use or failed.
pub(super) const AGAIN: Duration = Duration::from_secs(15);
/// Longest pause between the retries of a failed volume.
const LONGEST: Duration = Duration::from_mins(5);

/// The state of volumes, by id.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    held: BTreeMap<String, Held>,
    tried: BTreeMap<String, Tried>,
    /// Attempts that take so long that the other volumes no longer wait for them.
    overdue: BTreeMap<String, Attempt>,
}

/// An attached volume.
#[derive(Debug)]
struct Held {
    volume: UserVolume,
    place: Place,
    /// Whether its partition has appeared among the discovered volumes.
    was_told: bool,
    /// The part of it that is lost, if any.
    loss: Option<Loss>,
    /// Reason why it cannot be released, though it should be.
    stays: Option<String>,
    /// Earliest time of the next release after a failed one. A failed release may unmount the volume for a moment, which
    /// changes the mount table: without a pause it would cause the next one.
    next: Option<Instant>,
}

/// The lost part of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Its disk or partition. The loss is permanent: a device that returns is a new device to the kernel.
    Device,
    /// Its mount.
    Mount,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Device => "its disk or partition is gone",
            Loss::Mount => "it was unmounted outside machined",
        })
    }
}

/// A volume whose attach failed. It is retried when its inputs change; a failed one also after a pause, since its cause,
/// such as a program that uses the device, may end unseen.
#[derive(Debug)]
struct Tried {
    volume: UserVolume,
    facts: Facts,
    trouble: Trouble,
    pause: Duration,
    next: Instant,
}

impl Tried {
    fn is_missing(&self) -> bool {
        matches!(self.trouble, Trouble::Missing(_))
    }

    /// Pause after another failure with the same inputs.
    fn longer(&self) -> Duration {
        match self.trouble {
            Trouble::Failed(_) => self.pause.saturating_mul(2).min(LONGEST),
            Trouble::Missing(_) | Trouble::Busy(_) => AGAIN,
        }
    }

    fn is_same(&self, volume: &UserVolume, facts: &Facts) -> bool {
        self.volume == *volume && self.facts == *facts
    }

    /// Whether another attempt with the same inputs is too early.
    fn waits(&self, now: Instant) -> bool {
        match self.trouble {
            Trouble::Missing(_) => true,
            Trouble::Busy(_) => false,
            Trouble::Failed(_) => now < self.next,
        }
    }
}

impl Held {
    fn loss(&self, outside: &impl Outside, facts: &Facts) -> Option<Loss> {
        let is_there = |number| facts.disks.iter().any(|disk| disk.sequence == number);
        let has_disk = self.place.sequence.is_none_or(is_there);
        let has_partition = !self.was_told || facts.on(&self.place.device).is_some();
        if self.loss == Some(Loss::Device) || !has_disk || !has_partition {
            return Some(Loss::Device);
        }
        let is_mounted = outside.is_mounted(&self.volume, &self.place);
        (!is_mounted).then_some(Loss::Mount)
    }

    async fn release(&self, outside: &impl Outside) -> Result<(), String> {
        match self.loss {
            Some(Loss::Device) => outside.abandon(&self.volume, &self.place).await,
            Some(Loss::Mount) | None => outside.release(&self.volume, &self.place).await,
        }
    }

    /// The problem of the volume in human-readable form.
    fn complaint(&self) -> String {
        let loss = self.loss.map(|loss| loss.to_string());
        let parts: Vec<String> = loss.into_iter().chain(self.stays.clone()).collect();
        parts.join("; ")
    }
}

impl Kept {
    /// Whether a retry will be due although no input has changed.
    pub(super) fn is_pending(&self) -> bool {
        let stays = self.held.values().any(|held| held.stays.is_some());
        stays || !self.overdue.is_empty() || !self.tried.values().all(Tried::is_missing)
    }

    /// Makes all releases due: the operator has changed the config.
    pub(super) fn hurry(&mut self) {
        for held in self.held.values_mut() {
            held.next = None;
        }
    }

    /// The attached volumes.
    pub(super) fn held(&self) -> impl Iterator<Item = &UserVolume> {
        self.held.values().map(|held| &held.volume)
    }

    /// Takes in the overdue attempts that have ended since.
    pub(super) async fn settle(&mut self, now: Instant) {
        let over: Vec<Attempt> = self
            .overdue
            .extract_if(.., |_, attempt| attempt.is_over())
            .map(|(_, attempt)| attempt)
            .collect();
        for mut attempt in over {
            if let Some(result) = attempt.result().await {
                self.record(&attempt.volume, &attempt.facts, result, now);
            }
        }
    }

    /// Checks whether attached volumes are still intact.
    pub(super) fn look(&mut self, outside: &impl Outside, facts: &Facts) {
        for (id, held) in &mut self.held {
            held.was_told |= facts.on(&held.place.device).is_some();
            let before = held.loss;
            held.loss = held.loss(outside, facts);
            if held.loss == before {
                continue;
            }
            held.next = None;
            if let Some(loss) = held.loss {
                console::warn(&format!("volume {id}: {loss}"));
            }
        }
    }

    /// Releases volumes that are unwanted or have changed, which makes room for new ones. A damaged volume is released
    /// as well, so that it can be attached again.
    pub(super) async fn release(
        &mut self,
        outside: &impl Outside,
        wanted: &[UserVolume],
        now: Instant,
    ) {
        let mut gone = Vec::new();
        for (id, held) in &mut self.held {
            let is_wanted = wanted.iter().any(|one| one.is_used_like(&held.volume));
            if is_wanted && held.loss.is_none() {
                (held.stays, held.next) = (None, None);
                continue;
            }
            if held.next.is_some_and(|next| now < next) {
                continue;
            }
            match held.release(outside).await {
                Ok(()) => {
                    if !is_wanted {
                        console::say(&format!("volume {id} is released; its data stay"));
                    }
                    gone.push(id.clone());
                }
                Err(why) => {
                    if held.stays.is_none() {
                        console::warn(&format!("volume {id}: {why}; it is tried again"));
                    }
                    held.stays = Some(why);
                    held.next = Some(now + AGAIN);
                }
            }
        }
        for id in gone {
            self.held.remove(&id);
        }
    }

    /// Makes and mounts missing volumes.
    pub(super) async fn attach(
        &mut self,
        outside: &impl Outside,
        wanted: &[UserVolume],
        facts: &Facts,
        now: Instant,
    ) {
        self.tried
            .retain(|id, _| wanted.iter().any(|volume| volume.id == *id));
        for volume in wanted {
            let id = &volume.id;
            let before = self.tried.get(id);
            let same = before.filter(|tried| tried.is_same(volume, facts));
            let waits = same.is_some_and(|tried| tried.waits(now));
            if waits || self.is_taken(volume) {
                continue;
            }
            let mut attempt = Attempt::start(outside, volume, facts);
            let result = attempt.result().await;
            let result = result.unwrap_or_else(|| {
                self.overdue.insert(id.clone(), attempt);
                let why = attempt::overdue();
                console::warn(&format!("volume {id}: {why}"));
                Err(Trouble::Busy(why))
            });
            self.record(volume, facts, result, now);
        }
    }

    /// Records how an attempt ended.
    fn record(
        &mut self,
        volume: &UserVolume,
        facts: &Facts,
        result: Result<Place, Trouble>,
        now: Instant,
    ) {
        let id = &volume.id;
        let trouble = match result {
            Ok(place) => {
                console::say(&there(volume, &place));
                self.tried.remove(id);
                let held = Held {
                    volume: volume.clone(),
                    was_told: facts.on(&place.device).is_some(),
                    place,
                    loss: None,
                    stays: None,
                    next: None,
                };
                self.held.insert(id.clone(), held);
                return;
            }
            Err(trouble) => trouble,
        };
        let before = self.tried.get(id);
        let same = before.filter(|tried| tried.is_same(volume, facts));
        let is_news = before.is_none_or(|tried| tried.trouble != trouble);
        let pause = same.map_or(AGAIN, Tried::longer);
        if let Trouble::Failed(why) = &trouble
            && is_news
        {
            console::warn(&format!("volume {id}: {why}"));
        }
        let tried = Tried {
            volume: volume.clone(),
            facts: facts.clone(),
            trouble,
            pause,
            next: now + pause,
        };
        self.tried.insert(id.clone(), tried);
    }

    /// Whether an attempt for this volume goes on, or another volume occupies its mount point or may still do so.
    fn is_taken(&self, volume: &UserVolume) -> bool {
        let target = |volume: &UserVolume| volume.mounting.as_ref().map(|one| one.target.clone());
        let place = target(volume);
        let held = self.held.values().map(|held| &held.volume);
        let mut others = held.chain(self.overdue.values().map(|attempt| &attempt.volume));
        others.any(|other| other.id == volume.id || place.is_some() && target(other) == place)
    }

    /// Status of a volume.
    pub(super) fn status(&self, volume: &UserVolume, facts: &Facts) -> VolumeStatus {
        let mut status = VolumeStatus {
            phase: "waiting",
            kind: match volume.kind {
                Kind::Directory => "directory",
                Kind::Disk(_) => "disk",
                Kind::Partition(_) | Kind::Existing(_) => "partition",
            },
            mount_spec: volume.mounting.as_ref().map(mount_spec),
            ..VolumeStatus::default()
        };
        if let Some(held) = self.held.get(&volume.id) {
            status.phase = "ready";
            if held.loss.is_some() {
                (status.phase, status.pre_fail_phase) = ("failed", "ready");
            }
            status.error_message = held.complaint();
            // A device that now has its name is another device.
            if held.loss == Some(Loss::Device) {
                return status;
            }
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
            // The file system made by the node is known, even before udevd re-reads the device.
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
                let text = "waiting for EPHEMERAL, udevd, and the release of the volume mounted at its path";
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
#[path = "kept_tests.rs"]
mod tests;
