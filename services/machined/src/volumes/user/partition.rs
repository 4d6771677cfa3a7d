//! A partition of a user volume: planned by what a disk holds, then made, found again or grown.
//!
//! A disk without a table gets one only when it is empty: its first and its last MiB read as zeros. What a power
//! cut leaves unfinished is carried on at the next attempt.

use std::io::{self, Read, Seek, SeekFrom, Write};

use corten_config::values::MaxSize;
use uuid::Uuid;

use super::whole_disk;
use crate::volumes::partitions::wipe_start;
use crate::volumes::table::{Extent, FirstSector, Marks, TYPE_LINUX, TYPE_SWAP, Table};

const MIB: u64 = 1 << 20;
/// Where a file system, a table or a part of an array would have left something, in bytes from either end.
pub(super) const LOOKED_AT: u64 = MIB;
/// Bytes of a new table's entries, which the header follows at the disk's end.
const ENTRIES: u64 = 128 * 128;
/// What a header begins with.
const MAGIC: &[u8; 8] = b"EFI PART";

/// The partition that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The partition's name.
    pub label: &'a str,
    /// The one that was this one's; without it, any of this name.
    pub id: Option<Uuid>,
    /// Its type in the table.
    pub kind: Uuid,
    /// At least so many bytes.
    pub least: u64,
    /// At most so many; without it all that is free.
    pub most: Option<MaxSize>,
    /// One that is there is made larger.
    pub grow: bool,
}

/// What becomes of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was there.
    None,
    /// It gets longer.
    Grown,
    /// It is made.
    New,
}

/// A table to be written, and the partition in it.
#[derive(Debug)]
pub struct Plan {
    /// The partition.
    pub extent: Extent,
    /// Its id.
    pub id: Uuid,
    /// What is done to it.
    pub change: Change,
    /// What the node has written down of it.
    pub marks: Marks,
    table: Table,
    /// The disk's first sector is to be written, too.
    is_unprotected: bool,
}

impl Plan {
    /// Looks at the disk, and writes nothing. `sector`: the unit it can be read in, in bytes.
    ///
    /// # Errors
    /// Why the partition cannot be on this disk.
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

    /// Whether anything is to be written.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.change != Change::None || self.is_unprotected
    }

    /// Writes it to the disk it was made for.
    ///
    /// # Errors
    /// The disk's.
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

/// The ids of the partitions of this name on a disk; one that is not partitioned in our way has none.
///
/// # Errors
/// It cannot be read, or has a table that is damaged.
pub fn ids<D: Read + Seek>(disk: &mut D, label: &str) -> io::Result<Vec<Uuid>> {
    let first = FirstSector::of(disk)?;
    // What looks like a table at the end of one was written by its users.
    if whole_disk::is_volume(disk)? {
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
    // What is larger than any disk has no room either.
    let least = wish.least.checked_next_multiple_of(MIB).unwrap_or(u64::MAX);
    let length = most.unwrap_or(u64::MAX).min(table.room());
    if length < least {
        let (has, needs) = (length / MIB, least / MIB);
        return Err(io::Error::other(format!(
            "it has {has} MiB for it, and {needs} are needed"
        )));
    }
    table.append(wish.label, wish.kind, Some(length))
}

fn foreign() -> io::Error {
    io::Error::other("it holds something that is no partition table; wipe it if it is to be used")
}

/// Whether a disk ends empty, or with what a power cut left of the first table that was written there.
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

/// Of a disk whose first sector is empty: whether the next ones are, too, or have the table that this node began
/// with. A table at the disk's end alone is what a file system was made over.
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

/// Whether so many bytes from there on, or as many as there are, are zeros.
///
/// # Errors
/// The disk's.
pub fn is_zero<D: Read + Seek>(disk: &mut D, start: u64, length: u64) -> io::Result<bool> {
    disk.seek(SeekFrom::Start(start))?;
    let mut left = disk.take(length);
    let mut part = vec![0; 1 << 20];
    loop {
        let length = left.read(&mut part)?;
        match part.get(..length) {
            None | Some([]) => return Ok(true),
            Some(read) if read.iter().any(|byte| *byte != 0) => return Ok(false),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
