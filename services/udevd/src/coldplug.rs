//! Asking the kernel to tell again about what is there already.

use crate::sysfs::Sysfs;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
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
    /// Links are read, not followed: on the way to each device libudev's own
    /// enumeration opens every directory.
    pub fn everything(sysfs: &Sysfs) -> Self {
        let mut devices = BTreeSet::new();
        for (folder, below) in [("/bus", "/devices"), ("/class", "")] {
            for name in sysfs.names(folder) {
                devices.extend(sysfs.targets(&format!("{folder}/{name}{below}")));
            }
        }
        let mut devices: Vec<PathBuf> = devices.into_iter().collect();
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
        Self {
            left: buses.chain(devices).collect(),
        }
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

#[cfg(test)]
mod tests {
    use super::Coldplug;
    use crate::sysfs::Sysfs;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_device_is_asked_once_and_after_its_parent() {
        let sys = tempfile::tempdir().unwrap();
        let path = |name: &str| sys.path().join(name);
        for folder in [
            "devices/pci0/1/net/eth0",
            "devices/virtual/block/dm-0",
            "bus/pci/devices",
            "class/net",
            "class/block",
        ] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        let link = |name: &str, target: &str| symlink(target, path(name)).unwrap();
        link("bus/pci/devices/1", "../../../devices/pci0/1");
        link("class/net/eth0", "../../devices/pci0/1/net/eth0");
        link("class/block/dm-0", "../../devices/virtual/block/dm-0");
        fs::write(path("class/net/bonding_masters"), "").unwrap();
        let coldplug = Coldplug::everything(&Sysfs::new(sys.path()));
        let asked: Vec<_> = coldplug
            .left
            .iter()
            .map(|found| found.strip_prefix(sys.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            asked,
            [
                "bus/pci",
                "devices/pci0/1",
                "devices/pci0/1/net/eth0",
                "devices/virtual/block/dm-0"
            ]
        );
    }
}
