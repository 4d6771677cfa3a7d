//! The kernel's PCI bus, in sysfs (Documentation/ABI/testing/sysfs-bus-pci).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::rebind::Bus;
use crate::mount_table;

/// Devices that lie on others, which lie on others: more than that nobody builds.
const DEPTH: usize = 8;

/// The kernel's, or a test's.
#[derive(Debug, Clone)]
pub(super) struct PciBus {
    /// `/sys`, except in tests.
    pub(super) sysfs: PathBuf,
}

impl PciBus {
    fn device(&self, address: &str) -> PathBuf {
        self.sysfs.join("bus/pci/devices").join(address)
    }

    /// Whether a block device is behind a PCI device, or lies on one that is.
    fn is_behind(&self, name: &str, address: &str, depth: usize) -> bool {
        let Ok(path) = fs::canonicalize(self.sysfs.join("class/block").join(name)) else {
            return false;
        };
        if path.iter().any(|step| step == address) {
            return true;
        }
        let below = names(&path.join("slaves"));
        depth > 0
            && below
                .iter()
                .any(|name| self.is_behind(name, address, depth - 1))
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

impl Bus for PciBus {
    fn driver(&self, address: &str) -> Option<String> {
        let device = self.device(address);
        let driver = fs::read_link(device.join("driver")).unwrap_or_default();
        let name = driver.file_name().unwrap_or_default();
        device.exists().then(|| name.to_string_lossy().into_owned())
    }

    fn drivers(&self) -> BTreeSet<String> {
        names(&self.sysfs.join("bus/pci/drivers"))
    }

    fn carries(&self, address: &str) -> Option<String> {
        let mounts = mount_table::now().into_iter();
        let mut mounts = mounts.filter(|mount| mount.source.starts_with("/dev/"));
        let found = mounts.find(|mount| {
            // `/dev/mapper` has links.
            let device = fs::canonicalize(&mount.source).unwrap_or_default();
            let name = device.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| self.is_behind(name, address, DEPTH))
        });
        found.map(|mount| mount.target)
    }

    fn choose(&self, address: &str, driver: &str) -> io::Result<()> {
        fs::write(
            self.device(address).join("driver_override"),
            format!("{driver}\n"),
        )
    }

    fn unbind(&self, address: &str) -> io::Result<()> {
        fs::write(self.device(address).join("driver/unbind"), address)
    }

    fn probe(&self, address: &str) -> io::Result<()> {
        fs::write(self.sysfs.join("bus/pci/drivers_probe"), address)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_files_of_sysfs_are_read_and_written() {
        let directory = tempfile::tempdir().unwrap();
        let bus = PciBus {
            sysfs: directory.path().to_owned(),
        };
        let address = "0000:00:03.0";
        assert_eq!(bus.driver(address), None);
        bus.choose(address, "a").unwrap_err();
        let device = directory.path().join("bus/pci/devices").join(address);
        let driver = directory.path().join("bus/pci/drivers/e1000");
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(&driver).unwrap();
        assert_eq!(bus.driver(address).as_deref(), Some(""));
        bus.unbind(address).unwrap_err();
        symlink(&driver, device.join("driver")).unwrap();
        assert_eq!(bus.driver(address).as_deref(), Some("e1000"));
        assert_eq!(bus.drivers(), BTreeSet::from(["e1000".to_owned()]));
        let read = |path: &str| fs::read_to_string(directory.path().join(path)).unwrap();
        bus.choose(address, "vfio-pci").unwrap();
        assert_eq!(
            fs::read_to_string(device.join("driver_override")).unwrap(),
            "vfio-pci\n"
        );
        bus.unbind(address).unwrap();
        assert_eq!(read("bus/pci/drivers/e1000/unbind"), address);
        bus.probe(address).unwrap();
        assert_eq!(read("bus/pci/drivers_probe"), address);
    }

    #[test]
    fn a_disk_is_behind_its_controller_through_whatever_lies_between() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let bus = PciBus {
            sysfs: root.to_owned(),
        };
        let controller = "0000:00:05.0";
        let partition = root.join(format!(
            "devices/pci0000:00/{controller}/virtio2/block/vda/vda5"
        ));
        let mapped = root.join("devices/virtual/block/dm-0");
        fs::create_dir_all(&partition).unwrap();
        fs::create_dir_all(mapped.join("slaves/vda5")).unwrap();
        fs::create_dir_all(mapped.join("slaves/dm-0")).unwrap();
        let class = root.join("class/block");
        fs::create_dir_all(&class).unwrap();
        symlink(&partition, class.join("vda5")).unwrap();
        symlink(&mapped, class.join("dm-0")).unwrap();
        for name in ["vda5", "dm-0"] {
            assert!(bus.is_behind(name, controller, DEPTH), "{name}");
            assert!(!bus.is_behind(name, "0000:00:06.0", DEPTH), "{name}");
        }
        assert!(!bus.is_behind("sda", controller, DEPTH));
    }
}
