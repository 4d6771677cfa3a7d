//! The node's partitions on the system disk: finds, creates and grows them.

use std::io;
use std::path::{Path, PathBuf};

use corten_config::Document;
use corten_config::kinds::{Encryption, SystemVolume};
use corten_supervisor::supervisor::Supervisor;
use corten_sys::blkpg;
use corten_yaml::read::Word as _;
use tokio::task::block_in_place;
use uuid::Uuid;

use super::alone::wait_for;
use super::attach::{Site, attach, content, unmount};
use super::disk::{self, Content, Disk};
use super::judge::{Step, judge};
use super::table::{Extent, Marks, TYPE_LINUX, Table};
use super::user::{remember_encrypted, was_encrypted};
use super::zeros::wipe_start;
use super::{
    EPHEMERAL, Failure, MIB, Opened, Outcome, SMALLEST_EPHEMERAL, STATE, STATE_LENGTH, Volume,
    made, migration, wipe,
};

/// The system disk and its partitions for the node's volumes.
#[derive(Debug)]
pub struct Partitions {
    disk: Disk,
    state: Extent,
    ephemeral: Extent,
    /// Id of EPHEMERAL in the table.
    ephemeral_id: Uuid,
    /// Number of partitions created.
    made: usize,
}

/// Finds the system disk and creates its missing partitions; `None` if no disk carries the node.
///
/// # Errors
/// The text names the disk.
pub fn find() -> Result<Option<Partitions>, Failure> {
    let disk = disk::system_disk().map_err(|error| Failure::new("the system disk", error))?;
    let Some(disk) = disk else { return Ok(None) };
    let name = disk.name.clone();
    let partitions = Partitions::ensure(disk).map_err(|error| Failure::new(name, error))?;
    Ok(Some(partitions))
}

/// Whether STATE certainly never existed, or was removed by a reset. The disk and its table must be readable, and the
/// table must have no STATE or one that is empty and unmarked.
#[must_use]
pub fn is_state_never_made() -> bool {
    let Ok(Some(disk)) = disk::system_disk() else {
        return false;
    };
    let table = disk.open().and_then(|mut disk| Table::read(&mut disk));
    let Ok(table) = table else { return false };
    match table.find(STATE.name) {
        None => true,
        Some(found) => {
            let is_empty = || {
                let content = disk
                    .partition(found.number)
                    .and_then(|device| disk::content(&device));
                content.is_ok_and(|content| content == Content::Nothing)
            };
            table.marks(found.number) == Marks::default() && is_empty()
        }
    }
}

impl Partitions {
    /// Whether STATE is still to be made.
    ///
    /// # Errors
    /// STATE cannot be read.
    pub fn lacks_state(&self) -> Result<bool, Failure> {
        let is_empty = self.content(&STATE, self.state)? == Content::Nothing;
        Ok(is_empty && !self.marks(&STATE, self.state)?.is_made)
    }

    /// Mounts STATE, encrypted as `wanted`, and adds an encrypted STATE to `opened` even if the mount fails. If STATE
    /// is made anew for encryption, its files are carried over. `was_encrypted` is META's record of STATE.
    ///
    /// # Errors
    /// The text names the volume.
    pub async fn attach_state(
        &self,
        supervisor: &Supervisor,
        wanted: Option<&Encryption>,
        was_encrypted: bool,
        opened: &mut Opened,
    ) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(STATE.name, why);
        let mut marks = self.marks(&STATE, self.state)?;
        marks.is_encrypted |= was_encrypted;
        let device = self
            .device(self.state)
            .map_err(|error| failed(error.to_string()))?;
        let found = content(&device).map_err(failed)?;
        let step = judge(found, marks, wanted, &device.display().to_string());
        let carried = match step {
            Ok(Step::Migrate) => {
                let taken = block_in_place(|| migration::take(&STATE, &device));
                Some(taken.map_err(failed)?)
            }
            _ => None,
        };
        let attached = self
            .attach(supervisor, &STATE, (self.state, marks), wanted, opened)
            .await;
        let Some(carried) = carried else {
            return attached;
        };
        let target = Path::new(STATE.target);
        let is_restored =
            attached.is_err() && self.content(&STATE, self.state)? == Content::Nothing;
        if is_restored {
            // STATE was discarded but could not be encrypted. It is restored in the clear so that the next boot can try
            // again.
            let none = (self.state, Marks::default());
            self.attach(supervisor, &STATE, none, None, opened).await?;
        }
        if attached.is_ok() || is_restored {
            let put = block_in_place(|| carried.put(target));
            put.map_err(|error| failed(format!("its files cannot be restored: {error}")))?;
        }
        if is_restored {
            unmount(target).map_err(|error| failed(error.to_string()))?;
        }
        attached
    }

    /// Mounts EPHEMERAL, encrypted by the config; without a config it may have to wait for one. `encrypts`: STATE is
    /// encrypted or may have to be, so EPHEMERAL is not made until its encryption is known.
    ///
    /// # Errors
    /// The text names the volume. Volumes mounted before stay mounted.
    pub async fn attach_ephemeral(
        &self,
        supervisor: &Supervisor,
        config: Option<&Document>,
        encrypts: bool,
        opened: &mut Opened,
    ) -> Result<Outcome, Failure> {
        let disk = self.disk.name.clone();
        if config.is_none() {
            let content = self.content(&EPHEMERAL, self.ephemeral)?;
            if content == Content::Luks || encrypts && content == Content::Nothing {
                return Ok(Outcome::AwaitsConfig { disk });
            }
        }
        let wanted = config.and_then(|config| config.encryption(SystemVolume::Ephemeral));
        let mut marks = self.marks(&EPHEMERAL, self.ephemeral)?;
        let state = Path::new(STATE.target);
        marks.is_encrypted |= was_encrypted(state, EPHEMERAL.name);
        let place = (self.ephemeral, marks);
        self.attach(supervisor, &EPHEMERAL, place, wanted, opened)
            .await?;
        let is_encrypted = opened
            .iter()
            .any(|(one, _)| *one == SystemVolume::Ephemeral);
        if is_encrypted {
            block_in_place(|| remember_encrypted(state, EPHEMERAL.name, self.ephemeral_id));
        }
        Ok(Outcome::Mounted {
            disk,
            made: self.made,
        })
    }

    fn content(&self, volume: &Volume<'_>, extent: Extent) -> Result<Content, Failure> {
        self.device(extent)
            .and_then(|device| disk::content(&device))
            .map_err(|error| Failure::new(volume.name, error))
    }

    fn marks(&self, volume: &Volume<'_>, extent: Extent) -> Result<Marks, Failure> {
        made::marks(&self.disk, extent.number).map_err(|error| Failure::new(volume.name, error))
    }

    fn device(&self, extent: Extent) -> io::Result<PathBuf> {
        self.disk.partition(extent.number)
    }

    async fn attach(
        &self,
        supervisor: &Supervisor,
        volume: &Volume<'_>,
        (extent, marks): (Extent, Marks),
        wanted: Option<&Encryption>,
        opened: &mut Opened,
    ) -> Result<(), Failure> {
        let device = self
            .device(extent)
            .map_err(|error| Failure::new(volume.name, error))?;
        let mut by = None;
        let give_up = || self.give_up(volume, extent, &device);
        let site = Site {
            device: &device,
            marks,
            give_up: &give_up,
        };
        let attached = attach(supervisor, volume, &site, wanted, &mut by).await;
        let is_encrypted = by.is_some();
        opened.extend(SystemVolume::from_word(volume.name).zip(by));
        attached.map_err(|why| Failure::new(volume.name, why))?;
        block_in_place(|| {
            let _alone = wait_for(&self.disk.name);
            made::remember(volume.name, &self.disk, extent.number, is_encrypted);
        });
        Ok(())
    }

    /// Marks a volume as never made. Secret content is overwritten.
    fn give_up(&self, volume: &Volume<'_>, extent: Extent, device: &Path) -> io::Result<()> {
        let _alone = wait_for(&self.disk.name);
        made::forget(&self.disk, |_, other| other.number == extent.number)?;
        let is_secret = volume.name == STATE.name;
        wipe::partition(self.disk.sequence, device, is_secret, &|| ())
    }

    /// Ensures that both partitions exist, in the table and in the kernel.
    fn ensure(disk: Disk) -> io::Result<Partitions> {
        let _alone = wait_for(&disk.name);
        let mut device = disk.open_to_write()?;
        let mut table = Table::read(&mut device)?;
        let mut made = Vec::new();
        let needed = [(STATE, STATE_LENGTH), (EPHEMERAL, SMALLEST_EPHEMERAL)]
            .iter()
            .filter(|(volume, _)| table.find(volume.name).is_none())
            .map(|(_, length)| length)
            .sum::<u64>();
        if table.room() < needed {
            return Err(io::Error::other(format!(
                "STATE and EPHEMERAL need {} MiB behind META, and {} MiB are free; use a larger disk",
                needed / MIB,
                table.room() / MIB
            )));
        }
        let mut extent = |name: &str, length, table: &mut Table| match table.find(name) {
            Some(found) => Ok(found),
            None => {
                let extent = table.append(name, TYPE_LINUX, length)?;
                made.push(extent);
                Ok::<_, io::Error>(extent)
            }
        };
        let state = extent(STATE.name, Some(STATE_LENGTH), &mut table)?;
        let mut ephemeral = extent(EPHEMERAL.name, None, &mut table)?;
        let grown = table.grow(ephemeral, None);
        if let Some(larger) = grown {
            ephemeral = larger;
        }
        if !made.is_empty() {
            table.individualize();
            for extent in &made {
                wipe_start(&mut device, extent.start, extent.length)?;
            }
            device.sync_all()?;
        }
        if !made.is_empty() || grown.is_some() {
            table.write(&mut device, |device| device.sync_all())?;
        }
        for extent in &made {
            blkpg::add(&device, extent.number, extent.start, extent.length)?;
        }
        if let Some(larger) = grown {
            blkpg::resize(&device, larger.number, larger.start, larger.length)?;
        }
        Ok(Partitions {
            disk,
            state,
            ephemeral_id: table.id(ephemeral),
            ephemeral,
            made: made.len(),
        })
    }
}
