//! Asking the kernel to tell again about what is there already.

use crate::sysfs::Sysfs;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::PathBuf;
use tracing::debug;

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

    /// Asks for up to `count` devices. One that is gone or does not want to
    /// tell is skipped.
    pub fn advance(&mut self, count: usize) {
        for path in self.left.drain(..count.min(self.left.len())) {
            if let Err(error) = fs::write(path.join("uevent"), "add") {
                debug!("coldplug {}: {error}", path.display());
            }
        }
    }

    /// Whether all were asked for.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}
