//! The volumes that outlive a boot: STATE (the machine config) and EPHEMERAL (/var), on the disk the node was written to,
//! and those of users (`user/`), on the disks their selectors choose.
//!
//! Owns: their partitions, encryption, file systems and mounts. The images carry neither STATE nor EPHEMERAL; both are
//! made at the first boot, in the room behind META, and EPHEMERAL grows when the disk did. A node without such a disk (CD,
//! network) keeps everything in memory.
//! Never does: keep a node from coming up, or overwrite what it did not make, but for what somebody wants wiped
//! (`reset.rs`, `wipe.rs`).
//! Talks to: the kernel; `mkfs.xfs` and `xfs_repair` through the supervisor.
//! On a laptop: `cargo test -p corten-volumes`; as root also on loop devices.

mod alone;
mod attach;
mod carried;
mod disk;
mod encryption;
mod judge;
mod keys;
mod made;
mod migration;
mod partitions;
mod reset;
mod slots;
mod table;
pub mod user;
mod wipe;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use corten_base::mode::{Ability, Mode};
use corten_base::mount_table;
use corten_sys::mount::MountFlags;

pub use disk::{Disk, StartDisk, start_disk};
pub use keys::{Opened, check_clear, check_keys, check_state_keys, check_state_value, check_wiped};
pub use migration::check_in_clear;
pub use partitions::{find, is_state_never_made};
pub use reset::{Target, WIPEABLE};
pub use table::{TYPE_LINUX, TYPE_SWAP};
pub use wipe::{DeviceWipe, STARTED_FROM};

/// A file system in a partition.
#[derive(Debug)]
pub struct Volume<'a> {
    /// What it is called, and its partition.
    pub name: &'a str,
    /// The file system's label, of at most 12 bytes; empty: it has none.
    label: &'a str,
    /// Where it is mounted.
    pub target: &'a str,
    /// How it is mounted.
    pub flags: MountFlags,
    /// The file system's own options.
    pub options: &'a str,
    /// Of its root directory; `None`: what its users made it.
    mode: Option<u32>,
}

const MIB: u64 = 1 << 20;
/// Bytes of a label of XFS (`sb_fname`).
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
    // syslogd passes on its way to its own directory; every file is readable by its owner only.
    mode: Some(0o711),
};

/// Images, containers, logs. Programs in it are run, by containers.
pub const EPHEMERAL: Volume<'static> = Volume {
    name: "EPHEMERAL",
    label: "EPHEMERAL",
    target: "/var",
    flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    options: "prjquota",
    mode: Some(0o755),
};

/// The partition with images the node came with; it is mounted where the config wants it.
pub const IMAGE_CACHE: &str = "IMAGECACHE";

/// The length of STATE in bytes; EPHEMERAL has the rest of the disk.
pub const STATE_LENGTH: u64 = 320 * MIB;
/// Of an XFS in bytes: `mkfs.xfs` makes no smaller one.
const SMALLEST_XFS: u64 = 300 * MIB;
/// In bytes; below this, images and containers have no room.
pub const SMALLEST_EPHEMERAL: u64 = 2048 * MIB;
/// Zeroed before a partition is added, so that nothing which lay there before is taken for its content; and
/// what is wiped at least, so that no key slot is left of an encrypted volume.
const WIPED: u64 = corten_luks::DATA_OFFSET;
/// Between two attempts at what is in use.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
const BUSY_PAUSES: u32 = 50;

/// What became of the volumes.
#[derive(Debug)]
pub enum Outcome {
    /// Both are mounted; this many partitions were made.
    Mounted {
        /// The kernel's name of the disk.
        disk: String,
        /// How many partitions were new.
        made: usize,
    },
    /// STATE is mounted; what to do with EPHEMERAL only a machine config can say, and there is none yet.
    AwaitsConfig {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// No disk carries the node: everything is kept in memory.
    NoDisk,
}

/// How far the volumes are, for those who show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Progress {
    /// A disk may still come, with its driver.
    #[default]
    Awaited,
    /// What there is was found, and no more comes.
    Settled,
    /// Something is wrong with one of them, or with the disk.
    Failed(Failure),
}

/// Why a volume is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The volume's name, or what keeps every volume from being there.
    pub what: String,
    /// For a person.
    pub why: String,
}

impl Failure {
    /// A failure, in words.
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

/// Whether both volumes are mounted.
#[must_use]
pub fn are_mounted() -> bool {
    let mounts = mount_table::now();
    let is_xfs_on = |target: &str| {
        mounts
            .iter()
            .any(|mount| mount.target == target && mount.kind == "xfs")
    };
    is_xfs_on(STATE.target) && is_xfs_on(EPHEMERAL.target)
}

/// The META partition of the disk that carries the node; `None` when there is no such disk.
///
/// # Errors
/// The text names the disks.
pub fn meta_partition() -> io::Result<Option<PathBuf>> {
    let disk = disk::system_disk()?;
    disk.map(|disk| disk.named("META")).transpose()
}

/// The device of a partition of the disk that carries the node.
///
/// # Errors
/// There is no such disk, or no such partition on it.
pub fn device(partition: &str) -> io::Result<PathBuf> {
    carrier()?.named(partition)
}

/// The kernel's name of the disk that carries the node, for those who only show it; `None`: there is none, or it is
/// not known which it is.
#[must_use]
pub fn likely_system_disk() -> Option<String> {
    disk::likely_system_disk()
        .ok()
        .flatten()
        .map(|disk| disk.name)
}

/// The disk that carries the node.
fn carrier() -> io::Result<Disk> {
    let disk = disk::system_disk()?;
    disk.ok_or_else(|| io::Error::other("this node was not started from a disk"))
}

/// The device by which an encrypted volume is mounted.
#[must_use]
pub fn opened_device(volume: &str) -> String {
    encryption::mapped(volume).display().to_string()
}

/// Closes what is encrypted, when nothing of it is mounted any more.
pub fn close() {
    if !Mode::now().can(Ability::Disks) {
        return;
    }
    user::stop_swapping();
    let own = [EPHEMERAL.name, STATE.name].map(str::to_owned);
    for volume in encryption::opened().into_iter().chain(own) {
        if let Err(error) = encryption::close(&volume) {
            corten_base::console::warn(&format!("{volume} stays open: {error}"));
        }
    }
}

/// Tries again while something is in use: whoever looks at a device that was written to, as udevd does, lets go of
/// it soon.
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

/// Lets the file system of EPHEMERAL fill its partition; one that does already is left as it is.
///
/// # Errors
/// The text names the volume; it stays mounted and as large as it was.
pub fn grow() -> Result<(), Failure> {
    let grown = attach::grow(Path::new(EPHEMERAL.target));
    grown.map_err(|why| Failure::new("growing EPHEMERAL", why))
}
