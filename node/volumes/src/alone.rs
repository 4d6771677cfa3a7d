//! Per-disk locks. A thread that changes a partition table, or wipes its partitions, holds the disk's lock meanwhile.
//! So read, change and write are one step.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locked disks, by the kernel's names.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static FREED: Condvar = Condvar::new();

/// The lock of a disk; dropping it unlocks the disk.
#[derive(Debug)]
pub struct Alone(String);

/// Locks a disk, given by the kernel's name, without waiting.
///
/// # Errors
/// `EBUSY` if another thread holds the lock, perhaps for hours.
pub fn lock_disk(disk: &str) -> io::Result<Alone> {
    if taken().insert(disk.to_owned()) {
        return Ok(Alone(disk.to_owned()));
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "machined is changing or wiping its partitions; try again later",
    ))
}

/// Locks a disk as soon as it is free.
pub fn wait_for(disk: &str) -> Alone {
    let mut taken = taken();
    while !taken.insert(disk.to_owned()) {
        taken = FREED.wait(taken).unwrap_or_else(PoisonError::into_inner);
    }
    Alone(disk.to_owned())
}

impl Drop for Alone {
    fn drop(&mut self) {
        taken().remove(&self.0);
        FREED.notify_all();
    }
}

fn taken() -> MutexGuard<'static, BTreeSet<String>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn disk_lock_is_exclusive_per_disk() {
        let first = lock_disk("a-disk").unwrap();
        let busy = lock_disk("a-disk").unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        let _other = lock_disk("another-disk").unwrap();
        let next = thread::spawn(|| drop(wait_for("a-disk")));
        drop(first);
        next.join().unwrap();
        lock_disk("a-disk").unwrap();
    }
}
