//! Empties disks and partitions: which parts, in which order, and how.

use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use corten_base::console;
use corten_base::sysfs;
use corten_sys::blkpg;
use rustix::fs::{FallocateFlags, OFlags, fallocate, major, minor};
use uuid::Uuid;

use super::alone::lock_disk;
use super::disk::{Disk, open_on};
use super::table::{Extent, Table};
use super::user::Signature;
use super::zeros::write_zeros;
use super::{BUSY_PAUSE, MIB, STATE, WIPED, disk, made, while_busy};

/// Partitions with secrets of the node; they are emptied completely, whatever the disk supports.
const SECRET: [&str; 2] = [STATE.name, "META"];
/// Partitions from which the firmware starts the node.
pub const STARTED_FROM: [&str; 2] = ["EFI", "BIOS"];
/// Bytes at either end of a disk with the partition table and, by convention, RAID metadata.
const EDGE: u64 = MIB;
/// Bytes emptied between two signs of life; a slow card takes some ten seconds for it.
const PIECE: u64 = 64 * MIB;

/// A part of a device to empty, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: u64,
    length: u64,
    /// Bytes from its start to overwrite if the disk cannot discard.
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

    /// A part that is emptied just enough to be taken for empty.
    fn beginning(start: u64, length: u64) -> Part {
        Part {
            start,
            length,
            written: length.min(WIPED),
        }
    }
}

/// Parts of a disk or partition in the order in which they are emptied: secrets, other partitions, boot partitions. The
/// last one is the partition table, after its copy. A power cut leaves a bootable node that can be reset again, or an
/// unbootable disk without secrets.
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

/// Position of a partition in the order.
fn rank(name: &str) -> usize {
    match SECRET.iter().position(|secret| *secret == name) {
        Some(place) => place,
        None if STARTED_FROM.contains(&name) => SECRET.len() + 1,
        None => SECRET.len(),
    }
}

/// Empties a partition of the disk with this sequence number: all of it, or with `whole` unset only enough to be taken
/// for empty. Retries while the kernel writes back a file system that was just unmounted.
///
/// # Errors
/// `EBUSY` if it stays in use.
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

/// Empties the system disk, even if it is in use: all services have ended, and whatever is left needs nothing on the
/// disk.
///
/// # Errors
/// The disk cannot be read or written. The remaining parts in the order are then untouched.
pub(super) fn system_disk(sequence: u64, device: &Path, alive: &dyn Fn()) -> io::Result<()> {
    let (mut file, length) = match open(sequence, device) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            console::warn(&format!(
                "{} is wiped although it is still in use",
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
/// `EBUSY` if anything on it is in use; also if another disk has its name now.
pub(super) fn other_disk(sequence: u64, device: &Path, alive: &dyn Fn()) -> io::Result<()> {
    let (mut file, length) = open(sequence, device)?;
    let table = Table::read(&mut file).ok();
    for part in parts(table.as_ref(), length) {
        empty(&mut file, part, alive)?;
    }
    Ok(())
}

/// An unused disk or partition and how to wipe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWipe {
    /// The kernel's name (`vdb`, `vdb1`).
    pub device: String,
    /// Disk and number, for a partition.
    pub partition_of: Option<(String, u32)>,
    /// Sequence number of the disk; 0 if unknown.
    pub sequence: u64,
    /// Whether every byte is zeroed, or only those that identify the content.
    pub zeros: bool,
    /// Whether the partition is removed from the table afterwards.
    pub drop_partition: bool,
}

impl DeviceWipe {
    /// Wipes the device, which may take hours on a large disk.
    ///
    /// # Errors
    /// `EBUSY` if it is in use; also if another disk has its name now.
    pub fn carry_out(&self) -> io::Result<()> {
        let disk = self.disk();
        let _alone = lock_disk(&disk.name)?;
        let device = Path::new("/dev").join(&self.device);
        let (mut file, length) = open(self.sequence, &device)?;
        match &self.partition_of {
            Some((_, number)) if self.drop_partition => {
                // The exclusive open proved it unused, and once the kernel has forgotten it, nothing can open it.
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

    /// Ids of the partitions that are gone afterwards, and of a volume that is the whole disk.
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

    /// Id of the partition that is emptied but still exists.
    #[must_use]
    pub fn emptied(&self) -> Vec<Uuid> {
        let is_it = |number: u32| partitions_on(&self.disk(), |extent| extent.number == number);
        let number = self.partition_of.as_ref().map(|(_, number)| *number);
        number.map(is_it).unwrap_or_default()
    }

    /// The disk itself, or that of the partition.
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

/// Ids of all possible volumes on a disk: its partitions, and the disk as a whole.
pub(super) fn volumes_on(disk: &Disk) -> Vec<Uuid> {
    let whole = disk.open().and_then(|disk| Signature::of(&disk));
    let whole = whole.ok().flatten().map(|signature| signature.id);
    let mut all = partitions_on(disk, |_| true);
    all.extend(whole);
    all
}

/// Ids of the selected partitions of a disk; empty if it cannot be read.
fn partitions_on(disk: &Disk, is_meant: impl Fn(Extent) -> bool) -> Vec<Uuid> {
    let table = disk.open().and_then(|mut disk| Table::read(&mut disk));
    let Ok(table) = table else { return Vec::new() };
    let extents = table.partitions().map(|(_, extent)| extent);
    let meant = extents.filter(|extent| is_meant(*extent));
    meant.map(|extent| table.id(extent)).collect()
}

/// Makes the kernel forget all these partitions, or none: it refuses if one is open.
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

/// Opens a disk or partition exclusively, checks its disk's sequence number, and returns its length in bytes.
///
/// # Errors
/// `EBUSY` while it, or one of its partitions, is in use.
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

/// Zeroes a part piece by piece and syncs it to the disk. Calls `alive` after each piece.
fn empty(file: &mut File, part: Part, alive: &dyn Fn()) -> io::Result<()> {
    let mut forgets = forgets(file);
    let length = |forgets| if forgets { part.length } else { part.written };
    let mut done = 0;
    while done < length(forgets) {
        let (start, left) = (part.start + done, part.length - done);
        let by_itself = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A header is erased before its keys, so that a power cut leaves no volume that cannot be opened.
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

/// Whether the disk can discard its content without writes (Documentation/ABI/stable/sysfs-block, `discard_max_bytes`).
/// A partition uses its disk's queue.
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

#[cfg(test)]
#[path = "wipe_tests.rs"]
mod tests;
