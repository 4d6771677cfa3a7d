//! The partition table of a disk (UEFI 2.10, section 5.3). A power cut at any moment of a change leaves a valid copy
//! where firmware looks for one.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

pub use corten_installer::layout::TYPE_LINUX;
use corten_installer::table::{Mbr, write_copies, write_protective};
use gptman::{GPT, GPTHeader, GPTPartitionEntry};
use uuid::{Uuid, uuid};

/// Linux swap.
pub const TYPE_SWAP: Uuid = uuid!("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F");
/// Alignment of partitions in bytes.
const ALIGNMENT: u64 = 1 << 20;
/// `HeaderSize`, and the `SizeOfPartitionEntry` of every table in practice.
const HEADER: u32 = 92;
const ENTRY: u32 = 128;
/// Maximum number of entries: more than any tool writes. Bounds the memory a hostile disk can claim.
const MOST_ENTRIES: u32 = 1024;
/// Minimum disk size in bytes: two tables and the alignment between them.
const SMALLEST_DISK: u64 = 4 << 20;

/// Attribute bit of a partition whose content the node has made. Bits 48 to 63 are reserved for the partition type
/// (section 5.3.3), and Linux data uses neither this bit nor the next.
const MADE: u64 = 1 << 48;
/// Attribute bit of a partition whose content was encrypted.
const ENCRYPTED: u64 = 1 << 49;

/// Length of the MBR in bytes, and its signature.
const MBR: usize = 512;
const MBR_END: [u8; 2] = [0x55, 0xaa];
/// Offset of the first of four partition records, length of a record, and offset of the type within it.
const MBR_FIRST: usize = 446;
const MBR_RECORD: usize = 16;
const MBR_KIND: usize = 4;
/// Partition type of a protective MBR.
const MBR_PROTECTIVE: u8 = 0xee;

/// Position of a partition in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Partition number, from 1.
    pub number: u32,
    /// Start in bytes.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The node's record of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Whether it was made and used. If it seems empty now, it is damaged.
    pub is_made: bool,
    /// Whether it was encrypted. If it is in the clear now, it was replaced.
    pub is_encrypted: bool,
}

impl Marks {
    fn of(attributes: u64) -> Marks {
        Marks {
            is_made: attributes & MADE != 0,
            is_encrypted: attributes & ENCRYPTED != 0,
        }
    }

    pub(super) fn bits(self) -> u64 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.is_made, MADE) | bit(self.is_encrypted, ENCRYPTED)
    }
}

/// The partition table of one disk in memory.
#[derive(Debug)]
pub struct Table {
    gpt: GPT,
    disk_length: u64,
}

impl Table {
    /// Reads the table; falls back to the copy at the disk's end if the first is damaged.
    ///
    /// # Errors
    /// Neither copy is valid, a valid copy has impossible values ([`is_impossible`]), or the disk cannot be read.
    pub fn read<D: Read + Seek>(disk: &mut D) -> io::Result<Table> {
        let disk_length = disk.seek(SeekFrom::End(0))?;
        check_tables(disk, disk_length)?;
        let gpt = GPT::find_from(disk).map_err(io::Error::other)?;
        let mut table = Table { gpt, disk_length };
        table.fit()?;
        Ok(table)
    }

    /// An empty table for a disk without one. `sector`: logical sector size in bytes.
    ///
    /// # Errors
    /// The disk is too small, or its size cannot be read.
    pub fn new<D: Read + Seek>(disk: &mut D, sector: u64) -> io::Result<Table> {
        let disk_length = disk.seek(SeekFrom::End(0))?;
        if disk_length < SMALLEST_DISK || ![512, 4096].contains(&sector) {
            return Err(io::Error::other("it is too small for a partition table"));
        }
        let gpt = GPT::new_from(disk, sector, Uuid::new_v4().to_bytes_le());
        let gpt = gpt.map_err(io::Error::other)?;
        let mut table = Table { gpt, disk_length };
        table.fit()?;
        Ok(table)
    }

    /// Length of the disk in bytes.
    #[must_use]
    pub fn disk_length(&self) -> u64 {
        self.disk_length
    }

    /// Rewrites the header as that of a first copy on a disk of this length. The table may be a backup, or written for
    /// a smaller disk.
    fn fit(&mut self) -> io::Result<()> {
        let sectors = self.disk_length / self.gpt.sector_size;
        let header = &mut self.gpt.header;
        let array = array_sectors(header, self.gpt.sector_size);
        header.primary_lba = 1;
        header.partition_entry_lba = 2;
        header.backup_lba = sectors.saturating_sub(1);
        header.last_usable_lba = sectors.saturating_sub(array + 2);
        let last = header.last_usable_lba;
        if header.first_usable_lba > last {
            return Err(io::Error::other("the disk has no room for a partition"));
        }
        for (number, entry) in self.gpt.iter().filter(|(_, entry)| entry.is_used()) {
            if entry.starting_lba > entry.ending_lba || entry.ending_lba > last {
                return Err(io::Error::other(format!(
                    "partition {number} does not lie on the disk"
                )));
            }
        }
        Ok(())
    }

    /// The first partition with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Extent> {
        let (number, entry) = self
            .gpt
            .iter()
            .find(|(_, entry)| entry.is_used() && entry.partition_name.as_str() == name)?;
        Some(self.extent(number, entry))
    }

    /// The partition with this id.
    #[must_use]
    pub fn find_id(&self, id: Uuid) -> Option<Extent> {
        let mut used = self.gpt.iter().filter(|(_, entry)| entry.is_used());
        let (number, entry) =
            used.find(|(_, entry)| entry.unique_partition_guid == id.to_bytes_le())?;
        Some(self.extent(number, entry))
    }

    /// The id of an existing partition.
    #[must_use]
    pub fn id(&self, extent: Extent) -> Uuid {
        Uuid::from_bytes_le(self.gpt[extent.number].unique_partition_guid)
    }

    /// The marks of the partition with this number; default marks if there is none.
    #[must_use]
    pub fn marks(&self, number: u32) -> Marks {
        let mut used = self.gpt.iter().filter(|(_, entry)| entry.is_used());
        let entry = used.find(|(found, _)| *found == number);
        entry.map_or_else(Marks::default, |(_, entry)| Marks::of(entry.attribute_bits))
    }

    /// Sets the marks of an existing partition; returns `true` if they changed.
    pub fn set_marks(&mut self, number: u32, marks: Marks) -> bool {
        let is_there = self.partitions().any(|(_, extent)| extent.number == number);
        if !is_there || self.marks(number) == marks {
            return false;
        }
        let others = self.gpt[number].attribute_bits & !(MADE | ENCRYPTED);
        self.gpt[number].attribute_bits = others | marks.bits();
        true
    }

    /// Name and position of every partition.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, Extent)> {
        let used = self.gpt.iter().filter(|(_, entry)| entry.is_used());
        used.map(move |(number, entry)| {
            let name = entry.partition_name.as_str();
            (name, self.extent(number, entry))
        })
    }

    fn extent(&self, number: u32, entry: &GPTPartitionEntry) -> Extent {
        let sector = self.gpt.sector_size;
        let sectors = (entry.ending_lba + 1).saturating_sub(entry.starting_lba);
        Extent {
            number,
            start: entry.starting_lba * sector,
            length: sectors * sector,
        }
    }

    /// Free space behind the last partition, in bytes.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.end().saturating_sub(self.behind_last())
    }

    fn end(&self) -> u64 {
        (self.gpt.header.last_usable_lba + 1) * self.gpt.sector_size / ALIGNMENT * ALIGNMENT
    }

    fn behind_last(&self) -> u64 {
        let used = self.gpt.iter().filter(|(_, entry)| entry.is_used());
        let last = used.map(|(_, entry)| entry.ending_lba + 1).max();
        let first = self.gpt.header.first_usable_lba;
        let sector = last.unwrap_or(first).max(first);
        (sector * self.gpt.sector_size)
            .next_multiple_of(ALIGNMENT)
            .max(ALIGNMENT)
    }

    /// Adds a partition of this type behind the last one, with `length` bytes rounded down to MiB, or with all free
    /// space.
    ///
    /// # Errors
    /// No room, or no free entry.
    pub fn append(&mut self, name: &str, kind: Uuid, length: Option<u64>) -> io::Result<Extent> {
        let start = self.behind_last();
        let length = length.unwrap_or_else(|| self.room()) / ALIGNMENT * ALIGNMENT;
        if length == 0 || length > self.room() {
            return Err(io::Error::other(format!(
                "no room for {name}: {} MiB are free",
                self.room() / ALIGNMENT
            )));
        }
        let free = self.gpt.iter().find(|(_, entry)| entry.is_unused());
        let Some((number, _)) = free else {
            return Err(io::Error::other(format!("no free entry for {name}")));
        };
        let sector = self.gpt.sector_size;
        self.gpt[number] = GPTPartitionEntry {
            partition_type_guid: kind.to_bytes_le(),
            unique_partition_guid: Uuid::new_v4().to_bytes_le(),
            starting_lba: start / sector,
            ending_lba: (start + length) / sector - 1,
            attribute_bits: 0,
            partition_name: name.into(),
        };
        Ok(Extent {
            number,
            start,
            length,
        })
    }

    /// Grows a partition to the end of the disk, or to at most `most` bytes. It must be the last one and gain more than
    /// a MiB.
    pub fn grow(&mut self, old: Extent, most: Option<u64>) -> Option<Extent> {
        let most = most.map_or(u64::MAX, |most| most / ALIGNMENT * ALIGNMENT);
        let end = self.end().min(old.start.saturating_add(most));
        let is_last = (old.start + old.length).next_multiple_of(ALIGNMENT) == self.behind_last();
        if !is_last || end <= self.behind_last() + ALIGNMENT {
            return None;
        }
        let sector = self.gpt.sector_size;
        self.gpt[old.number].ending_lba = end / sector - 1;
        Some(Extent {
            length: end - old.start,
            ..old
        })
    }

    /// Removes a partition from the table and returns its position.
    ///
    /// # Errors
    /// There is no partition with this number.
    pub fn remove(&mut self, number: u32) -> io::Result<Extent> {
        let extent = self
            .partitions()
            .map(|(_, extent)| extent)
            .find(|extent| extent.number == number)
            .ok_or_else(|| io::Error::other(format!("no partition {number}")))?;
        self.gpt.remove(number).map_err(io::Error::other)?;
        Ok(extent)
    }

    /// Gives the disk a new id: all disks made from one image share theirs.
    pub fn individualize(&mut self) {
        self.gpt.header.disk_guid = Uuid::new_v4().to_bytes_le();
    }

    /// Writes the table: first the copy at the end, and once that is flushed, the copy at the start.
    ///
    /// # Errors
    /// The disk cannot be written, or the partitions overlap.
    pub fn write<D: Write + Seek>(
        &self,
        disk: &mut D,
        flush: impl Fn(&mut D) -> io::Result<()>,
    ) -> io::Result<()> {
        let entries: Vec<GPTPartitionEntry> =
            self.gpt.iter().map(|(_, entry)| entry.clone()).collect();
        write_copies(
            disk,
            &self.gpt.header,
            self.gpt.sector_size,
            &entries,
            flush,
        )
    }

    /// Writes the protective MBR of a disk without one (section 5.2.3), since the kernel ignores a table without it.
    /// Call it after [`Table::write`].
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn protect<D: Write + Seek>(&self, disk: &mut D) -> io::Result<()> {
        write_protective(
            disk,
            self.disk_length / self.gpt.sector_size,
            Mbr::default(),
        )
    }
}

/// Content of a disk's first sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSector {
    /// Zeros.
    Empty,
    /// A protective MBR, which marks the disk as used for tools without GPT support (section 5.2.3).
    Protective,
    /// Content unrelated to a GPT.
    Foreign,
}

impl FirstSector {
    /// Reads the first sector.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn of<D: Read + Seek>(disk: &mut D) -> io::Result<FirstSector> {
        let mut sector = [0; MBR];
        disk.rewind()?;
        disk.read_exact(&mut sector)?;
        if sector.iter().all(|byte| *byte == 0) {
            return Ok(FirstSector::Empty);
        }
        let kinds = sector.iter().skip(MBR_FIRST + MBR_KIND).step_by(MBR_RECORD);
        let is_protective = kinds.take(4).any(|kind| *kind == MBR_PROTECTIVE);
        Ok(if is_protective && sector.ends_with(&MBR_END) {
            FirstSector::Protective
        } else {
            FirstSector::Foreign
        })
    }
}

/// Validates the copies of the table before the library reads them: it trusts any table with correct checksums and
/// panics on unusual values. The library tries the copies in this order and stops at the first intact one.
fn check_tables<D: Read + Seek>(disk: &mut D, disk_length: u64) -> io::Result<()> {
    let copies = [512, 4096].into_iter().flat_map(|sector| {
        let sectors = disk_length / sector;
        [1, sectors.saturating_sub(1)].map(|at| (sector, sectors, at))
    });
    for (sector, sectors, at) in copies {
        disk.seek(SeekFrom::Start(at * sector))?;
        // The library skips a damaged copy as well.
        let Ok(header) = GPTHeader::read_from(disk) else {
            continue;
        };
        check_header(&header, sector, sectors).map_err(impossible)?;
        if let Ok(entries) = header.read_partitions(disk, sector) {
            check_entries(&header, &entries).map_err(impossible)?;
            break;
        }
    }
    disk.rewind()
}

fn check_header(header: &GPTHeader, sector: u64, sectors: u64) -> Result<(), String> {
    let count = header.number_of_partition_entries;
    if header.header_size != HEADER
        || header.size_of_partition_entry != ENTRY
        || !(1..=MOST_ENTRIES).contains(&count)
    {
        return Err("has invalid sizes".to_owned());
    }
    let at = header.partition_entry_lba;
    if at >= sectors {
        return Err(format!(
            "has its entries at sector {at}, and the disk has {sectors} sectors"
        ));
    }
    let (first, array) = (header.first_usable_lba, array_sectors(header, sector));
    // Otherwise a write of the table would overwrite the start of the partitions.
    if first < 2 + array {
        return Err(format!(
            "lets partitions begin at sector {first}, inside the table"
        ));
    }
    Ok(())
}

fn check_entries(header: &GPTHeader, entries: &[GPTPartitionEntry]) -> Result<(), String> {
    let first = header.first_usable_lba;
    for (entry, number) in entries.iter().zip(1..) {
        let start = entry.starting_lba;
        if entry.is_used() && start < first {
            return Err(format!(
                "has partition {number} at sector {start}, before the first usable sector, {first}"
            ));
        }
    }
    Ok(())
}

/// Number of sectors of the table's entries.
fn array_sectors(header: &GPTHeader, sector: u64) -> u64 {
    let count = u64::from(header.number_of_partition_entries);
    (count * u64::from(header.size_of_partition_entry)).div_ceil(sector)
}

fn impossible(what: String) -> io::Error {
    let text = format!("the partition table {what}; wipe the disk to use it");
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Whether a table has impossible values with correct checksums, so that they were written deliberately. Damage to a
/// table of the node is not such a case.
#[must_use]
pub fn is_impossible(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
