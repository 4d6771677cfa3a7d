//! Emptying disks and partitions: which parts of them, in which order, and how.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use corten_sys::blkpg;
use rustix::fs::{FallocateFlags, OFlags, fallocate, major, minor};

use super::table::Table;
use super::{MIB, STATE, WIPED, disk};
use crate::{console, sysfs};

/// What holds secrets of the node; all of it is emptied, whatever the disk can.
const SECRET: [&str; 2] = [STATE.name, "META"];
/// What firmware starts the node from.
pub const STARTED_FROM: [&str; 2] = ["EFI", "BIOS"];
/// Holds the partition table at either end of a disk, and what else is kept there by convention (RAID).
const EDGE: u64 = MIB;
/// As much as is written at a time.
const CHUNK: usize = 1 << 20;
/// udevd looks at what was written to, and the kernel does not forget a partition that somebody has open.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSES: u32 = 100;

/// A part of a device that is emptied, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: u64,
    length: u64,
    /// So much of it, from its start, is written where the disk cannot forget all of it by itself.
    written: u64,
}

impl Part {
    fn whole(start: u64, length: u64) -> Part {
        Part {
            start,
            length,
            written: length,
        }
    }

    /// As much of it as is enough to be taken for empty.
    fn beginning(start: u64, length: u64) -> Part {
        Part {
            start,
            length,
            written: length.min(WIPED),
        }
    }
}

/// The parts of a disk or a partition in the order in which they are emptied: what is secret, what else lies on
/// it, what a node starts from, and last the partition table, its copy before it. So a power cut leaves a node
/// that starts and can be reset again, or a disk without secrets that nothing starts from.
fn parts(table: Option<&Table>, length: u64) -> Vec<Part> {
    let mut partitions: Vec<_> = table.into_iter().flat_map(Table::partitions).collect();
    partitions.sort_by_key(|(name, extent)| (rank(name), extent.start));
    let mut parts: Vec<Part> = partitions
        .iter()
        .map(|(name, extent)| {
            if SECRET.contains(name) {
                Part::whole(extent.start, extent.length)
            } else {
                Part::beginning(extent.start, extent.length)
            }
        })
        .collect();
    let edge = EDGE.min(length);
    parts.push(Part::whole(length - edge, edge));
    parts.push(Part::beginning(0, length));
    parts
}

/// Its partition's place in the order.
fn rank(name: &str) -> usize {
    match SECRET.iter().position(|secret| *secret == name) {
        Some(place) => place,
        None if STARTED_FROM.contains(&name) => SECRET.len() + 1,
        None => SECRET.len(),
    }
}

/// Empties a partition; `whole` when it is not enough that it is taken for empty.
///
/// # Errors
/// `EBUSY` while it is in use.
pub(super) fn partition(device: &Path, whole: bool) -> io::Result<()> {
    let (mut file, length) = open(device)?;
    let part = if whole {
        Part::whole(0, length)
    } else {
        Part::beginning(0, length)
    };
    empty(&mut file, part)
}

/// Empties the disk that carries the node. What still uses it, after all was ended and unmounted, is of no
/// more use than what it would keep on the disk.
///
/// # Errors
/// It cannot be read or written; then what comes later in the order is as it was.
pub(super) fn system_disk(device: &Path) -> io::Result<()> {
    let (mut file, length) = match open(device) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            console::warn(&format!(
                "{} is emptied though something still uses it",
                device.display()
            ));
            let file = OpenOptions::new().read(true).write(true).open(device)?;
            with_length(file)?
        }
        opened => opened?,
    };
    let table = Table::read(&mut file)?;
    for part in parts(Some(&table), length) {
        empty(&mut file, part)?;
    }
    Ok(())
}

/// Empties another disk.
///
/// # Errors
/// `EBUSY` while something on it is in use.
pub(super) fn other_disk(device: &Path) -> io::Result<()> {
    let (mut file, length) = open(device)?;
    let table = Table::read(&mut file).ok();
    for part in parts(table.as_ref(), length) {
        empty(&mut file, part)?;
    }
    Ok(())
}

/// A disk or partition that nobody uses, and how it is wiped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWipe {
    /// The kernel's name (`vdb`, `vdb1`).
    pub device: String,
    /// Of a partition: its disk, and its number.
    pub partition_of: Option<(String, u32)>,
    /// Every byte becomes zero; else only those that say what lies there.
    pub zeros: bool,
    /// A partition is taken out of its disk's table afterwards.
    pub drop_partition: bool,
}

impl DeviceWipe {
    /// Does it; of a large disk it may take hours.
    ///
    /// # Errors
    /// `EBUSY` while it is in use.
    pub fn carry_out(&self) -> io::Result<()> {
        let devices = Path::new("/dev");
        let (mut file, length) = open(&devices.join(&self.device))?;
        for part in self.parts(&mut file, length) {
            empty(&mut file, part)?;
        }
        match &self.partition_of {
            None => {
                for number in disk::numbers(Path::new("/sys"), &self.device) {
                    forget(&file, number)?;
                }
            }
            Some((disk, number)) if self.drop_partition => {
                drop(file);
                drop_partition(&devices.join(disk), *number)?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn parts(&self, file: &mut File, length: u64) -> Vec<Part> {
        if self.zeros {
            return vec![Part::whole(0, length)];
        }
        let table = match self.partition_of {
            None => Table::read(file).ok(),
            Some(_) => None,
        };
        let mut parts = parts(table.as_ref(), length);
        for part in &mut parts {
            *part = Part::whole(part.start, part.length.min(WIPED));
        }
        parts
    }
}

/// The kernel first: while it knows the partition, somebody may come to use it.
fn drop_partition(disk: &Path, number: u32) -> io::Result<()> {
    let mut disk = OpenOptions::new().read(true).write(true).open(disk)?;
    let mut table = Table::read(&mut disk)?;
    table.remove(number)?;
    forget(&disk, number)?;
    table.write(&mut disk, |disk| disk.sync_all())
}

fn forget(disk: &File, number: u32) -> io::Result<()> {
    let mut pauses = 0;
    loop {
        match blkpg::remove(disk, number) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && pauses < PAUSES => {
                pauses += 1;
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// For nobody else as long as it is open; and how long it is, in bytes.
fn open(device: &Path) -> io::Result<(File, u64)> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(exclusive)
        .open(device)?;
    with_length(file)
}

fn with_length(mut file: File) -> io::Result<(File, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    Ok((file, length))
}

/// Makes a part read as zeros; it is on the disk when this returns.
fn empty(file: &mut File, part: Part) -> io::Result<()> {
    let length = if forgets(file) {
        part.length
    } else {
        part.written
    };
    let by_itself = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(&*file, by_itself, part.start, length).is_err() {
        write_zeros(file, part.start, part.written)?;
    }
    file.sync_all()
}

/// Whether it takes the disk no writing to forget what it held (Documentation/ABI/stable/sysfs-block,
/// `discard_max_bytes`). A partition's queue is its disk's.
fn forgets(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    if !metadata.file_type().is_block_device() {
        return true;
    }
    let number = metadata.rdev();
    let device = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    ["queue", "../queue"].iter().any(|queue| {
        let bytes = sysfs::read(&Path::new(&device).join(queue).join("discard_max_bytes"));
        bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0)
    })
}

fn write_zeros(file: &mut File, start: u64, length: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(start))?;
    let zeros = vec![0; CHUNK];
    let mut left = length;
    while left > 0 {
        let next = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        file.write_all(zeros.get(..next).unwrap_or_default())?;
        left -= next as u64;
    }
    Ok(())
}

#[cfg(test)]
#[path = "wipe_tests.rs"]
mod tests;
