//! Changes disks for user volumes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use corten_base::console;
use corten_base::durable;
use corten_config::kinds::Encryption;
use corten_supervisor::supervisor::Supervisor;
use tokio::task::{block_in_place, spawn_blocking};
use uuid::Uuid;

use super::choose::known_as;
use super::held::{Held, failed, have, named};
use super::known::{self, Seen};
use super::look::look;
use super::mounts::Target;
use super::opened::OpenedVolumes;
use super::partition::{Change, Plan, Wish, ids};
use super::{
    Facts, Kind, Partition, Place, Purpose, Signature, Trouble, UserVolume, WholeDisk, mounts,
    swap, whole_disk,
};
use crate::attach::{Site, attach, content, encrypt_by, grow};
use crate::disk::{Content, Disk};
use crate::encryption::Decrypted;
use crate::judge::judge;
use crate::table::Marks;
use crate::zeros::is_zero;
use crate::{STATE, TYPE_LINUX, TYPE_SWAP, Volume, WIPED, encryption, made, wipe};

/// Permitted content of a volume's partition, by udevd's names.
const OURS: [&str; 4] = ["", "xfs", "swap", "luks"];
/// Permitted content of a disk, by udevd's names: members of an array may have a table as well.
const TABLES: [&str; 2] = ["", "gpt"];

/// Access to this machine.
#[derive(Debug, Clone)]
pub struct World {
    /// Runs the programs that make file systems; without it no file system can be made.
    pub supervisor: Option<Supervisor>,
    /// The keys that opened encrypted volumes, and the attached volumes that are not encrypted.
    pub opened: OpenedVolumes,
}

impl World {
    /// Makes the missing parts of a volume and mounts it.
    ///
    /// # Errors
    /// The reason why the volume is unavailable; nothing of it stays mounted or open.
    pub async fn attach(&self, volume: &UserVolume, facts: &Facts) -> Result<Place, Trouble> {
        let done = match &volume.kind {
            Kind::Directory => {
                let target = volume.mounting.as_ref().map(|one| &one.target);
                let made = target.map_or(Ok(()), |target| Target::make(target).map(drop));
                made.map(|()| Place::default())
            }
            Kind::Existing(selector) => {
                let found = facts.volume_for(selector)?;
                let device = &found.dev_path;
                let disk = facts.disk_of(found).and_then(|disk| facts.disk(disk));
                let mounted = block_in_place(|| {
                    // A mount writes to the disk as well, so the disk is checked and held open.
                    let held = disk.as_ref().map(Disk::open).transpose();
                    let _held = held.map_err(|error| error.to_string())?;
                    mounts::mount_existing(volume, device, &found.name)
                });
                mounted.map(|()| Place {
                    device: device.clone(),
                    opened: device.clone(),
                    sequence: disk.map(|disk| disk.sequence),
                })
            }
            Kind::Partition(partition) => {
                // The disk is held until the volume is mounted.
                let found = self.partition(volume, partition, facts).await?;
                let give_up = || found.give_up();
                let site = Site {
                    device: &found.device,
                    marks: block_in_place(|| found.marks_of(volume)),
                    give_up: &give_up,
                };
                let opened = self.open(volume, &site, facts).await;
                if opened.is_ok() {
                    block_in_place(|| found.remember(volume));
                }
                opened.map(|opened| found.held.place(&found.device, opened))
            }
            Kind::Disk(disk) => {
                let held = self.whole_disk(volume, disk, facts).await?;
                let device = held.disk.device();
                let give_up = || whole_disk::give_up(&held.disk, &disk.label);
                let site = Site {
                    device: &device,
                    marks: block_in_place(|| used(&volume.key(), &held)),
                    give_up: &give_up,
                };
                let opened = self.open(volume, &site, facts).await;
                if opened.is_ok() {
                    block_in_place(|| whole_disk::remember(&volume.key(), &held));
                }
                opened.map(|opened| held.place(&device, opened))
            }
        };
        match done {
            Ok(place) => {
                if volume.is_made() && place.is_clear() {
                    self.opened.remember_clear(volume);
                }
                Ok(place)
            }
            Err(why) => {
                let id = volume.id.clone();
                let _ = spawn_blocking(move || encryption::close(&id)).await;
                Err(Trouble::Failed(why))
            }
        }
    }

    /// Unmounts a volume; its content stays.
    ///
    /// # Errors
    /// The volume is in use.
    pub async fn release(&self, volume: &UserVolume, place: &Place) -> Result<(), String> {
        let (gone, place) = (volume.clone(), place.clone());
        spawn_blocking(move || mounts::release(&gone, &place))
            .await
            .unwrap_or_else(|_| Err("unmounting it failed".to_owned()))?;
        self.opened.forget_clear(volume);
        Ok(())
    }

    /// Detaches a volume whose disk is gone, even if it is in use.
    ///
    /// # Errors
    /// A program still uses it; the volume cannot return until that program ends.
    pub async fn abandon(&self, volume: &UserVolume, place: &Place) -> Result<(), String> {
        let (gone, place) = (volume.clone(), place.clone());
        spawn_blocking(move || mounts::abandon(&gone, &place))
            .await
            .unwrap_or_else(|_| Err("unmounting it failed".to_owned()))?;
        self.opened.forget_clear(volume);
        Ok(())
    }

    /// Whether a volume that was mounted still is; true for a volume without a mount.
    #[must_use]
    pub fn is_mounted(&self, volume: &UserVolume, place: &Place) -> bool {
        mounts::is_mounted(volume, place)
    }

    /// Forgets the partitions, disks and keys of all volumes but these.
    pub async fn forget_others(&self, wanted: &[UserVolume]) {
        self.opened.forget_others(wanted);
        let wanted = wanted.to_vec();
        let forget = move || known::forget_others(Path::new(STATE.target), &wanted);
        let _ = spawn_blocking(forget).await;
    }

    async fn partition(
        &self,
        volume: &UserVolume,
        partition: &Partition,
        facts: &Facts,
    ) -> Result<FoundPartition, Trouble> {
        let (id, wanted, facts) = (volume.id.clone(), partition.clone(), facts.clone());
        let label = id.clone();
        let seen = look(&facts, move |mut disk| ids(&mut disk, &label)).await;
        spawn_blocking(move || find_or_make(&id, &wanted, &facts, &seen))
            .await
            .unwrap_or_else(|_| Err(Trouble::Failed("its disk cannot be read".to_owned())))
    }

    async fn whole_disk(
        &self,
        volume: &UserVolume,
        disk: &WholeDisk,
        facts: &Facts,
    ) -> Result<Held, Trouble> {
        let (volume, wanted, facts) = (volume.clone(), disk.clone(), facts.clone());
        let own = volume.clone();
        let seen = look(&facts, move |disk| whole_disk::ids(&own, &disk)).await;
        spawn_blocking(move || whole_disk::find_or_take(&volume, &wanted, &facts, &seen))
            .await
            .unwrap_or_else(|_| Err(Trouble::Failed("its disk cannot be read".to_owned())))
    }

    /// Decrypts, formats and mounts; returns the device that is mounted or would be.
    async fn open(
        &self,
        volume: &UserVolume,
        site: &Site<'_>,
        facts: &Facts,
    ) -> Result<String, String> {
        let (encryption, device) = (volume.encryption(), site.device);
        let Some(made) = volume.volume() else {
            let opened = match encryption {
                Some(wanted) => {
                    let opened = open_raw(&volume.id, site, wanted).await?;
                    self.opened.remember(&volume.id, opened.by);
                    opened.device.display().to_string()
                }
                None => {
                    check_raw(site)?;
                    device.display().to_string()
                }
            };
            if mounts::is_swap(volume) {
                block_in_place(|| swap::start(Path::new(&opened)))?;
            }
            return Ok(opened);
        };
        let found = facts.on(&device.display().to_string());
        if let Some(other) = found.filter(|found| !OURS.contains(&found.name.as_str())) {
            return Err(format!(
                "{} contains {}; wipe it to create the volume again",
                other.dev_path, other.name
            ));
        }
        let supervisor = self
            .supervisor
            .as_ref()
            .ok_or("no supervisor runs that could create file systems")?;
        let target = Target::make(made.target)?;
        let there = Volume {
            target: &target.path(),
            ..made
        };
        let mut by = None;
        let attached = attach(supervisor, &there, site, encryption, &mut by).await;
        let is_encrypted = by.is_some();
        // Also for a volume that could not be mounted.
        if let Some(by) = by {
            self.opened.remember(&volume.id, by);
        }
        attached?;
        // A file system that fills its device is left alone.
        if volume.grows()
            && let Err(why) = grow(Path::new(made.target))
        {
            console::warn(&format!("{} does not grow: {why}", volume.id));
        }
        Ok(if is_encrypted {
            encryption::mapped(&volume.id).display().to_string()
        } else {
            device.display().to_string()
        })
    }
}

/// The partition of a volume.
struct FoundPartition {
    /// The disk of the partition.
    held: Held,
    device: PathBuf,
    number: u32,
    id: Uuid,
    /// The marks in the partition table.
    marks: Marks,
}

impl FoundPartition {
    /// The marks in the partition table, with the record in STATE.
    fn marks_of(&self, volume: &UserVolume) -> Marks {
        let state = Path::new(STATE.target);
        Marks {
            is_made: self.marks.is_made && volume.lasts(),
            is_encrypted: self.marks.is_encrypted || known::was_encrypted(state, &volume.key()),
        }
    }

    /// Marks the volume as usable and, if so, as encrypted.
    fn remember(&self, volume: &UserVolume) {
        let is_encrypted = volume.encryption().is_some();
        if volume.lasts() || is_encrypted {
            made::remember(&volume.id, &self.held.disk, self.number, is_encrypted);
        }
        let state = Path::new(STATE.target);
        if is_encrypted && durable::is_volume(state) {
            known::remember_encrypted(state, &volume.key(), self.id);
        }
    }

    fn give_up(&self) -> io::Result<()> {
        let disk = &self.held.disk;
        made::forget(disk, |_, extent| extent.number == self.number)?;
        wipe::partition(disk.sequence, &self.device, false, &|| ())
    }
}

/// Finds the partition of a volume on the disks that were read, or makes it on the first suitable disk.
fn find_or_make(
    id: &str,
    wanted: &Partition,
    facts: &Facts,
    seen: &[Seen],
) -> Result<FoundPartition, Trouble> {
    let state = Path::new(STATE.target);
    let wish = Wish {
        label: id,
        id: known::id(state, id),
        kind: match wanted.purpose {
            Purpose::FileSystem | Purpose::Raw => TYPE_LINUX,
            Purpose::Swap => TYPE_SWAP,
        },
        least: wanted.least,
        most: wanted.most,
        grow: wanted.grow,
    };
    let carry_out = |held: Held, plan: &Plan| {
        let device = held.carry_out(plan)?;
        // A record in memory would say no more than the disks do.
        if durable::is_volume(state) {
            known::remember(state, id, plan.id);
        }
        Ok(FoundPartition {
            held,
            device,
            number: plan.extent.number,
            id: plan.id,
            marks: plan.marks,
        })
    };
    if let Some(name) = known::disk_of(id, wish.id, seen)? {
        let disk = named(name, facts);
        let alone = have(&disk)?;
        let found = Held::plan(disk, alone, &wish).and_then(|(held, plan)| {
            if plan.change == Change::New {
                return Err(io::Error::other("its table has just changed"));
            }
            carry_out(held, &plan)
        });
        return found.map_err(|error| failed(name, error));
    }
    let mut why = Vec::new();
    for candidate in facts.disks_for(&wanted.selector)? {
        let disk = known_as(candidate);
        let name = disk.name.clone();
        let holds = facts
            .on(&candidate.dev_path)
            .map_or("", |found| &found.name);
        if !TABLES.contains(&holds) {
            let what = "wipe it to use it";
            why.push(format!("{name}: it is not empty ({holds}); {what}"));
            continue;
        }
        let alone = have(&disk)?;
        match Held::plan(disk, alone, &wish) {
            // No fallback to another disk after this point: that would make a second volume of this name.
            Ok((held, plan)) => {
                return carry_out(held, &plan).map_err(|error| failed(&name, error));
            }
            Err(error) => why.push(format!("{name}: {error}")),
        }
    }
    Err(Trouble::Failed(format!(
        "no disk is suitable: {}",
        why.join("; ")
    )))
}

/// The marks of a whole-disk volume. STATE has the id on the disk if the volume was usable before.
fn used(key: &str, held: &Held) -> Marks {
    let state = Path::new(STATE.target);
    let known = known::id(state, key);
    let found = Signature::of(&held.open).ok().flatten();
    Marks {
        is_made: found.is_some_and(|found| known == Some(found.id)),
        is_encrypted: known::was_encrypted(state, key),
    }
}

/// Opens an encrypted partition without a file system.
async fn open_raw(id: &str, site: &Site<'_>, wanted: &Encryption) -> Result<Decrypted, String> {
    let shown = site.device.display().to_string();
    let found = content(site.device)?;
    let found = match found {
        Content::Luks => found,
        Content::Nothing if is_blank(site.device).await => found,
        // A user of the raw partition may have left its first page empty in front of other data.
        Content::Nothing | Content::Xfs | Content::Foreign => Content::Xfs,
    };
    let step = judge(found, site.marks, Some(wanted), &shown)?;
    let opened = encrypt_by(step, id, site, Some(wanted)).await?;
    opened.ok_or_else(|| format!("{shown} contains data that is not encrypted; wipe it first"))
}

/// Whether the whole area that a wipe zeroes is zero.
async fn is_blank(device: &Path) -> bool {
    let device = device.to_owned();
    let read = spawn_blocking(move || is_zero(&mut File::open(device)?, 0, WIPED)).await;
    read.is_ok_and(|zeros: io::Result<bool>| zeros.unwrap_or_default())
}

/// Checks that a partition may be used raw. If it was encrypted and the config dropped that, its users see ciphertext,
/// so anything but LUKS is refused.
fn check_raw(site: &Site<'_>) -> Result<(), String> {
    if site.marks.is_encrypted && content(site.device)? != Content::Luks {
        let shown = site.device.display().to_string();
        judge(Content::Foreign, site.marks, None, &shown)?;
    }
    Ok(())
}
