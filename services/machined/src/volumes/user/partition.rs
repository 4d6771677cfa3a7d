//! A partition of a user volume: planned by what a disk holds, then made, found again or grown.
//!
//! A disk without a table gets one only when it is empty: its first and its last MiB read as zeros. What a power
//! cut leaves unfinished is carried on at the next attempt.

use std::io::{self, Read, Seek, SeekFrom, Write};

use corten_config::values::MaxSize;
use uuid::Uuid;

use crate::volumes::partitions::wipe_start;
use crate::volumes::table::{Extent, TYPE_LINUX, TYPE_SWAP, Table, is_protected};

const MIB: u64 = 1 << 20;
/// Where a file system, a table or a part of an array would have left something, in bytes from either end.
const LOOKED_AT: u64 = MIB;
/// Bytes of a new table's entries, which the header follows at the disk's end.
const ENTRIES: u64 = 128 * 128;
/// What a header begins with.
const MAGIC: &[u8; 8] = b"EFI PART";

/// The partition that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The partition's name.
    pub label: &'a str,
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
    /// What is done to it.
    pub change: Change,
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
        let is_unprotected = !is_protected(disk)?;
        if is_unprotected && !starts_as_made(disk)? {
            return Err(foreign());
        }
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
        let (extent, change) = match table.find(wish.label) {
            Some(found) => {
                let larger = wish.grow.then(|| table.grow(wish.label, most)).flatten();
                larger.map_or((found, Change::None), |larger| (larger, Change::Grown))
            }
            None => (append(&mut table, wish, most)?, Change::New),
        };
        Ok(Plan {
            extent,
            change,
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

/// Whether a disk has a partition of this name.
///
/// # Errors
/// It cannot be read, or has a table that is damaged.
pub fn has<D: Read + Seek>(disk: &mut D, label: &str) -> io::Result<bool> {
    match Table::read(disk) {
        Ok(table) => Ok(table.find(label).is_some()),
        Err(_) if !is_protected(disk)? => Ok(false),
        Err(error) => Err(error),
    }
}

fn append(table: &mut Table, wish: &Wish<'_>, most: Option<u64>) -> io::Result<Extent> {
    let least = wish.least.next_multiple_of(MIB);
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

fn is_zero<D: Read + Seek>(disk: &mut D, start: u64, length: u64) -> io::Result<bool> {
    disk.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    disk.by_ref().take(length).read_to_end(&mut bytes)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const LENGTH: usize = 64 << 20;

    fn empty() -> Cursor<Vec<u8>> {
        Cursor::new(vec![0; LENGTH])
    }

    fn wish(label: &str) -> Wish<'_> {
        Wish {
            label,
            kind: TYPE_LINUX,
            least: 8 * MIB,
            most: Some(MaxSize::Bytes(20 * MIB)),
            grow: false,
        }
    }

    fn make(disk: &mut Cursor<Vec<u8>>, wish: &Wish<'_>) -> Plan {
        let plan = Plan::on(disk, 512, wish).unwrap();
        plan.carry_out(disk, |_| Ok(())).unwrap();
        plan
    }

    fn refusal(disk: &mut Cursor<Vec<u8>>, wish: &Wish<'_>) -> String {
        let before = disk.get_ref().clone();
        let why = Plan::on(disk, 512, wish).unwrap_err().to_string();
        assert!(before == *disk.get_ref());
        why
    }

    #[test]
    fn an_empty_disk_gets_a_table_and_partitions_are_found_again() {
        for sector in [512, 4096] {
            let mut disk = empty();
            let first = Plan::on(&mut disk, sector, &wish("u-a")).unwrap();
            first.carry_out(&mut disk, |_| Ok(())).unwrap();
            assert_eq!(first.change, Change::New);
            assert_eq!((first.extent.start, first.extent.length), (MIB, 20 * MIB));
            let second = make(&mut disk, &wish("r-b"));
            assert_eq!((second.extent.number, second.extent.start), (2, 21 * MIB));
            let again = Plan::on(&mut disk, sector, &wish("u-a")).unwrap();
            assert_eq!((again.change, again.extent), (Change::None, first.extent));
            assert!(!again.writes());
            // The kernel reads no table without it.
            assert_eq!(disk.get_ref()[450], 0xee);
            assert_eq!(disk.get_ref()[510..512], [0x55, 0xaa]);
        }
    }

    #[test]
    fn what_lay_where_a_partition_is_made_is_gone_and_nothing_else() {
        let mut disk = empty();
        make(&mut disk, &wish("u-a"));
        disk.get_mut()[usize::try_from(2 * MIB).unwrap()] = 7;
        disk.get_mut()[usize::try_from(22 * MIB).unwrap()] = 7;
        make(&mut disk, &wish("u-b"));
        assert_eq!(disk.get_ref()[usize::try_from(2 * MIB).unwrap()], 7);
        assert_eq!(disk.get_ref()[usize::try_from(22 * MIB).unwrap()], 0);
    }

    #[test]
    fn sizes_are_kept_to() {
        let mut disk = empty();
        let half = Wish {
            most: Some(MaxSize::Percent(50)),
            ..wish("u-a")
        };
        assert_eq!(make(&mut disk, &half).extent.length, 31 * MIB);
        let too_large = Wish {
            least: 40 * MIB,
            most: None,
            ..wish("u-b")
        };
        let why = refusal(&mut disk, &too_large);
        assert_eq!(why, "it has 31 MiB for it, and 40 are needed");
        let rest = Wish {
            most: None,
            ..wish("u-b")
        };
        assert_eq!(make(&mut disk, &rest).extent.length, 31 * MIB);
        // Not the last, and full.
        let grow = Wish {
            grow: true,
            most: None,
            ..wish("u-a")
        };
        assert!(!Plan::on(&mut disk, 512, &grow).unwrap().writes());
        disk.get_mut().resize(LENGTH * 2, 0);
        let grow = Wish {
            label: "u-b",
            ..grow
        };
        let grown = make(&mut disk, &grow);
        assert_eq!(
            (grown.change, grown.extent.length),
            (Change::Grown, 95 * MIB)
        );
        assert!(!Plan::on(&mut disk, 512, &grow).unwrap().writes());
    }

    #[test]
    fn a_disk_that_holds_something_is_left_alone() {
        // XFS, ext4, btrfs, an array at the end, a table of MBR.
        let contents: [(usize, &[u8]); 6] = [
            (0, b"XFSB"),
            (1080, &[0x53, 0xef]),
            (0x1_0040, b"_BHRfS_M"),
            (LENGTH - 8192, &[0xfc, 0x4e, 0x2b, 0xa9]),
            (LENGTH - (64 << 10), &[0xfc, 0x4e, 0x2b, 0xa9]),
            (450, &[0x83]),
        ];
        for (at, bytes) in contents {
            let mut disk = empty();
            disk.get_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            let why = refusal(&mut disk, &wish("u-a"));
            assert!(why.contains("it holds something"), "{why}");
        }
        let mut small = Cursor::new(vec![0; 1 << 20]);
        let why = refusal(&mut small, &wish("u-a"));
        assert!(why.contains("too small"), "{why}");
        Plan::on(&mut Cursor::new(vec![]), 512, &wish("u-a")).unwrap_err();
    }

    #[test]
    fn a_file_system_made_over_a_table_is_left_alone() {
        let mut disk = empty();
        make(&mut disk, &wish("u-a"));
        // mke2fs clears the first two sectors and writes its own; the copy at the end stays.
        disk.get_mut()[..2048].fill(0);
        disk.get_mut()[1080..1082].copy_from_slice(&[0x53, 0xef]);
        let why = refusal(&mut disk, &wish("u-b"));
        assert!(why.contains("it holds something"), "{why}");
    }

    /// Takes so many bytes and no more; what is written at once is written whole.
    struct Cut {
        disk: Cursor<Vec<u8>>,
        left: usize,
    }

    impl Write for Cut {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let left = self.left.checked_sub(data.len());
            self.left = left.ok_or_else(|| io::Error::other("power cut"))?;
            self.disk.write(data)
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

    #[test]
    fn a_power_cut_at_any_write_is_carried_on() {
        let small = Wish {
            least: MIB,
            most: Some(MaxSize::Bytes(MIB)),
            ..wish("r-a")
        };
        let before = Cursor::new(vec![0; 4 << 20]);
        let plan = Plan::on(&mut before.clone(), 512, &small).unwrap();
        let wiped = 1 << 20;
        // Two tables of 16.1 KiB and the first sector; the wiping before them cuts nothing.
        let mut whole = 0;
        for left in (wiped..wiped + 33_600).step_by(61) {
            let mut cut = Cut {
                disk: before.clone(),
                left,
            };
            whole += usize::from(plan.carry_out(&mut cut, |_| Ok(())).is_ok());
            make(&mut cut.disk, &small);
            let again = Plan::on(&mut cut.disk, 512, &small).unwrap();
            assert!(!again.writes(), "{left}");
        }
        assert!(whole > 0);
    }
}
