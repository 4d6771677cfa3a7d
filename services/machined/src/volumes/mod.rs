//! The volumes that outlive a boot: STATE (the machine config) and EPHEMERAL (/var), on the disk the node
//! was written to.
//!
//! The images carry neither; both are made at the first boot, in the room behind META, and EPHEMERAL grows
//! when the disk did. A node without such a disk (CD, network) keeps everything in memory. Nothing here
//! keeps a node from coming up, and nothing here overwrites what it did not make.

mod disk;
mod table;
mod wipe;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use corten_sys::blkpg;
use corten_sys::mount::{self, MountFlags};

use crate::mount_table;
use crate::supervisor::Supervisor;
use disk::{Content, Disk};
pub use table::TYPE_LINUX;
use table::{Extent, Table};

/// A volume the node makes for itself.
#[derive(Debug)]
pub struct Volume {
    /// The partition's name, and the file system's label.
    pub name: &'static str,
    /// Where it is mounted.
    pub target: &'static str,
    /// The partition's length in bytes; `None`: the rest of the disk.
    pub length: Option<u64>,
    /// How it is mounted.
    pub flags: MountFlags,
    /// The file system's own options.
    pub options: &'static str,
    /// Of its root directory.
    mode: u32,
}

const MIB: u64 = 1 << 20;

/// The machine config and the node's identity. XFS supports no file system below 300 MiB.
pub const STATE: Volume = Volume {
    name: "STATE",
    target: "/system/state",
    length: Some(320 * MIB),
    flags: MountFlags::NOSUID
        .union(MountFlags::NODEV)
        .union(MountFlags::NOEXEC),
    options: "",
    // syslogd passes on its way to its own directory; every file is readable by its owner only.
    mode: 0o711,
};

/// Images, containers, logs. Programs in it are run, by containers.
pub const EPHEMERAL: Volume = Volume {
    name: "EPHEMERAL",
    target: "/var",
    length: None,
    flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    options: "prjquota",
    mode: 0o755,
};

/// The partition with images the node came with; it is mounted where the config wants it.
pub const IMAGE_CACHE: &str = "IMAGECACHE";

/// In bytes; below this, images and containers have no room.
pub const SMALLEST_EPHEMERAL: u64 = 2048 * MIB;
/// Zeroed before a partition is added, so that nothing which lay there before is taken for its content.
const WIPED: u64 = MIB;

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
    fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
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
    let mounts = mount_table::parse(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
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
    let disk = disk::system_disk(Path::new("/sys"))?;
    disk.map(|disk| disk.named("META")).transpose()
}

/// The partitions a reset may wipe. The node makes their content anew; what it starts from is not among them.
pub const WIPEABLE: [&str; 3] = [STATE.name, EPHEMERAL.name, "META"];

/// Whether the node has all these partitions.
///
/// # Errors
/// The text says which it has not.
pub fn check_wipeable(partitions: &[&str]) -> Result<(), String> {
    partitions.iter().try_for_each(|name| match device(name) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("system_partitions_to_wipe: {name}: {error}")),
    })
}

/// Empties a partition that nobody uses.
///
/// # Errors
/// There is none, it is in use, or it cannot be written.
pub fn wipe(partition: &str) -> io::Result<()> {
    // What is secret is in STATE and META; of EPHEMERAL it is enough that the node makes it anew.
    let whole = partition != EPHEMERAL.name;
    wipe::wipe(&device(partition)?, whole)
}

/// The device of a partition of the disk that carries the node.
///
/// # Errors
/// There is no such disk, or no such partition on it.
pub fn device(partition: &str) -> io::Result<PathBuf> {
    let disk = disk::system_disk(Path::new("/sys"))?;
    let none = || io::Error::other("this node was not started from a disk");
    disk.ok_or_else(none)?.named(partition)
}

/// Finds the disk, makes what it lacks, and mounts both volumes.
///
/// # Errors
/// The text names the volume or the disk. A volume that was mounted before stays mounted.
pub async fn bring_up(supervisor: &Supervisor) -> Result<Outcome, Failure> {
    let disk = disk::system_disk(Path::new("/sys"))
        .map_err(|error| Failure::new("the system disk", error))?;
    let Some(disk) = disk else {
        return Ok(Outcome::NoDisk);
    };
    let layout = Layout::ensure(&disk).map_err(|error| Failure::new(&disk.name, error))?;
    for (volume, extent) in [(&STATE, layout.state), (&EPHEMERAL, layout.ephemeral)] {
        let device = disk
            .partition(extent.number)
            .map_err(|error| Failure::new(volume.name, error))?;
        attach(supervisor, volume, &device)
            .await
            .map_err(|why| Failure::new(volume.name, why))?;
    }
    Ok(Outcome::Mounted {
        disk: disk.name,
        made: layout.made,
    })
}

/// Lets the file system of EPHEMERAL fill its partition; one that does already is left as it is.
///
/// # Errors
/// The text names the volume; it stays mounted and as large as it was.
pub async fn grow(supervisor: &Supervisor) -> Result<(), Failure> {
    let grown = supervisor.run("xfs_growfs", &[EPHEMERAL.target]).await;
    grown.map_err(|why| Failure::new("growing EPHEMERAL", why))
}

/// Both partitions, in the table and known to the kernel.
struct Layout {
    state: Extent,
    ephemeral: Extent,
    made: usize,
}

impl Layout {
    fn ensure(disk: &Disk) -> io::Result<Layout> {
        let mut device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(disk.device())?;
        let mut table = Table::read(&mut device)?;
        let mut made = Vec::new();
        let needed = [&STATE, &EPHEMERAL]
            .iter()
            .filter(|volume| table.find(volume.name).is_none())
            .map(|volume| volume.length.unwrap_or(SMALLEST_EPHEMERAL))
            .sum::<u64>();
        if table.room() < needed {
            return Err(io::Error::other(format!(
                "STATE and EPHEMERAL need {} MiB behind META, and {} MiB are free; use a larger disk",
                needed / MIB,
                table.room() / MIB
            )));
        }
        let mut extent = |volume: &Volume, table: &mut Table| match table.find(volume.name) {
            Some(found) => Ok(found),
            None => {
                let extent = table.append(volume.name, volume.length)?;
                made.push(extent);
                Ok::<_, io::Error>(extent)
            }
        };
        let state = extent(&STATE, &mut table)?;
        let mut ephemeral = extent(&EPHEMERAL, &mut table)?;
        let grown = table.grow(EPHEMERAL.name);
        if let Some(larger) = grown {
            ephemeral = larger;
        }
        if !made.is_empty() {
            table.individualize();
            for extent in &made {
                wipe_start(&mut device, extent.start)?;
            }
        }
        if !made.is_empty() || grown.is_some() {
            table.write(&mut device, |device| device.sync_all())?;
        }
        for extent in &made {
            blkpg::add(&device, extent.number, extent.start, extent.length)?;
        }
        if let Some(larger) = grown {
            blkpg::resize(&device, larger.number, larger.start, larger.length)?;
        }
        Ok(Layout {
            state,
            ephemeral,
            made: made.len(),
        })
    }
}

fn wipe_start(device: &mut File, start: u64) -> io::Result<()> {
    device.seek(SeekFrom::Start(start))?;
    io::copy(&mut io::Read::take(io::repeat(0), WIPED), device)?;
    device.flush()?;
    device.sync_all()
}

/// Mounts a volume; makes its file system when there is none, repairs one that cannot be mounted.
async fn attach(supervisor: &Supervisor, volume: &Volume, device: &Path) -> Result<(), String> {
    let shown = device.display().to_string();
    let found = disk::content(device).map_err(|error| format!("cannot read {shown}: {error}"))?;
    match found {
        Content::Xfs => {}
        Content::Nothing => make_file_system(supervisor, volume, &shown).await?,
        Content::Foreign => {
            return Err(format!(
                "{shown} holds no XFS file system; reset the volume to make it anew"
            ));
        }
    }
    if let Err(error) = mount_on(volume, device) {
        crate::console::warn(&format!(
            "{} on {shown} cannot be mounted ({error}); it is being repaired",
            volume.name
        ));
        supervisor
            .run("xfs_repair", &[&shown])
            .await
            .map_err(|why| format!("{shown} is damaged and cannot be repaired: {why}"))?;
        mount_on(volume, device).map_err(|error| format!("cannot mount {shown}: {error}"))?;
    }
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(volume.target, fs::Permissions::from_mode(volume.mode))
        .map_err(|error| format!("cannot set the mode of {}: {error}", volume.target))
}

async fn make_file_system(
    supervisor: &Supervisor,
    volume: &Volume,
    device: &str,
) -> Result<(), String> {
    let arguments = ["-q", "-f", "-L", volume.name, device];
    supervisor.run("mkfs.xfs", &arguments).await
}

fn mount_on(volume: &Volume, device: &Path) -> io::Result<()> {
    mount::mount(
        device,
        Path::new(volume.target),
        "xfs",
        volume.flags,
        volume.options,
    )
}
