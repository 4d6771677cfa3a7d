//! The node's META values: read once from the disk, and changed on the disk first.

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
    /// Neither copy was whole when it was opened, and none was written since.
    is_damaged: AtomicBool,
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
            is_damaged: AtomicBool::new(false),
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
        self.is_damaged.store(!whole, Relaxed);
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
        self.is_damaged.store(false, Relaxed);
        self.values.send_replace(values);
        Ok(())
    }

    /// Sets a value that is not worth what a damaged META may still say: a person can look at its copies.
    ///
    /// # Errors
    /// It is damaged, or as for [`Meta::change`].
    pub fn note(&self, tag: Tag, value: Vec<u8>) -> Result<(), MetaError> {
        if self.is_damaged.load(Relaxed) {
            let why = "neither copy of the values is whole";
            return Err(MetaError::Refused(tag, why.to_owned()));
        }
        self.change(tag, Some(value))
    }

    /// Has META say that STATE was encrypted.
    ///
    /// # Errors
    /// It is damaged, or cannot be written.
    pub fn keep_encrypted(&self) -> Result<(), MetaError> {
        if self.values.borrow().contains_key(&WAS_ENCRYPTED) {
            return Ok(());
        }
        self.note(WAS_ENCRYPTED, b"STATE".to_vec())
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

/// Writes how the boot `boot` ends to the META partition `device`, where that boot has kept why it is locked.
///
/// # Errors
/// The device's. A META without such a note stays as it is.
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
        // The note is of another boot.
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
        // What the node needs is written all the same, and then META is whole.
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
        for authorities in ["one", "one", "two"] {
            meta.keep_owner(authorities).unwrap();
            let known = owner(&corten_meta::read(disk.as_file()).unwrap().unwrap());
            assert_eq!(known.as_deref(), Some(authorities));
        }
        meta.keep_encrypted().unwrap();
        meta.keep_encrypted().unwrap();
    }
}
