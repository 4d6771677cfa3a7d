//! The PCI bus in sysfs (Documentation/ABI/testing/sysfs-bus-pci).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_base::mount_table;
use corten_volumes::user::swapped_to;

/// Maximum depth of stacked block devices; real stacks are shallower.
const DEPTH: usize = 8;

/// The kernel's devices and drivers.
pub(super) trait Bus: Clone + Send + Sync + 'static {
    /// The driver of a device, empty for none; `None` if there is no such device.
    fn driver(&self, address: &str) -> Option<String>;
    /// The available drivers.
    fn drivers(&self) -> BTreeSet<String>;
    /// The use of block devices behind the device, if any is in use.
    fn carries(&self, address: &str) -> Option<String>;
    /// Restricts the device to this driver; empty removes the restriction.
    fn choose(&self, address: &str, driver: &str) -> io::Result<()>;
    /// Unbinds the device from its driver.
    fn unbind(&self, address: &str) -> io::Result<()>;
    /// Offers a device without a driver to the available drivers.
    fn probe(&self, address: &str) -> io::Result<()>;
}

/// The kernel's PCI bus, or a test's.
#[derive(Debug, Clone)]
pub(super) struct PciBus {
    /// `/sys`, except in tests.
    pub(super) sysfs: PathBuf,
}

impl PciBus {
    fn device(&self, address: &str) -> PathBuf {
        self.sysfs.join("bus/pci/devices").join(address)
    }

    /// Whether a block device is behind a PCI device, directly or through lower devices.
    fn is_behind(&self, name: &str, address: &str, depth: usize) -> bool {
        let Ok(path) = fs::canonicalize(self.sysfs.join("class/block").join(name)) else {
            return false;
        };
        let mut ways = nvme_controllers(&path);
        ways.push(path.clone());
        if ways
            .iter()
            .any(|way| way.iter().any(|step| step == address))
        {
            return true;
        }
        let below = names(&path.join("slaves"));
        depth > 0
            && below
                .iter()
                .any(|name| self.is_behind(name, address, depth - 1))
    }

    /// The use of the first device in `uses` that is behind a PCI device.
    fn use_behind(
        &self,
        address: &str,
        mut uses: impl Iterator<Item = (String, String)>,
    ) -> Option<String> {
        let found = uses.find(|(device, _)| {
            // `/dev/mapper` contains links.
            let device = fs::canonicalize(device).unwrap_or_default();
            let name = device.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| self.is_behind(name, address, DEPTH))
        });
        found.map(|(_, purpose)| purpose)
    }
}

/// Controllers of an NVMe disk with several paths. In sysfs the disk is not below a controller but below its subsystem,
/// which links to them (kernel: `nvme_init_subsystem` in drivers/nvme/host/core.c).
fn nvme_controllers(path: &Path) -> Vec<PathBuf> {
    let is_subsystem = |above: &&Path| {
        above
            .parent()
            .is_some_and(|all| all.ends_with("nvme-subsystem"))
    };
    let Some(subsystem) = path.ancestors().find(is_subsystem) else {
        return Vec::new();
    };
    let links = names(subsystem).into_iter();
    links
        .filter_map(|link| fs::canonicalize(subsystem.join(link)).ok())
        .collect()
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
        let mounts = mounts.filter(|mount| mount.source.starts_with("/dev/"));
        let mounts = mounts.map(|mount| (mount.source, format!("the mount at {}", mount.target)));
        let swaps = swapped_to().into_iter();
        let swaps = swaps.map(|device| (device, "active swap".to_owned()));
        self.use_behind(address, mounts.chain(swaps))
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
    fn sysfs_files_are_read_and_written() {
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
    fn disk_is_traced_to_its_controller_through_all_layers() {
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
        // A device in use has a node in /dev, or a link to one.
        let dev = root.join("dev/mapper");
        fs::create_dir_all(&dev).unwrap();
        fs::write(root.join("dev/dm-0"), "").unwrap();
        symlink("../dm-0", dev.join("u-data")).unwrap();
        let uses = |device: &str| {
            let device = root.join("dev").join(device).display().to_string();
            let other = (format!("{device}-2"), "another".to_owned());
            [other, (device, "swap".to_owned())].into_iter()
        };
        for device in ["dm-0", "mapper/u-data"] {
            let found = bus.use_behind(controller, uses(device));
            assert_eq!(found.as_deref(), Some("swap"));
        }
        assert_eq!(bus.use_behind("0000:00:06.0", uses("dm-0")), None);
    }

    #[test]
    fn multipath_disk_is_traced_to_both_controllers() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let bus = PciBus {
            sysfs: root.to_owned(),
        };
        let subsystem = root.join("devices/virtual/nvme-subsystem/nvme-subsys0");
        let partition = subsystem.join("nvme0n1/nvme0n1p3");
        fs::create_dir_all(&partition).unwrap();
        let controllers = ["0000:00:04.0", "0000:80:04.0"];
        for (name, address) in ["nvme0", "nvme1"].into_iter().zip(controllers) {
            let controller = root.join(format!("devices/pci/{address}/nvme/{name}"));
            fs::create_dir_all(&controller).unwrap();
            symlink(&controller, subsystem.join(name)).unwrap();
        }
        let class = root.join("class/block");
        fs::create_dir_all(&class).unwrap();
        symlink(&partition, class.join("nvme0n1p3")).unwrap();
        for address in controllers {
            assert!(bus.is_behind("nvme0n1p3", address, DEPTH), "{address}");
        }
        assert!(!bus.is_behind("nvme0n1p3", "0000:00:05.0", DEPTH));
    }
}
