//! The record that QEMU makes of a guest's writes, and a disk in any state in which a power cut may leave it.
//!
//! Format: `drivers/md/dm-log-writes.c` of Linux, as QEMU's driver `blklogwrites` writes it. Numbers are little-endian.
//! A header fills the first sector. Each entry is a sector with its numbers, followed by the written sectors.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Size of a sector of disk and log, in bytes.
pub const SECTOR: u64 = 512;
/// First number of the header.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Flags of an entry.
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// A write of the guest, or a flush without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Offset on the disk, in bytes.
    pub at: u64,
    /// Length, in bytes; 0 for a flush.
    pub length: u64,
    /// All earlier writes are durable.
    pub is_flush: bool,
    /// Offset of the data in the log; `None`: the guest discarded the range.
    data: Option<u64>,
}

impl Entry {
    /// Whether the entry changes a byte of `range`.
    #[must_use]
    pub fn touches(&self, range: &std::ops::Range<u64>) -> bool {
        self.length > 0 && self.at < range.end && range.start < self.at + self.length
    }
}

/// The log of a disk.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    /// The entries, in the guest's order.
    pub entries: Vec<Entry>,
}

impl WriteLog {
    /// Reads the log of a machine, which may still run.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub fn open(path: &Path) -> io::Result<WriteLog> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let header = numbers(&file, 0)?;
        if header[0] != MAGIC || header[3] & 0xffff_ffff != SECTOR {
            return Err(io::Error::other(
                "not a log of writes with 512-byte sectors",
            ));
        }
        let mut entries = Vec::new();
        let mut at = SECTOR;
        while at + SECTOR <= length {
            let [sector, sectors, flags, _] = numbers(&file, at)?;
            let bytes = sectors * SECTOR;
            at += SECTOR;
            let is_discard = flags & DISCARD != 0;
            let data = (!is_discard).then_some(at);
            if !is_discard {
                at += bytes;
            }
            // The last write of a machine that was killed may be incomplete.
            if at > length {
                break;
            }
            entries.push(Entry {
                at: sector * SECTOR,
                length: bytes,
                is_flush: flags & FLUSH != 0,
                data,
            });
        }
        Ok(WriteLog { file, entries })
    }

    /// Writes the sectors `from..to` of an entry to the disk. A discarded range is left as it is: a disk may return
    /// either bytes.
    ///
    /// # Errors
    /// A file fails.
    pub fn apply(
        &self,
        entry: &Entry,
        sectors: std::ops::Range<u64>,
        disk: &File,
    ) -> io::Result<()> {
        let Some(data) = entry.data else {
            return Ok(());
        };
        let length = (sectors.end - sectors.start) * SECTOR;
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        let skipped = sectors.start * SECTOR;
        self.file.read_exact_at(&mut bytes, data + skipped)?;
        disk.write_all_at(&bytes, entry.at + skipped)
    }

    /// Writes a whole entry to the disk.
    ///
    /// # Errors
    /// A file fails.
    pub fn apply_all(&self, entry: &Entry, disk: &File) -> io::Result<()> {
        self.apply(entry, 0..entry.length / SECTOR, disk)
    }
}

/// The first four numbers of a sector.
fn numbers(file: &File, at: u64) -> io::Result<[u64; 4]> {
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, at)?;
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sector that begins with these numbers.
    fn sector(numbers: &[u64]) -> Vec<u8> {
        let mut sector: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
        sector.resize(512, 0);
        sector
    }

    #[test]
    fn entries_are_read_up_to_an_incomplete_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (log, disk) = (scratch.path().join("log"), scratch.path().join("disk"));
        let content = [
            sector(&[MAGIC, 1, 3, SECTOR]),
            sector(&[4, 2, 0, 0]),
            vec![1; 512],
            vec![2; 512],
            sector(&[0, 0, FLUSH, 0]),
            sector(&[4, 1, DISCARD, 0]),
            sector(&[9, 2, 0, 0]),
            vec![3; 512],
        ];
        std::fs::write(&log, content.concat()).unwrap();
        let log = WriteLog::open(&log).unwrap();
        let [write, flush, discard] = log.entries[..] else {
            panic!("{:?}", log.entries);
        };
        assert!(flush.is_flush && !write.is_flush);
        assert!(write.touches(&(2560..9999)) && !write.touches(&(3072..9999)));
        assert!(!flush.touches(&(0..1)));
        std::fs::write(&disk, [9; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&disk).unwrap();
        log.apply(&write, 1..2, &file).unwrap();
        log.apply_all(&discard, &file).unwrap();
        let found = std::fs::read(&disk).unwrap();
        assert_eq!([found[2048], found[2560], found[3072]], [9, 2, 9]);
        log.apply_all(&write, &file).unwrap();
        assert_eq!(std::fs::read(&disk).unwrap()[2048], 1);
    }

    #[test]
    fn other_file_is_refused() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), [0; 1024]).unwrap();
        WriteLog::open(scratch.path()).unwrap_err();
    }
}
