//! Detects writes to disks (inotify(7)). A process that closes a node it wrote to may have made a file system, and the
//! kernel sends no event for that. A node is watched only while its device exists.

use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Watched device nodes.
#[derive(Debug)]
pub struct Watches {
    inotify: OwnedFd,
    /// Devpaths by watch descriptor. Locked while a watch is added, so that no event arrives before its device is
    /// known.
    devices: Mutex<BTreeMap<i32, String>>,
}

impl Watches {
    /// An instance without watches.
    ///
    /// # Errors
    /// If the limit of inotify instances is reached.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            devices: Mutex::default(),
        })
    }

    /// Watches the node at `path` of the device; with `wanted` false stops watching the device.
    ///
    /// # Errors
    /// If the node is missing, or there are too many watches.
    pub fn set(&self, path: &Path, devpath: &str, wanted: bool) -> io::Result<()> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted {
            // A watched node keeps its descriptor.
            let number = add_watch(&self.inotify, path, WatchFlags::CLOSE_WRITE)?;
            devices.insert(number, devpath.to_owned());
        } else {
            let watched = devices.iter().find(|(_, device)| *device == devpath);
            if let Some(number) = watched.map(|(number, _)| *number) {
                devices.remove(&number);
                remove_watch(&self.inotify, number)?;
            }
        }
        Ok(())
    }

    /// The devices whose nodes may have been written to since the last call.
    pub fn written(&self) -> Vec<String> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut written: Vec<String> = Vec::new();
        while let Ok(event) = reader.next() {
            // The kernel's queue overflowed: any node may have been written to.
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                written = devices.values().cloned().collect();
            }
            // The node and its watch are gone.
            if event.events().contains(ReadFlags::IGNORED) {
                devices.remove(&event.wd());
            }
            if let Some(device) = devices.get(&event.wd())
                && !written.contains(device)
            {
                written.push(device.clone());
            }
        }
        written
    }
}

impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Watches;
    use std::fs::{self, File};

    #[test]
    fn written_device_nodes_are_reported() {
        let dev = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dev.path().join(name));
        for path in [&a, &b] {
            fs::write(path, "").unwrap();
        }
        let watches = Watches::new().unwrap();
        watches.set(&a, "/devices/a", true).unwrap();
        watches.set(&b, "/devices/b", true).unwrap();
        watches.set(&a, "/devices/a", true).unwrap();
        drop(File::open(&a).unwrap());
        assert!(watches.written().is_empty(), "no process has written yet");
        fs::write(&a, "x").unwrap();
        fs::write(&b, "x").unwrap();
        fs::write(&a, "y").unwrap();
        assert_eq!(watches.written(), ["/devices/a", "/devices/b"]);
        watches.set(&b, "/devices/b", false).unwrap();
        watches.set(&b, "/devices/b", false).unwrap();
        fs::write(&b, "z").unwrap();
        fs::remove_file(&a).unwrap();
        assert!(watches.written().is_empty());
        assert!(watches.set(&a, "/devices/a", true).is_err());
        assert_eq!(watches.devices.lock().unwrap().len(), 0);
    }

    #[test]
    fn lost_inotify_events_report_every_watched_node() {
        let dev = tempfile::tempdir().unwrap();
        let watches = Watches::new().unwrap();
        for name in ["a", "b", "quiet"] {
            let path = dev.path().join(name);
            fs::write(&path, "").unwrap();
            watches.set(&path, name, true).unwrap();
        }
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        // The kernel merges equal consecutive events, so the nodes alternate.
        for number in 0..=most.trim().parse().unwrap() {
            let path = dev.path().join(if number % 2 == 0 { "a" } else { "b" });
            drop(File::options().write(true).open(path).unwrap());
        }
        let mut written = watches.written();
        written.sort();
        assert_eq!(written, ["a", "b", "quiet"]);
        assert!(watches.written().is_empty());
    }
}
