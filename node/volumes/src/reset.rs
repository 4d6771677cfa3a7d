//! Targets of a reset, emptied once all services have ended and all volumes are unmounted. The volumes of a container are
//! directories, which stay mounted.

use std::fmt;
use std::io;
use std::path::Path;

use corten_base::mode::Mode;
use corten_meta::tags::{OWNER, WAS_ENCRYPTED};
use uuid::Uuid;

use super::directory;
use super::disk::{self, Disk};
use super::table::Table;
use super::{EPHEMERAL, STATE, carrier, device, made, wipe};

/// Partitions a reset may wipe. The node makes their content anew; its boot partitions are excluded.
pub const WIPEABLE: [&str; 3] = [STATE.name, EPHEMERAL.name, "META"];

/// A partition or disk to empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A partition of the system disk, one of [`WIPEABLE`].
    Partition(&'static str),
    /// The system disk.
    SystemDisk,
    /// Another disk.
    Disk(Disk),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Partition(name) => f.write_str(name),
            Target::SystemDisk => f.write_str("the system disk"),
            Target::Disk(disk) => f.write_str(&disk.name),
        }
    }
}

impl Target {
    /// What a reset of the whole node wipes.
    #[must_use]
    pub fn whole_node() -> Vec<Target> {
        match Mode::now() {
            Mode::Machine => vec![Target::SystemDisk],
            Mode::Container => directory::ALL.map(Target::Partition).to_vec(),
        }
    }

    /// Name of the partition, if it is one.
    #[must_use]
    pub fn partition(&self) -> Option<&'static str> {
        match self {
            Target::Partition(name) => Some(name),
            Target::SystemDisk | Target::Disk(_) => None,
        }
    }

    /// Checks that the node has the target and can write to it.
    ///
    /// # Errors
    /// The text gives the problem and the remedy.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Target::Partition(name) => {
                let found = match Mode::now() {
                    Mode::Machine => device(name).map(drop),
                    Mode::Container => directory::of(name).map(drop),
                };
                found.map_err(|error| format!("system_partitions_to_wipe: {name}: {error}"))
            }
            Target::SystemDisk => {
                let disk = writable(disk::system_disk())?;
                disk.open()
                    .and_then(|mut device| Table::read(&mut device))
                    .map(drop)
                    .map_err(|error| {
                        format!(
                            "the partition table of {} cannot be read ({error}), so the places of its secrets are \
                             unknown; name partitions in system_partitions_to_wipe ({})",
                            disk.name,
                            WIPEABLE.join(", ")
                        )
                    })
            }
            // The server has already looked up the disk.
            Target::Disk(_) => Ok(()),
        }
    }

    /// Ids that STATE records and that are gone afterwards: partitions of other disks, or whole disks.
    #[must_use]
    pub fn ends(&self) -> Vec<Uuid> {
        match self {
            Target::Disk(disk) => wipe::volumes_on(disk),
            Target::Partition(name) => id_of(name).into_iter().collect(),
            Target::SystemDisk => Vec::new(),
        }
    }

    /// Empties the target and calls `alive` periodically.
    ///
    /// # Errors
    /// The target is missing or not writable, or is in use (except the system disk).
    pub fn empty(&self, alive: &dyn Fn()) -> io::Result<()> {
        match self {
            Target::Partition(name) if Mode::now() == Mode::Container => {
                directory::empty(directory::of(name)?, alive)
            }
            // Secrets are in STATE and META only; EPHEMERAL just has to be recognized as empty.
            Target::Partition(name) => {
                let disk = carrier()?;
                let whole = *name != EPHEMERAL.name;
                made::forget(&disk, |other, _| other == *name)?;
                wipe::partition(disk.sequence, &disk.named(name)?, whole, alive)?;
                if *name == STATE.name {
                    // Last, so that after an earlier power cut the node still knows its owner.
                    forget_owner(&disk.named("META")?)?;
                }
                Ok(())
            }
            Target::SystemDisk => {
                let disk = writable(disk::system_disk()).map_err(io::Error::other)?;
                wipe::system_disk(disk.sequence, &disk.device(), alive)
            }
            Target::Disk(disk) => wipe::other_disk(disk.sequence, &disk.device(), alive),
        }
    }
}

/// Id of a partition of the system disk; `None` if it is missing or the table cannot be read.
fn id_of(partition: &str) -> Option<Uuid> {
    let table = Table::read(&mut carrier().ok()?.open().ok()?).ok()?;
    Some(table.id(table.find(partition)?))
}

fn writable(system_disk: io::Result<Option<Disk>>) -> Result<Disk, String> {
    let Some(disk) = system_disk.map_err(|error| error.to_string())? else {
        return Err(
            "no disk carries this node: it was started from a CD or the network and keeps nothing across a restart; to \
             wipe disks, name them in user_disks_to_wipe with mode user-disks, or use `wipe disk`"
                .to_owned(),
        );
    };
    if disk.is_read_only() {
        return Err(format!(
            "{} is read-only: nothing on it can be wiped",
            disk.name
        ));
    }
    Ok(disk)
}

/// Removes the owner and the record of STATE's encryption from the META partition `device`. A reset wipes everything
/// the owner has on the node.
///
/// # Errors
/// Those of the device. A damaged META names no owner.
fn forget_owner(device: &Path) -> io::Result<()> {
    corten_meta::amend(device, |values| {
        let known = [OWNER, WAS_ENCRYPTED].map(|tag| values.remove(&tag));
        known.iter().any(Option::is_some)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::disk::choose;
    use super::*;

    #[test]
    fn reset_without_a_system_disk_names_a_remedy() {
        let sysfs = tempfile::tempdir().unwrap();
        let partition = sysfs.path().join("block/vda/vda3");
        fs::create_dir_all(&partition).unwrap();
        let writable = || writable(choose(None, sysfs.path(), |_| false));
        let none = writable().unwrap_err();
        assert!(none.contains("CD or the network") && none.contains("`wipe disk`"));
        fs::write(partition.join("partition"), "3\n").unwrap();
        fs::write(partition.join("uevent"), "PARTNAME=META\n").unwrap();
        fs::write(sysfs.path().join("block/vda/ro"), "1\n").unwrap();
        let refused = writable().unwrap_err();
        assert_eq!(refused, "vda is read-only: nothing on it can be wiped");
        fs::write(sysfs.path().join("block/vda/ro"), "0\n").unwrap();
        assert_eq!(writable().unwrap().name, "vda");
    }

    #[test]
    fn wipe_of_a_missing_disk_is_an_error() {
        let missing = Target::Disk(Disk::new("no-such-disk", 7));
        let error = missing.empty(&|| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(missing.to_string(), "no-such-disk");
    }

    #[test]
    fn reset_of_state_removes_the_owner_and_keeps_other_meta_values() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let other = corten_meta::Tag::new(0x0c).unwrap();
        let values = [OWNER, WAS_ENCRYPTED, other].map(|tag| (tag, b"value".to_vec()));
        corten_meta::write(disk.as_file(), &values.into()).unwrap();
        forget_owner(disk.path()).unwrap();
        forget_owner(disk.path()).unwrap();
        let left = corten_meta::read(disk.as_file()).unwrap().unwrap();
        assert_eq!(
            left.into_iter().collect::<Vec<_>>(),
            [(other, b"value".to_vec())]
        );
        fs::write(disk.path(), b"what is no META").unwrap();
        forget_owner(disk.path()).unwrap();
    }
}
