//! What a reset empties, when everything has ended and is unmounted.

use std::fmt;
use std::io;
use std::path::Path;

use corten_meta::tags::{OWNER, WAS_ENCRYPTED};
use uuid::Uuid;

use super::disk::{self, Disk};
use super::table::Table;
use super::{EPHEMERAL, STATE, carrier, device, made, wipe};

/// The partitions a reset may wipe. The node makes their content anew; what it starts from is not among them.
pub const WIPEABLE: [&str; 3] = [STATE.name, EPHEMERAL.name, "META"];

/// Something to be emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A partition of the disk that carries the node, of [`WIPEABLE`].
    Partition(&'static str),
    /// The disk that carries the node.
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
    /// The partition's name, if it is one.
    #[must_use]
    pub fn partition(&self) -> Option<&'static str> {
        match self {
            Target::Partition(name) => Some(name),
            Target::SystemDisk | Target::Disk(_) => None,
        }
    }

    /// Whether this node has it, and could write to it.
    ///
    /// # Errors
    /// The text says what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Target::Partition(name) => device(name)
                .map(drop)
                .map_err(|error| format!("system_partitions_to_wipe: {name}: {error}")),
            Target::SystemDisk => {
                let disk = writable(disk::system_disk())?;
                disk.open()
                    .and_then(|mut device| Table::read(&mut device))
                    .map(drop)
                    .map_err(|error| {
                        format!(
                            "the partition table of {} cannot be read ({error}), so that what is secret on it is not \
                             known; name partitions in system_partitions_to_wipe ({})",
                            disk.name,
                            WIPEABLE.join(", ")
                        )
                    })
            }
            // The server has looked it up.
            Target::Disk(_) => Ok(()),
        }
    }

    /// The ids of what STATE knows of, and what is gone afterwards: on other disks, partitions or whole ones.
    #[must_use]
    pub fn ends(&self) -> Vec<Uuid> {
        match self {
            Target::Disk(disk) => wipe::volumes_on(disk),
            Target::Partition(name) => id_of(name).into_iter().collect(),
            Target::SystemDisk => Vec::new(),
        }
    }

    /// Empties it; calls `alive` every now and then.
    ///
    /// # Errors
    /// It is not there, it cannot be written, or, but for the system disk, it is in use.
    pub fn empty(&self, alive: &dyn Fn()) -> io::Result<()> {
        match self {
            // What is secret is in STATE and META; of EPHEMERAL it is enough that the node makes it anew.
            Target::Partition(name) => {
                let disk = carrier()?;
                let whole = *name != EPHEMERAL.name;
                made::forget(&disk, |other, _| other == *name)?;
                wipe::partition(disk.sequence, &disk.named(name)?, whole, alive)?;
                if *name == STATE.name {
                    // Last: a power cut before leaves a node that still knows whom to answer.
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

/// What the table knows a partition of the system disk by; `None`: it cannot be read, or has none.
fn id_of(partition: &str) -> Option<Uuid> {
    let table = Table::read(&mut carrier().ok()?.open().ok()?).ok()?;
    Some(table.id(table.find(partition)?))
}

fn writable(system_disk: io::Result<Option<Disk>>) -> Result<Disk, String> {
    let Some(disk) = system_disk.map_err(|error| error.to_string())? else {
        return Err(
            "no disk carries this node: it was started from a CD or the network and forgets everything when it \
             restarts; to wipe disks, name them in user_disks_to_wipe with mode user-disks, or use `wipe disk`"
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

/// Takes the owner out of the META partition `device`, and that STATE was encrypted: a reset wipes what the owner has
/// on the node.
///
/// # Errors
/// The device's. A META that is not whole names no owner.
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
    fn a_node_without_a_disk_is_told_what_to_do() {
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
    fn what_is_not_there_is_not_emptied() {
        let missing = Target::Disk(Disk::new("no-such-disk", 7));
        let error = missing.empty(&|| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(missing.to_string(), "no-such-disk");
    }

    #[test]
    fn a_reset_of_state_forgets_the_owner_and_keeps_the_other_values() {
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
