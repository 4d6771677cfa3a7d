//! The node's META values: read once from the disk, and changed on the disk first.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use corten_meta::{Tag, Values};
use tokio::sync::watch;

/// How STATE is encrypted: the config that says it is on STATE itself (`corten_config::kinds::Encryption`).
pub const STATE_ENCRYPTION: Tag = tag(0x09);
/// What the platform says of the network (`corten_config::platform::PlatformNetwork`).
pub const PLATFORM_NETWORK: Tag = tag(0x0a);

/// The authorities of the node's owner: certificates in PEM, as `machine.ca` and `machine.acceptedCAs` have them. A node
/// whose STATE is lost knows its owner by them. The reference's tags end at 0x11.
pub const OWNER: Tag = tag(0xc0);

/// The record of the version that was tried last (`corten_installer::Trial`).
pub const TRIAL: Tag = tag(0xc1);

const fn tag(number: u8) -> Tag {
    match Tag::new(number) {
        Some(tag) => tag,
        None => Tag::MIN,
    }
}

/// META of this node.
#[derive(Debug)]
pub struct Meta {
    partition: Mutex<Option<File>>,
    values: watch::Sender<Values>,
}

/// Why a value was not changed.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// No disk carries the node.
    #[error("this node has no META partition: it was not started from a disk")]
    NoPartition,
    /// There is nothing to delete.
    #[error("META has no value {0:#04x}")]
    NoValue(Tag),
    /// The node needs what is there, or could not use what would be.
    #[error("META {0:#04x} stays as it is: {1}")]
    Refused(Tag, String),
    /// It could not be written; the values are what they were.
    #[error("cannot write META: {0}")]
    Write(#[from] io::Error),
}

impl Default for Meta {
    fn default() -> Meta {
        Meta {
            partition: Mutex::new(None),
            values: watch::Sender::new(Values::new()),
        }
    }
}

impl Meta {
    /// Reads the values and keeps them there from now on. False when neither copy on the disk was whole: then
    /// there are no values, and the next change writes both copies anew.
    ///
    /// # Errors
    /// The device's.
    pub fn open(&self, device: &Path) -> io::Result<bool> {
        let file = OpenOptions::new().read(true).write(true).open(device)?;
        let found = corten_meta::read(&file)?;
        let whole = found.is_some();
        let mut partition = self.partition();
        *partition = Some(file);
        self.values.send_replace(found.unwrap_or_default());
        Ok(whole)
    }

    /// Whether the values are those of a disk.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.partition().is_some()
    }

    /// Sets a value, or deletes it. It is on the disk when this returns.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn change(&self, tag: Tag, value: Option<Vec<u8>>) -> Result<(), MetaError> {
        let partition = self.partition();
        let file = partition.as_ref().ok_or(MetaError::NoPartition)?;
        let mut values = self.values.borrow().clone();
        match value {
            Some(value) => drop(values.insert(tag, value)),
            None => drop(values.remove(&tag).ok_or(MetaError::NoValue(tag))?),
        }
        corten_meta::write(file, &values)?;
        self.values.send_replace(values);
        Ok(())
    }

    /// Has META name the owner whose authorities these are, PEM certificates.
    ///
    /// # Errors
    /// The owner that META names stays.
    pub fn keep_owner(&self, authorities: &str) -> Result<(), MetaError> {
        let value = authorities.as_bytes();
        if self.values.borrow().get(&OWNER).map(Vec::as_slice) == Some(value) {
            return Ok(());
        }
        self.change(OWNER, Some(value.to_vec()))
    }

    /// The values, to be watched.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Values> {
        self.values.subscribe()
    }

    /// Held while the disk is written: one change at a time.
    fn partition(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's authorities that META holds; `None`: the node has no owner, or META does not know it.
#[must_use]
pub fn owner(values: &Values) -> Option<String> {
    let value = values.get(&OWNER)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Takes the owner out of the META partition `device`: a reset wipes what the owner has on the node.
///
/// # Errors
/// The device's. A META that is not whole names no owner.
pub fn forget_owner(device: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let Some(mut values) = corten_meta::read(&file)? else {
        return Ok(());
    };
    match values.remove(&OWNER) {
        Some(_) => corten_meta::write(&file, &values),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outlives_the_one_who_wrote_it() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let tag = Tag::new(0x0c).unwrap();
        let meta = Meta::default();
        let none = meta.change(tag, None).unwrap_err();
        assert!(matches!(none, MetaError::NoPartition), "{none}");
        assert!(meta.open(disk.path()).unwrap());
        std::fs::write(disk.path(), b"what is no META").unwrap();
        assert!(!meta.open(disk.path()).unwrap());
        meta.change(tag, Some(b"value".to_vec())).unwrap();

        let next = Meta::default();
        assert!(next.open(disk.path()).unwrap());
        assert_eq!(next.watch().borrow().get(&tag).unwrap(), b"value");
        next.change(tag, None).unwrap();
        let gone = next.change(tag, None).unwrap_err();
        assert_eq!(gone.to_string(), "META has no value 0x0c");
        let large = next.change(tag, Some(vec![0; 1 << 20])).unwrap_err();
        assert!(large.to_string().contains("need 1048584 bytes"), "{large}");
        assert!(next.watch().borrow().is_empty());
    }

    #[test]
    fn the_owner_is_kept_until_a_reset_forgets_it() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let meta = Meta::default();
        meta.open(disk.path()).unwrap();
        assert_eq!(owner(&meta.watch().borrow()), None);
        for authorities in ["one", "one", "two"] {
            meta.keep_owner(authorities).unwrap();
            let known = owner(&corten_meta::read(disk.as_file()).unwrap().unwrap());
            assert_eq!(known.as_deref(), Some(authorities));
        }
        let other = Tag::new(0x0c).unwrap();
        meta.change(other, Some(b"value".to_vec())).unwrap();
        forget_owner(disk.path()).unwrap();
        forget_owner(disk.path()).unwrap();
        let left = corten_meta::read(disk.as_file()).unwrap().unwrap();
        assert_eq!(owner(&left), None);
        assert_eq!(left.get(&other).unwrap(), b"value");
        std::fs::write(disk.path(), b"what is no META").unwrap();
        forget_owner(disk.path()).unwrap();
    }
}
