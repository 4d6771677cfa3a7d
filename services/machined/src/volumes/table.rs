//! The partition table of a disk (UEFI 2.10, section 5.3), changed so that a power cut at any
//! moment leaves a valid copy where firmware looks for one.

use std::io::{self, Read, Seek, SeekFrom, Write};

use gptman::{GPT, GPTPartitionEntry};
use uuid::{Uuid, uuid};

/// Linux data.
pub const TYPE_LINUX: Uuid = uuid!("0FC63DAF-8483-4772-8E79-3D69D8477DE4");
/// Linux swap.
pub const TYPE_SWAP: Uuid = uuid!("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F");
/// Partitions start at multiples of it, bytes.
const ALIGNMENT: u64 = 1 << 20;
/// `HeaderSize`, and `SizeOfPartitionEntry` of every table there is in practice.
const HEADER: u32 = 92;
const ENTRY: u32 = 128;
/// More entries than any tool makes; bounds what a hostile disk can make us read.
const MOST_ENTRIES: u32 = 1024;
/// Bytes; two tables, and what is aligned between them.
const SMALLEST_DISK: u64 = 4 << 20;

/// The MBR in bytes, and its end.
const MBR: usize = 512;
const MBR_END: [u8; 2] = [0x55, 0xaa];
/// Where its first of four partitions is described, in how many bytes, and which of them is the kind.
const MBR_FIRST: usize = 446;
const MBR_RECORD: usize = 16;
const MBR_KIND: usize = 4;
/// The kind that stands for a GPT.
const MBR_PROTECTIVE: u8 = 0xee;

/// A partition, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its number, from 1.
    pub number: u32,
    /// Where it starts.
    pub start: u64,
    /// How long it is.
    pub length: u64,
}

/// The table of one disk, read and perhaps changed.
#[derive(Debug)]
pub struct Table {
    gpt: GPT,
    disk_length: u64,
}

impl Table {
    /// Reads the table; the copy at the disk's end when the first one is damaged.
    ///
    /// # Errors
    /// Neither copy is valid, or the disk cannot be read.
    pub fn read<D: Read + Seek>(disk: &mut D) -> io::Result<Table> {
        let disk_length = disk.seek(SeekFrom::End(0))?;
        check_headers(disk, disk_length)?;
        let gpt = GPT::find_from(disk).map_err(io::Error::other)?;
        let mut table = Table { gpt, disk_length };
        table.fit()?;
        Ok(table)
    }

    /// A table without partitions, for a disk that has none. `sector`: the unit the disk can be read in, in bytes.
    ///
    /// # Errors
    /// The disk is too small, or cannot be asked for its size.
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

    /// The disk's length in bytes.
    #[must_use]
    pub fn disk_length(&self) -> u64 {
        self.disk_length
    }

    /// Makes the header that of a first copy on a disk of this length: the table may be a backup, or
    /// written for a smaller disk.
    fn fit(&mut self) -> io::Result<()> {
        let sectors = self.disk_length / self.gpt.sector_size;
        let header = &mut self.gpt.header;
        let entries = u64::from(header.number_of_partition_entries)
            * u64::from(header.size_of_partition_entry);
        let array = entries.div_ceil(self.gpt.sector_size);
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

    /// The first partition of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Extent> {
        let (number, entry) = self
            .gpt
            .iter()
            .find(|(_, entry)| entry.is_used() && entry.partition_name.as_str() == name)?;
        Some(self.extent(number, entry))
    }

    /// Every partition: its name, and where it lies.
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

    /// The free space behind the last partition, in bytes.
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

    /// Adds a partition of this type behind the last one; `length` bytes, rounded down to MiB, or all the room there is.
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

    /// Lets the partition of this name reach to the end of the disk, or be `most` bytes long, if it is the
    /// last one and there is more than a MiB to gain.
    pub fn grow(&mut self, name: &str, most: Option<u64>) -> Option<Extent> {
        let old = self.find(name)?;
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

    /// Takes a partition out of the table.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn remove(&mut self, number: u32) -> io::Result<()> {
        let is_there = self.partitions().any(|(_, extent)| extent.number == number);
        if !is_there {
            return Err(io::Error::other(format!("no partition {number}")));
        }
        self.gpt.remove(number).map_err(io::Error::other)
    }

    /// Gives the disk an id of its own: every disk made from one image has the same.
    pub fn individualize(&mut self) {
        self.gpt.header.disk_guid = Uuid::new_v4().to_bytes_le();
    }

    /// Writes the table: the copy at the end first, and when that is safe, the one at the start.
    ///
    /// # Errors
    /// The disk cannot be written, or the partitions overlap.
    pub fn write<D: Write + Seek>(
        &self,
        disk: &mut D,
        flush: impl Fn(&mut D) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut first = self.gpt.header.clone();
        let mut second = first.clone();
        second.primary_lba = first.backup_lba;
        second.backup_lba = first.primary_lba;
        second.partition_entry_lba = first.last_usable_lba + 1;
        let sector = self.gpt.sector_size;
        let entries: Vec<GPTPartitionEntry> =
            self.gpt.iter().map(|(_, entry)| entry.clone()).collect();
        for header in [&mut second, &mut first] {
            header
                .write_into(disk, sector, &entries)
                .map_err(io::Error::other)?;
            flush(disk)?;
        }
        Ok(())
    }

    /// Writes the protective MBR of a disk that had no table (section 5.2.3), without which the kernel reads
    /// none; comes after [`Table::write`].
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn protect<D: Write + Seek>(&self, disk: &mut D) -> io::Result<()> {
        let sectors = (self.disk_length / self.gpt.sector_size).saturating_sub(1);
        let mut mbr = vec![0; MBR_FIRST];
        mbr.extend([0, 0, 2, 0, MBR_PROTECTIVE, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
        mbr.extend(u32::try_from(sectors).unwrap_or(u32::MAX).to_le_bytes());
        mbr.resize(MBR - MBR_END.len(), 0);
        mbr.extend(MBR_END);
        disk.rewind()?;
        disk.write_all(&mbr)
    }
}

/// Whether the first sector says to those who know no such table that the disk is in use (section 5.2.3).
///
/// # Errors
/// The disk cannot be read, or something else is there.
pub fn is_protected<D: Read + Seek>(disk: &mut D) -> io::Result<bool> {
    let mut sector = [0; MBR];
    disk.rewind()?;
    disk.read_exact(&mut sector)?;
    if sector.iter().all(|byte| *byte == 0) {
        return Ok(false);
    }
    let kinds = sector.iter().skip(MBR_FIRST + MBR_KIND).step_by(MBR_RECORD);
    if sector.ends_with(&MBR_END) && kinds.take(4).any(|kind| *kind == MBR_PROTECTIVE) {
        return Ok(true);
    }
    Err(io::Error::other(
        "it holds something else than a partition table of GPT",
    ))
}

/// The library takes the sizes in a header at their word, and panics when they are not the usual ones.
fn check_headers<D: Read + Seek>(disk: &mut D, disk_length: u64) -> io::Result<()> {
    for sector in [512, 4096] {
        for at in [sector, disk_length.saturating_sub(sector)] {
            let mut header = [0; 92];
            disk.seek(SeekFrom::Start(at))?;
            if disk.read_exact(&mut header).is_err() || !header.starts_with(b"EFI PART") {
                continue;
            }
            let number = |at: usize| {
                let bytes = header
                    .get(at..at + 4)
                    .and_then(|bytes| bytes.try_into().ok());
                u32::from_le_bytes(bytes.unwrap_or_default())
            };
            let usual = number(12) == HEADER
                && (1..=MOST_ENTRIES).contains(&number(80))
                && number(84) == ENTRY;
            if !usual {
                return Err(io::Error::other(
                    "the partition table has sizes that no tool makes",
                ));
            }
        }
    }
    disk.rewind()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A disk of 4 MiB with META from 1 to 2 MiB, then lengthened to `length`.
    fn disk(length: u64) -> Cursor<Vec<u8>> {
        let mut disk = Cursor::new(vec![0; 4 << 20]);
        let mut gpt = GPT::new_from(&mut disk, 512, [7; 16]).unwrap();
        gpt[3] = GPTPartitionEntry {
            partition_type_guid: TYPE_LINUX.to_bytes_le(),
            unique_partition_guid: [9; 16],
            starting_lba: 2048,
            ending_lba: 4095,
            attribute_bits: 0,
            partition_name: "META".into(),
        };
        gpt.write_into(&mut disk).unwrap();
        disk.get_mut().resize(usize::try_from(length).unwrap(), 0);
        disk
    }

    fn write(table: &Table, disk: &mut Cursor<Vec<u8>>) {
        table.write(disk, |_| Ok(())).unwrap();
    }

    #[test]
    fn partitions_are_added_and_grow_with_the_disk() {
        let mut disk = disk(64 * MIB);
        let mut table = Table::read(&mut disk).unwrap();
        let state = table
            .append("STATE", TYPE_LINUX, Some(10 * MIB + 5))
            .unwrap();
        let expected = Extent {
            number: 1,
            start: 2 * MIB,
            length: 10 * MIB,
        };
        assert_eq!(state, expected);
        let rest = table.append("EPHEMERAL", TYPE_LINUX, None).unwrap();
        assert_eq!((rest.number, rest.length), (2, 51 * MIB));
        assert_eq!(table.room(), 0);
        table.append("MORE", TYPE_LINUX, None).unwrap_err();
        write(&table, &mut disk);

        disk.get_mut().resize(100 << 20, 0);
        let mut table = Table::read(&mut disk).unwrap();
        assert_eq!(table.find("STATE"), Some(state));
        assert_eq!(table.grow("STATE", None), None);
        let limited = table.grow("EPHEMERAL", Some(60 * MIB + 5));
        assert_eq!(limited.unwrap().length, 60 * MIB);
        assert_eq!(table.grow("EPHEMERAL", Some(60 * MIB)), None);
        assert_eq!(table.grow("EPHEMERAL", None).unwrap().length, 87 * MIB);
        assert_eq!(table.grow("EPHEMERAL", None), None);
        assert_eq!(table.find("EPHEMERAL").unwrap().length, 87 * MIB);

        table.remove(2).unwrap();
        for absent in [0, 2, 128, 129] {
            table.remove(absent).unwrap_err();
        }
        write(&table, &mut disk);
        let table = Table::read(&mut disk).unwrap();
        let left: Vec<&str> = table.partitions().map(|(name, _)| name).collect();
        assert_eq!(left, ["STATE", "META"]);
    }

    #[test]
    fn a_power_cut_at_any_write_leaves_a_table() {
        // Every prefix of the sequence of writes, the last one torn.
        struct Cut {
            disk: Cursor<Vec<u8>>,
            left: usize,
        }
        impl Write for Cut {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                let taken = data.len().min(self.left);
                self.left -= taken;
                let done = self.disk.write(data.get(..taken).unwrap_or_default())?;
                if done < data.len() {
                    return Err(io::Error::other("power cut"));
                }
                Ok(done)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl Seek for Cut {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.disk.seek(to)
            }
        }
        for left in (0..34_000).step_by(97) {
            let before = disk(8 * MIB);
            let mut table = Table::read(&mut before.clone()).unwrap();
            table.append("STATE", TYPE_LINUX, Some(4 * MIB)).unwrap();
            let mut cut = Cut { disk: before, left };
            let whole = table.write(&mut cut, |_| Ok(())).is_ok();
            let after = Table::read(&mut cut.disk).unwrap();
            assert!(after.find("META").is_some());
            assert!(after.find("STATE").is_some() || !whole);
        }
    }

    #[test]
    fn what_is_no_table_is_an_error_and_no_panic() {
        let mut blank = Cursor::new(vec![0; 1 << 20]);
        Table::read(&mut blank).unwrap_err();
        Table::read(&mut Cursor::new(Vec::new())).unwrap_err();
        // Sizes in the header, then every byte of it.
        let good = disk(16 * MIB);
        for at in 512..604 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad.get_mut()[at] = value;
                if let Ok(table) = Table::read(&mut bad) {
                    assert!(table.find("META").is_some());
                }
            }
        }
        // Shorter than the table says.
        let mut short = disk(16 * MIB);
        short.get_mut().truncate(1 << 20);
        Table::read(&mut short).unwrap_err();
    }
}
