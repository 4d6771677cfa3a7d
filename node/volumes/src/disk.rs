//! Finds the system disk and detects the content of partitions.

use std::cell::LazyCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corten_base::efi;
use corten_base::mode::{Ability, Mode};
use corten_base::mounts;
use corten_base::sysfs::read;
use corten_luks::Luks;
use corten_sys::diskseq;
use uuid::Uuid;

use super::table::{Extent, Table};

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The kernel's name (`vda`). A replacement disk can get the same name.
    pub name: String,
    /// The kernel's sequence number of the disk, unique in this boot; 0 if unknown.
    pub sequence: u64,
    sysfs: PathBuf,
}

impl Disk {
    /// The disk with this name and sequence number.
    #[must_use]
    pub fn new(name: &str, sequence: u64) -> Disk {
        Disk {
            name: name.to_owned(),
            sequence,
            sysfs: "/sys".into(),
        }
    }

    fn found(sysfs: &Path, name: &str) -> Disk {
        let number = read(&sysfs.join("block").join(name).join("diskseq"));
        Disk {
            sysfs: sysfs.to_owned(),
            ..Disk::new(name, number.parse().unwrap_or_default())
        }
    }

    /// Opens the disk for reading. While it is open, no other disk can get its name.
    ///
    /// # Errors
    /// Another disk has its name now.
    pub fn open(&self) -> io::Result<File> {
        open_on(self.sequence, &self.device(), File::options().read(true))
    }

    /// Opens the disk for reading and writing.
    ///
    /// # Errors
    /// Another disk has its name now.
    pub fn open_to_write(&self) -> io::Result<File> {
        let options = &mut File::options();
        open_on(
            self.sequence,
            &self.device(),
            options.read(true).write(true),
        )
    }

    /// Logical sector size in bytes.
    #[must_use]
    pub fn sector(&self) -> u64 {
        let queue = self.sysfs.join("block").join(&self.name).join("queue");
        let size = read(&queue.join("logical_block_size"));
        size.parse().unwrap_or(512)
    }

    /// Path of its device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Whether the disk is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        read(&self.sysfs.join("block").join(&self.name).join("ro")) == "1"
    }

    /// Whether the disk is still connected.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let now = Disk::found(&self.sysfs, &self.name);
        let directory = self.sysfs.join("block").join(&self.name);
        directory.exists() && (self.sequence == 0 || now.sequence == self.sequence)
    }

    /// Device of the partition with this name, by the partition table on the disk. The kernel knows no name of a
    /// partition added since it read the table.
    ///
    /// # Errors
    /// The disk has no such partition, or its table cannot be read.
    pub fn named(&self, name: &str) -> io::Result<PathBuf> {
        let table = Table::read(&mut self.open()?)?;
        let found = table
            .find(name)
            .ok_or_else(|| io::Error::other(format!("{} has no partition {name}", self.name)))?;
        self.partition(found.number)
    }

    /// Device of the partition with this number.
    ///
    /// # Errors
    /// The kernel knows no such partition.
    pub fn partition(&self, number: u32) -> io::Result<PathBuf> {
        let found = partitions(&self.sysfs, &self.name)?
            .into_iter()
            .find(|(_, path)| read(&path.join("partition")) == number.to_string());
        let (name, _) = found
            .ok_or_else(|| io::Error::other(format!("{} has no partition {number}", self.name)))?;
        Ok(Path::new("/dev").join(name))
    }
}

/// Opens a device after checking that it is the disk with this sequence number, or one of its partitions. A sequence of
/// 0 skips the check.
///
/// # Errors
/// The device is on another disk.
pub(super) fn open_on(sequence: u64, device: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(device)?;
    if sequence == 0 || diskseq::of(&file)? == sequence {
        return Ok(file);
    }
    let shown = device.display();
    Err(io::Error::other(format!(
        "{shown} is no longer the chosen disk"
    )))
}

/// The system disk, once found. A disk with a META partition that is plugged in later belongs to another node or is a
/// copy.
static CHOSEN: Mutex<Option<Disk>> = Mutex::new(None);

fn chosen() -> MutexGuard<'static, Option<Disk>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk that carries the node. The choice is final while the node runs; `None` if there is no such disk.
///
/// # Errors
/// Several disks qualify and nothing decides between them. The node must not guess.
pub fn system_disk() -> io::Result<Option<Disk>> {
    let found = likely_system_disk()?;
    if found.is_some() {
        chosen().clone_from(&found);
    }
    Ok(found)
}

/// Same as [`system_disk`], but without fixing the choice: for displays, while the right disk may not have appeared
/// yet.
///
/// # Errors
/// Same as [`system_disk`].
pub fn likely_system_disk() -> io::Result<Option<Disk>> {
    if !Mode::now().can(Ability::Disks) {
        return Ok(None);
    }
    let sysfs = Path::new("/sys");
    // Lazy because few machines need it and the firmware answers slowly.
    let started_from = LazyCell::new(|| {
        mounts::mount_early(mounts::EFI_VARIABLES);
        started_from(sysfs)
    });
    let is_started_from = |disk: &Disk| started_from.is_some_and(|partition| has(disk, partition));
    // The lock is released before disks are read: a disk may answer late or never, and only this caller is to wait for
    // it.
    let before = chosen().clone();
    choose(before.as_ref(), sysfs, is_started_from)
}

/// Chooses among the disks with a partition named META, which every image has. It takes the previous choice, the only
/// disk, or the disk from which the firmware started the node.
pub(super) fn choose(
    before: Option<&Disk>,
    sysfs: &Path,
    is_started_from: impl Fn(&Disk) -> bool,
) -> io::Result<Option<Disk>> {
    let found = with_meta(sysfs)?;
    match (before, found.as_slice()) {
        (_, []) => Ok(None),
        (Some(before), found) if found.contains(before) => Ok(Some(before.clone())),
        (None, [only]) => Ok(Some(only.clone())),
        (before, found) => {
            let mut started_from = found.iter().filter(|disk| is_started_from(disk));
            match (started_from.next(), started_from.next()) {
                // This includes the system disk after it was unplugged and plugged in again.
                (Some(only), None) => Ok(Some(only.clone())),
                _ => Err(ambiguous(before, found)),
            }
        }
    }
}

/// Remedy when several disks may be the node's own. It is certain only after the others are detached: then the node
/// starts, and takes none that is attached later for its own.
pub const DETACH: &str = "detach all but the node's own; attach the others to a node that runs, this one or another, \
    and wipe them there with `cortenctl wipe disk`";

fn ambiguous(before: Option<&Disk>, found: &[Disk]) -> io::Error {
    let names: Vec<_> = found.iter().map(|disk| disk.name.as_str()).collect();
    let names = names.join(", ");
    io::Error::other(match before {
        None => format!(
            "the disks {names} all have a META partition, and the firmware does not name the disk that the node was \
             started from; {DETACH}"
        ),
        Some(before) => format!(
            "{}, which carries the node, is gone, and {names} cannot be identified as the same disk; reconnect it and \
             restart the node",
            before.name
        ),
    })
}

/// Disks with a partition named META, sorted by name.
fn with_meta(sysfs: &Path) -> io::Result<Vec<Disk>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sysfs.join("block"))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let all = partitions(sysfs, &name).unwrap_or_default();
        let is_meant = |(_, path): &(String, PathBuf)| label(path).as_deref() == Some("META");
        if all.iter().any(is_meant) {
            found.push(Disk::found(sysfs, &name));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// ID of the partition from which the node was started. The boot loader or the stub of the unified kernel image records
/// it (systemd: Boot Loader Interface). BIOS, network and CD boots record none. The id is only a hint: disks made from
/// one release share it.
fn started_from(sysfs: &Path) -> Option<Uuid> {
    let read = |name: &str| Uuid::parse_str(&efi::variable(sysfs, name)?).ok();
    read("LoaderDevicePartUUID").or_else(|| read("StubDevicePartUUID"))
}

/// Presence of the disk from which the node was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDisk {
    /// No record of the disk; only UEFI boot loaders write one, and only for disks.
    Unnamed,
    /// There is a record, but no disk has that partition yet.
    Missing,
    /// The disk is present.
    There,
}

/// Looks for the disk from which the node was started. Reads the partition table of every disk.
#[must_use]
pub fn start_disk() -> StartDisk {
    mounts::mount_early(mounts::EFI_VARIABLES);
    let sysfs = Path::new("/sys");
    match started_from(sysfs) {
        None => StartDisk::Unnamed,
        Some(partition) if is_there(partition, &all(sysfs)) => StartDisk::There,
        Some(_) => StartDisk::Missing,
    }
}

fn is_there(partition: Uuid, disks: &[Disk]) -> bool {
    disks.iter().any(|disk| has(disk, partition))
}

/// Whether the disk's table has this partition.
fn has(disk: &Disk, partition: Uuid) -> bool {
    let table = disk.open().and_then(|mut disk| Table::read(&mut disk));
    table.is_ok_and(|table| table.find_id(partition).is_some())
}

/// Whether the firmware started the machine from this disk.
pub(super) fn is_start_disk(disk: &Disk) -> bool {
    mounts::mount_early(mounts::EFI_VARIABLES);
    started_from(Path::new("/sys")).is_some_and(|partition| has(disk, partition))
}

fn all(sysfs: &Path) -> Vec<Disk> {
    let entries = fs::read_dir(sysfs.join("block"))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.map(|name| Disk::found(sysfs, &name)).collect()
}

/// Name and sysfs directory of each partition of a disk.
fn partitions(sysfs: &Path, disk: &str) -> io::Result<Vec<(String, PathBuf)>> {
    Ok(fs::read_dir(sysfs.join("block").join(disk))?
        .flatten()
        .filter(|entry| entry.path().join("partition").is_file())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, entry.path())
        })
        .collect())
}

/// A disk's partitions as the kernel knows them.
pub(super) fn extents(sysfs: &Path, disk: &str) -> Vec<Extent> {
    let all = partitions(sysfs, disk).unwrap_or_default();
    let extent = |path: &Path| {
        // The unit is 512 bytes regardless of the disk's sector size (Documentation/ABI/stable/sysfs-block).
        let bytes = |name| Some(read(&path.join(name)).parse::<u64>().ok()? * 512);
        Some(Extent {
            number: read(&path.join("partition")).parse().ok()?,
            start: bytes("start")?,
            length: bytes("size")?,
        })
    };
    all.iter().filter_map(|(_, path)| extent(path)).collect()
}

/// Name of a partition from the partition table.
fn label(partition: &Path) -> Option<String> {
    let uevent = fs::read_to_string(partition.join("uevent")).ok()?;
    let line = uevent
        .lines()
        .find_map(|line| line.strip_prefix("PARTNAME="))?;
    Some(line.to_owned())
}

/// Content of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Empty, or an XFS file system whose `mkfs` did not finish.
    Nothing,
    /// XFS.
    Xfs,
    /// A LUKS volume, intact or damaged.
    Luks,
    /// Other content, which the node must not overwrite.
    Foreign,
}

/// Detects the content of a device by its first sectors. XFS has its magic at offset 0 and a flag at offset 126 while
/// `mkfs` is at work (`struct xfs_dsb`, big-endian). A LUKS volume is also recognized by the second copy of its header,
/// if the first was never written.
///
/// # Errors
/// The device cannot be read.
pub fn content(device: &Path) -> io::Result<Content> {
    let mut start = [0; 4096];
    let mut file = File::open(device)?;
    file.read_exact(&mut start)?;
    if start.starts_with(b"LUKS\xba\xbe") {
        return Ok(Content::Luks);
    }
    if start.iter().all(|byte| *byte == 0) {
        return match Luks::read(&file) {
            Ok(None) => Ok(Content::Nothing),
            Err(corten_luks::LuksError::Device(error)) => Err(error),
            // Opening the volume reports the problem.
            Ok(Some(_)) | Err(_) => Ok(Content::Luks),
        };
    }
    if !start.starts_with(b"XFSB") {
        return Ok(Content::Foreign);
    }
    let in_progress = start.get(126).is_some_and(|byte| *byte != 0);
    Ok(if in_progress {
        Content::Nothing
    } else {
        Content::Xfs
    })
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
