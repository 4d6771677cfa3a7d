//! Emptying disks and partitions: which parts of them, in which order, and how.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use corten_base::console;
use corten_base::sysfs;
use corten_sys::blkpg;
use rustix::fs::{FallocateFlags, OFlags, fallocate, major, minor};
use uuid::Uuid;

use super::alone::alone;
use super::disk::{Disk, open_on};
use super::table::{Extent, Table};
use super::user::Signature;
use super::{BUSY_PAUSE, MIB, STATE, WIPED, disk, made, while_busy};

/// What holds secrets of the node; all of it is emptied, whatever the disk can.
const SECRET: [&str; 2] = [STATE.name, "META"];
/// What firmware starts the node from.
pub const STARTED_FROM: [&str; 2] = ["EFI", "BIOS"];
/// Holds the partition table at either end of a disk, and what else is kept there by convention (RAID).
const EDGE: u64 = MIB;
/// As much as is emptied between two signs of life, in bytes: a slow card takes some ten seconds for it.
const PIECE: u64 = 64 * MIB;
/// As much as is written at a time.
const CHUNK: usize = 1 << 20;

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

/// Empties a partition of the disk of this number; `whole` when it is not enough that it is taken for empty. The kernel
/// may still write back a file system that was unmounted just before: that is waited for.
///
/// # Errors
/// `EBUSY` while it is in use.
pub(super) fn partition(
    sequence: u64,
    device: &Path,
    whole: bool,
    alive: &dyn Fn(),
) -> io::Result<()> {
    let (mut file, length) = while_busy(BUSY_PAUSE, || open(sequence, device))?;
    let part = if whole {
        Part::whole(0, length)
    } else {
        Part::beginning(0, length)
    };
    empty(&mut file, part, alive)
}

/// Empties the disk that carries the node. What still uses it, after all was ended and unmounted, is of no
/// more use than what it would keep on the disk.
///
/// # Errors
/// It cannot be read or written; then what comes later in the order is as it was.
pub(super) fn system_disk(sequence: u64, device: &Path, alive: &dyn Fn()) -> io::Result<()> {
    let (mut file, length) = match open(sequence, device) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            console::warn(&format!(
                "{} is emptied though something still uses it",
                device.display()
            ));
            with_length(open_on(
                sequence,
                device,
                File::options().read(true).write(true),
            )?)?
        }
        opened => opened?,
    };
    let table = Table::read(&mut file)?;
    for part in parts(Some(&table), length) {
        empty(&mut file, part, alive)?;
    }
    Ok(())
}

/// Empties another disk.
///
/// # Errors
/// `EBUSY` while something on it is in use; or another one has its name.
pub(super) fn other_disk(sequence: u64, device: &Path, alive: &dyn Fn()) -> io::Result<()> {
    let (mut file, length) = open(sequence, device)?;
    let table = Table::read(&mut file).ok();
    for part in parts(table.as_ref(), length) {
        empty(&mut file, part, alive)?;
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
    /// The number of the disk it is, or is on; 0: it is not known.
    pub sequence: u64,
    /// Every byte becomes zero; else only those that say what lies there.
    pub zeros: bool,
    /// A partition is taken out of its disk's table afterwards.
    pub drop_partition: bool,
}

impl DeviceWipe {
    /// Does it; of a large disk it may take hours.
    ///
    /// # Errors
    /// `EBUSY` while it is in use; or another disk has the name by now.
    pub fn carry_out(&self) -> io::Result<()> {
        let disk = self.disk();
        let _alone = alone(&disk.name)?;
        let device = Path::new("/dev").join(&self.device);
        let (mut file, length) = open(self.sequence, &device)?;
        match &self.partition_of {
            Some((_, number)) if self.drop_partition => {
                // Nobody uses it, and nobody comes to use it once the kernel has forgotten it.
                drop(file);
                return self.drop_partition(&disk, *number);
            }
            Some((_, number)) => made::forget(&disk, |_, extent| extent.number == *number)?,
            None => forget_all(&file, &disk::extents(Path::new("/sys"), &self.device))?,
        }
        let parts = self.parts(&mut file, length);
        parts
            .iter()
            .try_for_each(|part| empty(&mut file, *part, &|| ()))
    }

    /// The ids of the partitions that are gone afterwards, and that of a volume which is the whole disk.
    #[must_use]
    pub fn ends(&self) -> Vec<Uuid> {
        let disk = self.disk();
        match &self.partition_of {
            None => volumes_on(&disk),
            Some((_, number)) => {
                let is_dropped = |extent: Extent| self.drop_partition && extent.number == *number;
                partitions_on(&disk, is_dropped)
            }
        }
    }

    /// The id of the partition that is empty afterwards, and is there still.
    #[must_use]
    pub fn emptied(&self) -> Vec<Uuid> {
        let is_it = |number: u32| partitions_on(&self.disk(), |extent| extent.number == number);
        let number = self.partition_of.as_ref().map(|(_, number)| *number);
        number.map(is_it).unwrap_or_default()
    }

    /// The disk it is, or is on.
    fn disk(&self) -> Disk {
        let disk = self.partition_of.as_ref().map(|(disk, _)| disk);
        Disk::new(disk.unwrap_or(&self.device), self.sequence)
    }

    fn drop_partition(&self, disk: &Disk, number: u32) -> io::Result<()> {
        let mut disk = disk.open_to_write()?;
        let mut table = Table::read(&mut disk)?;
        let extent = table.remove(number)?;
        forget_all(&disk, &[extent])?;
        let parts = self.parts(&mut disk, extent.length);
        let emptied = parts.iter().try_for_each(|part| {
            let start = extent.start + part.start;
            empty(&mut disk, Part { start, ..*part }, &|| ())
        });
        let done = emptied.and_then(|()| table.write(&mut disk, |disk| disk.sync_all()));
        if done.is_err() {
            let _ = blkpg::add(&disk, number, extent.start, extent.length);
        }
        done
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

/// The ids of all that is on a disk and may be a volume: its partitions, or what it is as a whole.
pub(super) fn volumes_on(disk: &Disk) -> Vec<Uuid> {
    let whole = disk.open().and_then(|disk| Signature::of(&disk));
    let whole = whole.ok().flatten().map(|signature| signature.id);
    let mut all = partitions_on(disk, |_| true);
    all.extend(whole);
    all
}

/// The ids of those partitions of a disk that are meant; none of one that cannot be read.
fn partitions_on(disk: &Disk, is_meant: impl Fn(Extent) -> bool) -> Vec<Uuid> {
    let table = disk.open().and_then(|mut disk| Table::read(&mut disk));
    let Ok(table) = table else { return Vec::new() };
    let extents = table.partitions().map(|(_, extent)| extent);
    let meant = extents.filter(|extent| is_meant(*extent));
    meant.map(|extent| table.id(extent)).collect()
}

/// Makes the kernel forget all of these partitions, or none: it refuses when one is open.
pub(super) fn forget_all(disk: &File, partitions: &[Extent]) -> io::Result<()> {
    for (at, partition) in partitions.iter().enumerate() {
        if let Err(error) = while_busy(BUSY_PAUSE, || blkpg::remove(disk, partition.number)) {
            for gone in partitions.iter().take(at) {
                let _ = blkpg::add(disk, gone.number, gone.start, gone.length);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// For nobody else as long as it is open; and how long it is, in bytes. It is the disk of this number, or on it.
///
/// # Errors
/// `EBUSY` while it is in use, or one of its partitions.
pub(super) fn open(sequence: u64, device: &Path) -> io::Result<(File, u64)> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let options = &mut File::options();
    let options = options.read(true).write(true).custom_flags(exclusive);
    with_length(open_on(sequence, device, options)?)
}

fn with_length(mut file: File) -> io::Result<(File, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    Ok((file, length))
}

/// Makes a part read as zeros, piece by piece; it is on the disk when this returns. `alive` is called between them.
fn empty(file: &mut File, part: Part, alive: &dyn Fn()) -> io::Result<()> {
    let mut forgets = forgets(file);
    let length = |forgets| if forgets { part.length } else { part.written };
    let mut done = 0;
    while done < length(forgets) {
        let (start, left) = (part.start + done, part.length - done);
        let by_itself = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A header goes before the keys it speaks of: a power cut leaves no volume that nothing opens.
        let most = if done == 0 { EDGE } else { PIECE };
        let mut piece = most.min(left);
        if !forgets || fallocate(&*file, by_itself, start, piece).is_err() {
            forgets = false;
            piece = most.min(part.written.saturating_sub(done));
            write_zeros(file, start, piece)?;
        }
        file.sync_data()?;
        done += piece;
        alive();
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

/// So many bytes from there on; they need not be on the disk yet.
pub(super) fn write_zeros<D: Write + Seek>(
    device: &mut D,
    start: u64,
    length: u64,
) -> io::Result<()> {
    device.seek(SeekFrom::Start(start))?;
    let zeros = vec![0; CHUNK];
    let mut left = length;
    while left > 0 {
        let next = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        device.write_all(zeros.get(..next).unwrap_or_default())?;
        left -= next as u64;
    }
    device.flush()
}

#[cfg(test)]
#[path = "wipe_tests.rs"]
mod tests;
