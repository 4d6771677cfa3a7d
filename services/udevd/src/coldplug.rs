//! Asking the kernel to tell again about what is there already.

use crate::sysfs::Sysfs;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tracing::debug;

/// Asks the kernel to tell `action` of the device with this directory. One that
/// is gone or does not want to tell is skipped.
pub fn ask(path: &Path, action: &str) {
    if let Err(error) = fs::write(path.join("uevent"), action) {
        debug!("ask for {action} of {}: {error}", path.display());
    }
}

/// Devices still to be asked for, parents before their children.
#[derive(Debug, Default)]
pub struct Coldplug {
    left: VecDeque<PathBuf>,
}

impl Coldplug {
    /// Everything there is: buses, then devices.
    ///
    /// # Errors
    /// When sysfs cannot be enumerated.
    pub fn everything(sysfs: &Sysfs) -> io::Result<Self> {
        let mut devices: Vec<PathBuf> = udev::Enumerator::new()?
            .scan_devices()?
            .map(|device| device.syspath().to_owned())
            .collect();
        // A parent's path is the beginning of its child's. Mapped devices come
        // last: what they are made of is then known.
        devices.sort_by_key(|path| {
            let text = path.to_string_lossy();
            (
                text.contains("/block/dm-") || text.contains("/block/md"),
                path.clone(),
            )
        });
        let buses = sysfs
            .names("/bus")
            .into_iter()
            .map(|bus| sysfs.path(&format!("/bus/{bus}")));
        Ok(Self {
            left: buses.chain(devices).collect(),
        })
    }

    /// Asks for up to `count` devices.
    pub fn advance(&mut self, count: usize) {
        for path in self.left.drain(..count.min(self.left.len())) {
            ask(&path, "add");
        }
    }

    /// Whether all were asked for.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}
