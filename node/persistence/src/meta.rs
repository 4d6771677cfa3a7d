//! The node's META values: read once from the disk, and written to the disk before they change in memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use corten_meta::tags::{LOCK, OWNER, WAS_ENCRYPTED};
use corten_meta::{Tag, Values};
use tokio::sync::watch;

use crate::last_stop::{Note, Stop};

/// META of this node.
#[derive(Debug)]
pub struct Meta {
    partition: Mutex<Option<File>>,
    /// Whether both copies were damaged when opened, and none was written since.
    is_damaged: AtomicBool,
    values: watch::Sender<Values>,
}

/// Reason why a value was not changed.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The node did not start from a disk.
    #[error("this node has no META partition: it was not started from a disk")]
    NoPartition,
    /// The value to delete does not exist.
    #[error("META has no value {0:#04x}")]
    NoValue(Tag),
    /// The node needs the current value, or cannot use the new one.
    #[error("META {0:#04x} stays as it is: {1}")]
    Refused(Tag, String),
    /// Writing failed; the values are unchanged.
    #[error("cannot write META: {0}")]
    Write(#[from] io::Error),
}

impl Default for Meta {
    fn default() -> Meta {
        Meta {
            partition: Mutex::new(None),
            is_damaged: AtomicBool::new(false),
            values: watch::Sender::new(Values::new()),
        }
    }
}

impl Meta {
    /// Reads the values from the device, which stores all later changes. Returns false if both copies are damaged: then
    /// there are no values, and the next change writes both copies.
    ///
    /// # Errors
    /// Those of the device.
    pub fn open(&self, device: &Path) -> io::Result<bool> {
        let file = OpenOptions::new().read(true).write(true).open(device)?;
        let found = corten_meta::read(&file)?;
        let whole = found.is_some();
        self.is_damaged.store(!whole, Relaxed);
        let mut partition = self.partition();
        *partition = Some(file);
        self.values.send_replace(found.unwrap_or_default());
        Ok(whole)
    }

    /// Whether a device is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.partition().is_some()
    }

    /// Sets or deletes a value durably.
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
        self.is_damaged.store(false, Relaxed);
        self.values.send_replace(values);
        Ok(())
    }

    /// Sets a value of low importance. It is not written to a damaged META, because an operator may still recover the
    /// copies.
    ///
    /// # Errors
    /// If META is damaged, or those of [`Meta::change`].
    pub fn note(&self, tag: Tag, value: Vec<u8>) -> Result<(), MetaError> {
        if self.is_damaged.load(Relaxed) {
            let why = "both copies of the values are damaged";
            return Err(MetaError::Refused(tag, why.to_owned()));
        }
        self.change(tag, Some(value))
    }

    /// Records in META that STATE was encrypted.
    ///
    /// # Errors
    /// If META is damaged or cannot be written.
    pub fn keep_encrypted(&self) -> Result<(), MetaError> {
        if self.values.borrow().contains_key(&WAS_ENCRYPTED) {
            return Ok(());
        }
        self.note(WAS_ENCRYPTED, b"STATE".to_vec())
    }

    /// Records the owner's CAs in META, as PEM certificates.
    ///
    /// # Errors
    /// If META cannot be written. The recorded owner stays.
    pub fn keep_owner(&self, cas: &str) -> Result<(), MetaError> {
        let value = cas.as_bytes();
        if self.values.borrow().get(&OWNER).map(Vec::as_slice) == Some(value) {
            return Ok(());
        }
        self.change(OWNER, Some(value.to_vec()))
    }

    /// A receiver of the values.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Values> {
        self.values.subscribe()
    }

    /// Locked while the disk is written, so that changes are serialized.
    fn partition(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's CAs in META. `None` if the node has no owner or META does not record it.
#[must_use]
pub fn owner(values: &Values) -> Option<String> {
    let value = values.get(&OWNER)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Records how boot `boot` ends in the META partition `device`, if that boot has recorded its lock there.
///
/// # Errors
/// Those of the device. Without such a note META is unchanged.
pub fn end_lock(device: &Path, boot: &str, stop: &Stop) -> io::Result<()> {
    corten_meta::amend(device, |values| {
        let note = values.get(&LOCK).and_then(|value| Note::read(value));
        let Some(mut note) = note.filter(|note| note.boot == boot) else {
            return false;
        };
        note.stop = Some(stop.clone());
        let written = note.write();
        written.is_ok_and(|value| values.insert(LOCK, value).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_stop::Reason;

    #[test]
    fn meta_value_survives_a_restart() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let tag = Tag::new(0x0c).unwrap();
        let meta = Meta::default();
        let none = meta.change(tag, None).unwrap_err();
        assert!(matches!(none, MetaError::NoPartition), "{none}");
        assert!(meta.open(disk.path()).unwrap());
        std::fs::write(disk.path(), b"not the format of META").unwrap();
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
    fn lock_note_is_stored_with_the_boot_end_and_never_in_a_damaged_meta() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let meta = Meta::default();
        meta.open(disk.path()).unwrap();
        let note = Note::now("b", "STATE is damaged");
        let stop = Stop::now(Reason::Reboot, "by the API");
        let kept = || {
            let values = corten_meta::read(disk.as_file()).unwrap().unwrap();
            values.get(&LOCK).and_then(|value| Note::read(value))
        };
        end_lock(disk.path(), "b", &stop).unwrap();
        assert_eq!(kept(), None);
        meta.note(LOCK, note.write().unwrap()).unwrap();
        // The note belongs to another boot.
        end_lock(disk.path(), "a", &stop).unwrap();
        assert_eq!(kept(), Some(note.clone()));
        end_lock(disk.path(), "b", &stop).unwrap();
        assert_eq!(kept().unwrap().stop, Some(stop));

        let damaged = vec![0xff; 1 << 20];
        std::fs::write(disk.path(), &damaged).unwrap();
        assert!(!meta.open(disk.path()).unwrap());
        meta.note(LOCK, note.write().unwrap()).unwrap_err();
        end_lock(disk.path(), "b", &Stop::now(Reason::Reboot, "")).unwrap();
        assert!(std::fs::read(disk.path()).unwrap() == damaged);
        // A value that the node needs is written even to a damaged META, which is intact afterwards.
        meta.change(OWNER, Some(b"value".to_vec())).unwrap();
        meta.note(LOCK, note.write().unwrap()).unwrap();
    }

    #[test]
    fn owner_is_kept_until_a_reset() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        let meta = Meta::default();
        meta.open(disk.path()).unwrap();
        assert_eq!(owner(&meta.watch().borrow()), None);
        for cas in ["one", "one", "two"] {
            meta.keep_owner(cas).unwrap();
            let known = owner(&corten_meta::read(disk.as_file()).unwrap().unwrap());
            assert_eq!(known.as_deref(), Some(cas));
        }
        meta.keep_encrypted().unwrap();
        meta.keep_encrypted().unwrap();
    }
}
