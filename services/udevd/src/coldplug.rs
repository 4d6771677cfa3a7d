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

/// The interfaces of devices. A virtual interface keeps the name that its maker gave it.
fn interfaces(sysfs: &Sysfs) -> Vec<PathBuf> {
    let mut interfaces = sysfs.targets("/class/net");
    interfaces.retain(|interface| interface.join("device").exists());
    interfaces
}

/// The PCI network cards (base class 02 of the PCI Code and ID Assignment Specification), whose drivers may not be
/// loaded yet.
fn cards(sysfs: &Sysfs) -> Vec<PathBuf> {
    let is_card = |pci: &PathBuf| {
        fs::read_to_string(pci.join("class")).is_ok_and(|class| class.starts_with("0x02"))
    };
    let mut cards = sysfs.targets("/bus/pci/devices");
    cards.retain(is_card);
    cards
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

/// Devices not requested yet. Interfaces that exist come first: the network awaits their names. All other devices
/// follow, parents before children. They are listed only then, because a list of all devices takes a while. Virtual
/// terminals are last: there are 63 of them, and nothing on a node awaits one.
#[derive(Debug)]
pub struct Coldplug {
    sysfs: Sysfs,
    left: VecDeque<PathBuf>,
    /// Devices that were requested first; `None` once all other devices are listed.
    first: Option<Vec<PathBuf>>,
    terminals: VecDeque<PathBuf>,
}

impl Coldplug {
    /// All buses and devices.
    pub fn everything(sysfs: &Sysfs) -> Self {
        let first = interfaces(sysfs);
        Self {
            sysfs: sysfs.clone(),
            left: first.iter().cloned().collect(),
            first: Some(first),
            terminals: VecDeque::new(),
        }
    }

    /// Requests events for up to `count` devices.
    pub fn advance(&mut self, count: usize) {
        if self.left.is_empty()
            && let Some(first) = self.first.take()
        {
            let is_terminal = |path: &PathBuf| {
                let path = path.to_string_lossy();
                path.contains("/virtual/tty/") || path.contains("/virtual/vc/")
            };
            (self.terminals, self.left) =
                rest(&self.sysfs, &first).into_iter().partition(is_terminal);
        }
        for path in self.left.drain(..count.min(self.left.len())) {
            ask(&path, "add");
        }
    }

    /// Whether every device but the virtual terminals was requested.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.first.is_none()
    }

    /// Lets the virtual terminals be requested. Returns whether there are any.
    pub fn go_on(&mut self) -> bool {
        self.left.append(&mut self.terminals);
        !self.left.is_empty()
    }
}

/// All buses, then all devices but the `first`. A directory that cannot be listed is skipped.
fn rest(sysfs: &Sysfs, first: &[PathBuf]) -> VecDeque<PathBuf> {
    let mut devices = devices(sysfs);
    for interface in first {
        devices.remove(interface);
    }
    let network: Vec<PathBuf> = cards(sysfs).into_iter().chain(first.to_vec()).collect();
    let mut devices: Vec<PathBuf> = devices.into_iter().collect();
    // A parent's path is a prefix of its child's path.
    devices.sort_by_cached_key(|path| (Turn::of(path, &network), path.clone()));
    let buses = sysfs.names("/bus").into_iter();
    let buses = buses.map(|bus| sysfs.path(&format!("/bus/{bus}")));
    buses.chain(devices).collect()
}

#[cfg(test)]
mod tests {
    use super::{Coldplug, Turn, cards, devices, interfaces};
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;
    use std::fs;
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
        tree.listed("bus/pci/devices", card);
        tree.listed("bus/pci/devices", disk);
        tree.listed("class/net", &interface);
        tree.listed("class/net", "/devices/virtual/net/lo");
        let root = tree.path().canonicalize().unwrap();
        let place = |device: &str| root.join(device.trim_start_matches('/'));
        let sysfs = Sysfs::new(&root);
        assert_eq!(interfaces(&sysfs), [place(&interface)]);
        assert_eq!(cards(&sysfs), [place(card)]);
        let all = [card, disk, &interface, "/devices/virtual/net/lo"].map(place);
        assert_eq!(devices(&sysfs), all.into());
    }

    #[test]
    fn present_interfaces_are_requested_first_and_virtual_terminals_last() {
        let tree = Tree::new();
        let (card, disk) = ("/devices/pci0000:00/0000:00:02.0", "/devices/disk");
        let interface = format!("{card}/net/eth0");
        tree.attribute(&interface, "device/uevent", "")
            .attribute(&interface, "uevent", "")
            .attribute(disk, "uevent", "");
        tree.listed("class/net", &interface);
        let asked = |device: &str| {
            let file = tree.path().join(device.trim_start_matches('/'));
            fs::read_to_string(file.join("uevent")).unwrap()
        };
        let sysfs = Sysfs::new(tree.path().canonicalize().unwrap());
        let mut coldplug = Coldplug::everything(&sysfs);
        coldplug.advance(64);
        assert_eq!((asked(&interface), asked(disk)), ("add".into(), "".into()));
        assert!(!coldplug.is_done());
        let terminal = "/devices/virtual/tty/tty1";
        tree.attribute(terminal, "uevent", "");
        tree.listed("class/tty", terminal);
        // A disk that appears meanwhile is in the list.
        tree.listed("class/block", disk);
        fs::write(tree.path().join(&interface[1..]).join("uevent"), "").unwrap();
        coldplug.advance(64);
        assert_eq!((asked(&interface), asked(disk)), ("".into(), "add".into()));
        assert!(coldplug.is_done() && asked(terminal).is_empty());
        assert!(coldplug.go_on() && !coldplug.is_done());
        coldplug.advance(64);
        assert_eq!(asked(terminal), "add");
        assert!(coldplug.is_done() && !coldplug.go_on());
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
