//! Installs a version to a disk that has none. After each step, the disk either boots or is marked as unfinished.
//!
//! The first write marks the first sector; the last write replaces the mark with the protective MBR. Before the last
//! write, firmware and kernel see no partition. A marked disk holds no user data, so an installation may overwrite it.

use std::io::{self, Read, Seek, SeekFrom, Write};

use gptman::{GPT, GPTPartitionEntry};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::esp::{self, FatFile, Place};
use crate::grub::Code;
use crate::layout::{ALIGNMENT, Partition, esp_size, layout};
use crate::table::{Mbr, write_copies, write_protective};

/// Mark in the first sector of an unfinished disk. It lies in the half of the sector where the protective MBR has its
/// signature: a torn write leaves either the mark or the signature.
const MARK: &[u8] = b"corten: unfinished";
const MARK_AT: usize = 480;
const FIRST_SECTOR: usize = 512;
/// Length of the region at either end of a disk that holds its partition table and other metadata (LVM, RAID, file
/// systems), in bytes.
const EDGE: u64 = 1 << 20;

/// A disk as a target of an installation.
pub trait Disk: Read + Write + Seek {
    /// Returns when all written data is on the disk.
    ///
    /// # Errors
    /// The disk fails.
    fn sync(&mut self) -> io::Result<()>;
    /// Drops cached data, so that later reads come from the disk.
    ///
    /// # Errors
    /// The disk fails.
    fn forget(&mut self) -> io::Result<()>;
}

impl Disk for std::fs::File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn forget(&mut self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(
            &*self,
            0,
            None,
            rustix::fs::Advice::DontNeed,
        )?)
    }
}

/// Content of a disk, as far as an installation is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Zeros wherever metadata usually begins.
    Nothing,
    /// An interrupted installation.
    Unfinished,
    /// Other data.
    Something,
}

/// Content of a disk of `length` bytes.
///
/// # Errors
/// The disk fails.
pub fn found<D: Disk>(disk: &mut D, length: u64) -> io::Result<Found> {
    let mut first = [0; FIRST_SECTOR];
    disk.seek(SeekFrom::Start(0))?;
    disk.read_exact(&mut first)?;
    let mark = first.get(MARK_AT..MARK_AT + MARK.len());
    if mark == Some(MARK) && !first.ends_with(&[0x55, 0xaa]) {
        return Ok(Found::Unfinished);
    }
    let edge = usize::try_from(EDGE.min(length)).unwrap_or_default();
    for at in [0, length.saturating_sub(EDGE)] {
        let mut bytes = vec![0; edge];
        disk.seek(SeekFrom::Start(at))?;
        disk.read_exact(&mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(Found::Something);
        }
    }
    Ok(Found::Nothing)
}

/// The disk is too small. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {has} bytes, and at least {needs} are needed; use a larger disk")]
pub struct TooSmall {
    /// Size of the disk.
    pub has: u64,
    /// Size that the installation needs.
    pub needs: u64,
}

/// Partitions of an installation, and their places.
#[derive(Debug, Clone)]
pub struct Plan {
    length: u64,
    sector: u64,
    partitions: Vec<Partition>,
    /// GRUB's boot code, and its core image with its place; `None`: BIOS does not start the disk.
    grub: Option<(Vec<u8>, Vec<u8>, u64)>,
}

/// Size of the sectors of a disk that BIOS can start, in bytes.
pub const BIOS_SECTOR: u64 = 512;

/// IDs of an installed disk.
#[derive(Debug, Clone)]
pub struct Ids {
    /// ID of the disk.
    pub disk: Uuid,
    /// IDs of its partitions, in their order.
    pub partitions: Vec<Uuid>,
}

impl Plan {
    /// Plans a disk of `length` bytes with sectors of `sector` bytes. The EFI partition holds files of `content` bytes,
    /// `image` bytes of which are the unified kernel image. `last` is a partition after META. The plan leaves `behind`
    /// bytes free for partitions that the node makes.
    ///
    /// # Errors
    /// The disk is too small.
    pub fn new(
        (length, sector): (u64, u64),
        (content, image): (u64, u64),
        last: Option<(&'static str, u64)>,
        behind: u64,
    ) -> Result<Plan, TooSmall> {
        let esp = esp_size(content, image, sector);
        let partitions = layout(ALIGNMENT, esp, last);
        let end = partitions
            .last()
            .map_or(0, |part| part.start.saturating_add(part.size));
        // The backup table at the end takes less than 1 MiB.
        let needs = end
            .next_multiple_of(ALIGNMENT)
            .saturating_add(behind)
            .saturating_add(ALIGNMENT);
        if length < needs {
            return Err(TooSmall { has: length, needs });
        }
        Ok(Plan {
            length,
            sector,
            partitions,
            grub: None,
        })
    }

    /// The same plan, with GRUB for BIOS. A disk whose sectors are not of [`BIOS_SECTOR`] bytes goes without.
    #[must_use]
    pub fn with_grub(mut self, code: &Code) -> Plan {
        let bios = self.partitions.iter().find(|part| part.label == "BIOS");
        self.grub = bios.filter(|_| self.sector == BIOS_SECTOR).map(|part| {
            let (boot, core) = code.placed(part.start / BIOS_SECTOR);
            (boot, core, part.start)
        });
        self
    }

    /// Partitions, numbered from 1.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Marks the disk as unfinished, then clears the regions that identify partition tables and file systems. The
    /// former content of the disk is lost from here on.
    ///
    /// # Errors
    /// The disk fails.
    pub fn begin<D: Disk>(&self, disk: &mut D) -> io::Result<()> {
        mark(disk, &[])?;
        disk.sync()?;
        let marked = FIRST_SECTOR as u64;
        zero(disk, marked, EDGE - marked)?;
        zero(disk, self.length.saturating_sub(EDGE), EDGE)?;
        for part in self.partitions.iter().filter(|part| part.label != "EFI") {
            zero(disk, part.start, part.size.min(16 * EDGE))?;
        }
        disk.sync()
    }

    /// Writes the EFI partition, GRUB and META, and reads files and GRUB back to verify them.
    ///
    /// # Errors
    /// The disk fails, or returns other bytes than were written.
    pub fn write<D: Disk>(
        &self,
        disk: &mut D,
        files: &[FatFile],
        meta: &corten_meta::Values,
        id: u32,
    ) -> io::Result<()> {
        for part in &self.partitions {
            match part.label {
                "EFI" => {
                    let place = Place {
                        start: part.start,
                        size: part.size,
                        sector: self.sector,
                        id,
                    };
                    esp::write(disk, place, files, &esp::DATELESS)?;
                }
                "META" => {
                    let values = corten_meta::encode(meta).map_err(io::Error::other)?;
                    disk.seek(SeekFrom::Start(part.start))?;
                    disk.write_all(&values.repeat(2))?;
                }
                _ => {}
            }
        }
        if let Some((code, core, at)) = &self.grub {
            disk.seek(SeekFrom::Start(*at))?;
            disk.write_all(core)?;
            // The last write then changes nothing but the second half of the sector, where a torn write shows.
            mark(disk, code)?;
        }
        disk.sync()?;
        self.read_back(disk, files)
    }

    fn read_back<D: Disk>(&self, disk: &mut D, files: &[FatFile]) -> io::Result<()> {
        disk.forget()?;
        let esp = self.partitions.iter().find(|part| part.label == "EFI");
        let place = esp.map_or((0, 0), |part| (part.start, part.size));
        for (path, content) in files {
            let (mut meant, mut found) = (Sha256::new(), Sha256::new());
            esp::each_chunk(content, |chunk| {
                meant.update(chunk);
                Ok(())
            })?;
            esp::read(disk, place, path, |chunk| {
                found.update(chunk);
                Ok(())
            })?;
            if meant.finalize() != found.finalize() {
                return Err(io::Error::other(format!(
                    "the disk returns other bytes of {path} than were written to it"
                )));
            }
        }
        if let Some((_, core, at)) = &self.grub {
            let mut found = vec![0; core.len()];
            disk.seek(SeekFrom::Start(*at))?;
            disk.read_exact(&mut found)?;
            if found != *core {
                return Err(io::Error::other(
                    "the disk returns other bytes of GRUB than were written to it",
                ));
            }
        }
        Ok(())
    }

    /// Writes the partition table and, once that is on the disk, the protective MBR with GRUB's boot code that makes it
    /// visible. `attributes` are those of the last partition's entry. With `is_active` the MBR marks its partition as
    /// active: some BIOS versions start no other disk.
    ///
    /// # Errors
    /// The disk fails, and is marked as unfinished.
    pub fn finish<D: Disk>(
        &self,
        disk: &mut D,
        ids: &Ids,
        attributes: u64,
        is_active: bool,
    ) -> io::Result<()> {
        let mut table = GPT::new_from(disk, self.sector, ids.disk.to_bytes_le())
            .map_err(|error| io::Error::other(error.to_string()))?;
        let last = self.partitions.len();
        for ((number, part), id) in (1_usize..).zip(&self.partitions).zip(&ids.partitions) {
            let at = u32::try_from(number).map_err(io::Error::other)?;
            let more = if number == last { attributes } else { 0 };
            table[at] = GPTPartitionEntry {
                partition_type_guid: part.kind.to_bytes_le(),
                unique_partition_guid: id.to_bytes_le(),
                starting_lba: part.start / self.sector,
                ending_lba: part.start.saturating_add(part.size) / self.sector - 1,
                attribute_bits: part.attributes | more,
                partition_name: part.label.into(),
            };
        }
        let entries: Vec<GPTPartitionEntry> =
            table.iter().map(|(_, entry)| entry.clone()).collect();
        write_copies(disk, &table.header, self.sector, &entries, D::sync)?;
        let code = self.grub.as_ref().map(|(code, ..)| code.as_slice());
        let mbr = Mbr {
            code: code.unwrap_or_default(),
            is_active,
        };
        write_protective(disk, self.length / self.sector, mbr)?;
        disk.sync()
    }
}

/// Marks the disk as unfinished, with this boot code.
fn mark<D: Disk>(disk: &mut D, code: &[u8]) -> io::Result<()> {
    let mut first = code.to_vec();
    first.resize(MARK_AT, 0);
    first.extend(MARK);
    first.resize(FIRST_SECTOR, 0);
    disk.seek(SeekFrom::Start(0))?;
    disk.write_all(&first)
}

fn zero<D: Disk>(disk: &mut D, start: u64, length: u64) -> io::Result<()> {
    disk.seek(SeekFrom::Start(start))?;
    let chunk = vec![0; usize::try_from(EDGE).unwrap_or_default()];
    let mut left = length;
    while left > 0 {
        let next = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        disk.write_all(chunk.get(..next).unwrap_or_default())?;
        left -= next as u64;
    }
    Ok(())
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
