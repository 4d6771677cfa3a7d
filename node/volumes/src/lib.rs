//! The persistent volumes of a node: STATE and EPHEMERAL on the system disk, user volumes, labelled volumes of others.
//!
//! Owns: their partitions, encryption, file systems and mounts. Without a disk, the node keeps everything in memory.
//! Never: keeps a node from coming up, or overwrites foreign content except on request (`reset.rs`, `wipe.rs`).

mod alone;
mod attach;
mod carried;
mod directory;
mod disk;
mod encryption;
mod install;
mod judge;
mod keys;
pub mod labelled;
mod late_bus;
mod made;
mod migration;
mod partitions;
mod reset;
mod slots;
mod table;
pub mod user;
mod wipe;
mod zeros;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use corten_base::mode::{Ability, Mode};
use corten_base::mount_table;
use corten_sys::mount::MountFlags;

pub use disk::{DETACH, Disk, StartDisk, start_disk};
pub use install::{Blank, Over};
pub use keys::{Opened, check_clear, check_keys, check_state_keys, check_state_value, check_wiped};
pub use late_bus::late_bus;
pub use migration::check_in_clear;
pub use partitions::{find, is_state_never_made};
pub use reset::{Target, WIPEABLE};
pub use table::{TYPE_LINUX, TYPE_SWAP};
pub use wipe::{DeviceWipe, STARTED_FROM};

/// Prefix of the names of user volumes.
const USER_VOLUMES: &str = "u-";

/// Whether a partition or file system of this name is a node's volume, or carries the node.
#[must_use]
pub fn is_of_a_node(name: &str) -> bool {
    WIPEABLE.contains(&name) || name.starts_with(USER_VOLUMES)
}

/// A file system in a partition.
#[derive(Debug)]
pub struct Volume<'a> {
    /// Name of the volume and of its partition.
    pub name: &'a str,
    /// Label of the file system, at most 12 bytes; empty for none.
    label: &'a str,
    /// Mount point.
    pub target: &'a str,
    /// Mount flags.
    pub flags: MountFlags,
    /// Options of the file system.
    pub options: &'a str,
    /// Mode of the root directory; `None` leaves it to the users.
    mode: Option<u32>,
}

const MIB: u64 = 1 << 20;
/// Maximum length of an XFS label in bytes (`sb_fname`).
const LONGEST_LABEL: usize = 12;

/// The machine config and the node's identity.
pub const STATE: Volume<'static> = Volume {
    name: "STATE",
    label: "STATE",
    target: "/system/state",
    flags: MountFlags::NOSUID
        .union(MountFlags::NODEV)
        .union(MountFlags::NOEXEC),
    options: "",
    // syslogd must traverse it to its own directory; every file is readable by its owner only.
    mode: Some(0o711),
};

/// Images, containers and logs. Containers execute programs from it.
pub const EPHEMERAL: Volume<'static> = Volume {
    name: "EPHEMERAL",
    label: "EPHEMERAL",
    target: "/var",
    flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    options: "prjquota",
    mode: Some(0o755),
};

/// Partition of the image cache; the config sets its mount point.
pub const IMAGE_CACHE: &str = "IMAGECACHE";

/// Length of STATE in bytes; EPHEMERAL takes the rest of the disk.
pub const STATE_LENGTH: u64 = 320 * MIB;
/// Minimum size of an XFS file system in bytes, a limit of `mkfs.xfs`.
const SMALLEST_XFS: u64 = 300 * MIB;
/// Minimum size in bytes; below it, images and containers have no room.
pub const SMALLEST_EPHEMERAL: u64 = 2048 * MIB;
/// Bytes zeroed at the start of a new partition, so that old data there is not taken for its content. A wipe zeroes at
/// least as much, which covers every LUKS key slot.
const WIPED: u64 = corten_luks::DATA_OFFSET;
/// Delay between attempts on a busy device.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
const BUSY_PAUSES: u32 = 50;

/// Outcome of mounting the node's own volumes.
#[derive(Debug)]
pub enum Outcome {
    /// Both volumes are mounted.
    Mounted {
        /// The kernel's name of the disk.
        disk: String,
        /// Number of partitions created.
        made: usize,
    },
    /// STATE is mounted. EPHEMERAL waits for a machine config, which there is none of yet.
    AwaitsConfig {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// No disk carries the node: everything is kept in memory.
    NoDisk,
}

/// Progress of the volumes, for display.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Progress {
    /// A disk may still appear when its driver loads.
    #[default]
    Awaited,
    /// All disks are known and their volumes processed.
    Settled,
    /// A volume or the disk has failed.
    Failed(Failure),
}

/// The failure of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the volume, or of the cause that affects all volumes.
    pub what: String,
    /// Human-readable reason.
    pub why: String,
}

impl Failure {
    /// A failure with its reason.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure {
            what: what.into(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Failure {}

/// Whether both of the node's own volumes are mounted.
#[must_use]
pub fn are_mounted() -> bool {
    is_mounted(&STATE) && is_mounted(&EPHEMERAL)
}

/// Whether one of the node's own volumes is mounted. A mount point alone says nothing: without EPHEMERAL, a file system
/// in memory is mounted there.
#[must_use]
pub fn is_mounted(volume: &Volume<'_>) -> bool {
    let mounts = mount_table::now();
    let mut own = mounts.iter().filter(|mount| mount.target == volume.target);
    own.any(|mount| mount.kind == "xfs")
}

/// Device of the META partition on the system disk; `None` if there is no such disk.
///
/// # Errors
/// The system disk is ambiguous, or META is missing; the text names the disks.
pub fn meta_partition() -> io::Result<Option<PathBuf>> {
    let disk = disk::system_disk()?;
    disk.map(|disk| disk.named("META")).transpose()
}

/// Device of a partition on the system disk.
///
/// # Errors
/// There is no such disk, or no such partition on it.
pub fn device(partition: &str) -> io::Result<PathBuf> {
    carrier()?.named(partition)
}

/// The kernel's name of the system disk, for display; `None` if there is none or it is ambiguous.
#[must_use]
pub fn likely_system_disk() -> Option<String> {
    disk::likely_system_disk()
        .ok()
        .flatten()
        .map(|disk| disk.name)
}

/// The system disk.
fn carrier() -> io::Result<Disk> {
    let disk = disk::system_disk()?;
    disk.ok_or_else(|| io::Error::other("this node was not started from a disk"))
}

/// Device by which an encrypted volume is mounted.
#[must_use]
pub fn opened_device(volume: &str) -> String {
    encryption::mapped(volume).display().to_string()
}

/// Stops swap and closes all encrypted volumes; none may be mounted any more.
pub fn close() {
    if !Mode::now().can(Ability::Disks) {
        return;
    }
    user::stop_swapping();
    let own = [EPHEMERAL.name, STATE.name].map(str::to_owned);
    for volume in encryption::opened().into_iter().chain(own) {
        if let Err(error) = encryption::close(&volume) {
            corten_base::console::warn(&format!("{volume} cannot be closed: {error}"));
        }
    }
}

/// Retries while a device is busy. A program that inspects a device after a write, such as udevd, releases it soon.
fn while_busy<T>(pause: Duration, mut once: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut pauses = 0;
    loop {
        match once() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && pauses < BUSY_PAUSES => {
                pauses += 1;
                thread::sleep(pause);
            }
            done => return done,
        }
    }
}

/// Grows the file system of EPHEMERAL to the size of its partition; does nothing if it fills the partition.
///
/// # Errors
/// The text names the volume, which stays mounted at its old size.
pub fn grow() -> Result<(), Failure> {
    let grown = attach::grow(Path::new(EPHEMERAL.target));
    grown.map_err(|why| Failure::new("growing EPHEMERAL", why))
}
