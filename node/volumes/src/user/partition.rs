//! The partition of a user volume: planned from the content of a disk, then created, found or grown.
//!
//! A disk without a table gets one only if it is empty: its first and last MiB must be zeros. A later attempt completes
//! what a power cut interrupted.

use std::io::{self, Read, Seek, SeekFrom, Write};

use corten_values::MaxSize;
use uuid::Uuid;

use super::signature;
use crate::MIB;
use crate::table::{Extent, FirstSector, Marks, TYPE_LINUX, TYPE_SWAP, Table};
use crate::zeros::{LOOKED_AT, is_zero, wipe_start};

/// Length of a new table's entries in bytes; at the disk's end the header follows them.
const ENTRIES: u64 = 128 * 128;
/// Magic number of a header.
const MAGIC: &[u8; 8] = b"EFI PART";

/// A wanted partition.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Name of the partition.
    pub label: &'a str,
    /// Recorded id; without one, any partition of this name matches.
    pub id: Option<Uuid>,
    /// Type of the partition in the table.
    pub kind: Uuid,
    /// Minimum size in bytes.
    pub least: u64,
    /// Maximum size; without one, all free space.
    pub most: Option<MaxSize>,
    /// Whether an existing partition grows.
    pub grow: bool,
}

/// Change of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It exists already.
    None,
    /// It grows.
    Grown,
    /// It is created.
    New,
}

/// A table to write and the partition in it.
#[derive(Debug)]
pub struct Plan {
    /// Position of the partition.
    pub extent: Extent,
    /// Id of the partition.
    pub id: Uuid,
    /// Change to the partition.
    pub change: Change,
    /// The node's record of the partition.
    pub marks: Marks,
    table: Table,
    /// Whether the protective MBR is missing and has to be written.
    is_unprotected: bool,
}

impl Plan {
    /// Reads the disk and plans the change; writes nothing. `sector`: logical sector size in bytes.
    ///
    /// # Errors
    /// The reason why the partition cannot be on this disk.
    pub fn on<D: Read + Seek>(disk: &mut D, sector: u64, wish: &Wish<'_>) -> io::Result<Plan> {
        let is_unprotected = match FirstSector::of(disk)? {
            FirstSector::Protective => false,
            FirstSector::Empty if starts_as_made(disk)? => true,
            FirstSector::Empty | FirstSector::Foreign => return Err(foreign()),
        };
        let mut table = match Table::read(disk) {
            Ok(table) => table,
            Err(_) if is_unprotected && ends_as_made(disk, sector)? => Table::new(disk, sector)?,
            Err(_) if is_unprotected => return Err(foreign()),
            Err(error) => return Err(error),
        };
        let most = wish.most.map(|most| match most {
            MaxSize::Bytes(bytes) => bytes,
            MaxSize::Percent(percent) => table.disk_length() / 100 * u64::from(percent),
        });
        let by_name = || table.find(wish.label);
        let found = wish.id.map_or_else(by_name, |id| table.find_id(id));
        let (extent, change) = match found {
            Some(found) => {
                let larger = wish.grow.then(|| table.grow(found, most)).flatten();
                larger.map_or((found, Change::None), |larger| (larger, Change::Grown))
            }
            None => (append(&mut table, wish, most)?, Change::New),
        };
        Ok(Plan {
            extent,
            id: table.id(extent),
            change,
            marks: table.marks(extent.number),
            table,
            is_unprotected,
        })
    }

    /// Whether there is anything to write.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.change != Change::None || self.is_unprotected
    }

    /// Writes the plan to the disk for which it was made.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn carry_out<D: Write + Seek>(
        &self,
        disk: &mut D,
        flush: impl Fn(&mut D) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.change == Change::New {
            wipe_start(disk, self.extent.start, self.extent.length)?;
            flush(disk)?;
        }
        self.table.write(disk, &flush)?;
        if self.is_unprotected {
            self.table.protect(disk)?;
            flush(disk)?;
        }
        Ok(())
    }
}

/// Ids of the partitions with this name on a disk; empty for a disk without a GPT.
///
/// # Errors
/// The disk cannot be read, or its table is damaged.
pub fn ids<D: Read + Seek>(disk: &mut D, label: &str) -> io::Result<Vec<Uuid>> {
    let first = FirstSector::of(disk)?;
    // A table at the end of a whole-disk volume was written by its users.
    if signature::is_volume(disk)? {
        return Ok(Vec::new());
    }
    match Table::read(disk) {
        Ok(table) => {
            let of_name = table.partitions().filter(|(name, _)| *name == label);
            Ok(of_name.map(|(_, extent)| table.id(extent)).collect())
        }
        Err(error) if first == FirstSector::Protective => Err(error),
        Err(_) => Ok(Vec::new()),
    }
}

fn append(table: &mut Table, wish: &Wish<'_>, most: Option<u64>) -> io::Result<Extent> {
    // A size beyond any disk finds no room either.
    let least = wish.least.checked_next_multiple_of(MIB).unwrap_or(u64::MAX);
    let length = most.unwrap_or(u64::MAX).min(table.room());
    if length < least {
        let (has, needs) = (length / MIB, least / MIB);
        return Err(io::Error::other(format!(
            "it has {has} MiB for the volume, and {needs} are needed"
        )));
    }
    table.append(wish.label, wish.kind, Some(length))
}

fn foreign() -> io::Error {
    io::Error::other("it is not empty and has no GPT; wipe it to use it")
}

/// Whether the end of a disk is empty, or has the remains of the node's first table after a power cut.
fn ends_as_made<D: Read + Seek>(disk: &mut D, sector: u64) -> io::Result<bool> {
    let length = disk.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(LOOKED_AT);
    let entries = length.saturating_sub(sector + ENTRIES);
    if !is_zero(disk, start, entries.saturating_sub(start))? {
        return Ok(false);
    }
    let mut table = Vec::new();
    disk.seek(SeekFrom::Start(entries))?;
    disk.take(sector + ENTRIES).read_to_end(&mut table)?;
    let header = usize::try_from(ENTRIES).ok().and_then(|at| table.get(at..));
    let begins_with = |kind: Uuid| table.starts_with(&kind.to_bytes_le());
    Ok(table.iter().all(|byte| *byte == 0)
        || [TYPE_LINUX, TYPE_SWAP].into_iter().any(begins_with)
        || header.is_some_and(|header| header.starts_with(MAGIC)))
}

/// Whether a disk with an empty first sector is empty, or has the first copy of the node's unfinished table. A table at
/// the end alone does not count: a file system was made over such a disk.
fn starts_as_made<D: Read + Seek>(disk: &mut D) -> io::Result<bool> {
    if is_zero(disk, 0, LOOKED_AT)? {
        return Ok(true);
    }
    for sector in [512, 4096] {
        let mut magic = [0; MAGIC.len()];
        disk.seek(SeekFrom::Start(sector))?;
        disk.read_exact(&mut magic)?;
        if magic == *MAGIC {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
