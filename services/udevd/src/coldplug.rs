//! Coldplug: requests an event for every device that is present already.

use crate::sysfs::Sysfs;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use tracing::debug;

/// Requests an event `action` for the device with this sysfs directory. A device that is gone or refuses is skipped.
pub fn ask(path: &Path, action: &str) {
    if let Err(error) = fs::write(path.join("uevent"), action) {
        debug!(
            "cannot request the event {action} of {}: {error}",
            path.display()
        );
    }
}

/// Order in which devices are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Network cards, their parents and their interfaces: the node is unreachable until they work.
    Network,
    /// All other devices.
    Any,
    /// Mapped devices, after the disks they consist of.
    Mapped,
}

impl Turn {
    fn of(path: &Path, network: &[PathBuf]) -> Self {
        let text = path.to_string_lossy();
        let related = |card: &PathBuf| card.starts_with(path) || path.starts_with(card);
        if text.contains("/block/dm-") || text.contains("/block/md") {
            Self::Mapped
        } else if network.iter().any(related) {
            Self::Network
        } else {
            Self::Any
        }
    }
}

/// The PCI network cards (base class 02 of the PCI Code and ID Assignment Specification), whose drivers may not be
/// loaded yet, and the interfaces of devices.
fn network(sysfs: &Sysfs) -> Vec<PathBuf> {
    let is_card = |pci: &PathBuf| {
        fs::read_to_string(pci.join("class")).is_ok_and(|class| class.starts_with("0x02"))
    };
    let is_devices = |interface: &PathBuf| interface.join("device").exists();
    let cards = sysfs.targets("/bus/pci/devices").into_iter();
    let interfaces = sysfs.targets("/class/net").into_iter();
    cards
        .filter(is_card)
        .chain(interfaces.filter(is_devices))
        .collect()
}

/// All devices of buses and classes. Only their links are read: libudev's enumerator opens each device, which takes
/// longer than the whole handling.
fn devices(sysfs: &Sysfs) -> BTreeSet<PathBuf> {
    let buses = sysfs.names("/bus").into_iter();
    let classes = sysfs.names("/class").into_iter();
    buses
        .map(|bus| format!("/bus/{bus}/devices"))
        .chain(classes.map(|class| format!("/class/{class}")))
        .flat_map(|directory| sysfs.targets(&directory))
        .collect()
}

/// Devices not requested yet, parents before children.
#[derive(Debug, Default)]
pub struct Coldplug {
    left: VecDeque<PathBuf>,
}

impl Coldplug {
    /// All buses, then all devices. A directory that cannot be listed is skipped.
    pub fn everything(sysfs: &Sysfs) -> Self {
        let mut devices: Vec<PathBuf> = devices(sysfs).into_iter().collect();
        let network = network(sysfs);
        // A parent's path is a prefix of its child's path.
        devices.sort_by_cached_key(|path| (Turn::of(path, &network), path.clone()));
        let buses = sysfs
            .names("/bus")
            .into_iter()
            .map(|bus| sysfs.path(&format!("/bus/{bus}")));
        Self {
            left: buses.chain(devices).collect(),
        }
    }

    /// Requests events for up to `count` devices.
    pub fn advance(&mut self, count: usize) {
        for path in self.left.drain(..count.min(self.left.len())) {
            ask(&path, "add");
        }
    }

    /// Whether every device was requested.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Turn, devices, network};
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    #[test]
    fn all_devices_and_network_devices_are_found() {
        let tree = Tree::new();
        let (card, disk) = (
            "/devices/pci0000:00/0000:00:02.0",
            "/devices/pci0000:00/0000:00:03.0",
        );
        let interface = format!("{card}/virtio0/net/eth0");
        tree.attribute(card, "class", "0x020000\n")
            .attribute(disk, "class", "0x010000\n")
            .attribute(&interface, "device/uevent", "")
            .attribute("/devices/virtual/net/lo", "uevent", "");
        let link = |directory: &str, device: &str| {
            let place = tree.path().join(directory);
            fs::create_dir_all(&place).unwrap();
            let target = tree.path().join(device.trim_start_matches('/'));
            symlink(&target, place.join(target.file_name().unwrap())).unwrap();
        };
        link("bus/pci/devices", card);
        link("bus/pci/devices", disk);
        link("class/net", &interface);
        link("class/net", "/devices/virtual/net/lo");
        let root = tree.path().canonicalize().unwrap();
        let place = |device: &str| root.join(device.trim_start_matches('/'));
        let sysfs = Sysfs::new(&root);
        assert_eq!(network(&sysfs), [place(card), place(&interface)]);
        let all = [card, disk, &interface, "/devices/virtual/net/lo"].map(place);
        assert_eq!(devices(&sysfs), all.into());
    }

    #[test]
    fn network_devices_come_first_and_mapped_devices_last() {
        let card = PathBuf::from("/sys/devices/pci0000:00/0000:00:02.0");
        let turn = |path: &str| Turn::of(Path::new(path), std::slice::from_ref(&card));
        for path in [
            "/sys/devices/pci0000:00",
            "/sys/devices/pci0000:00/0000:00:02.0",
            "/sys/devices/pci0000:00/0000:00:02.0/virtio0/net/eth0",
        ] {
            assert_eq!(turn(path), Turn::Network, "{path}");
        }
        for path in [
            "/sys/devices/pci0000:00/0000:00:02",
            "/sys/devices/virtual/tty/tty1",
        ] {
            assert_eq!(turn(path), Turn::Any, "{path}");
        }
        assert_eq!(turn("/sys/devices/virtual/block/dm-0"), Turn::Mapped);
        assert!(Turn::Network < Turn::Any && Turn::Any < Turn::Mapped);
    }
}
