//! Tells which buses of this machine may still discover a disk after udevd has settled.
//!
//! Owns the list of such buses. Never waits: the kernel finishes the discovery on any other bus before a module's load
//! returns, or before it starts process 1 (`async_synchronize_full`).

use std::fs;
use std::path::Path;

/// Name and sysfs directory of each bus, and the start of the names that show that the machine has it. A kernel thread
/// that nothing waits for asks the ports of a hub, the slot of a card and the hypervisor. Another one repeats the probe of
/// a device in a device tree whose supplier has got its driver (`EPROBE_DEFER`).
const BUSES: [(&str, &str, &str); 4] = [
    ("USB", "bus/usb/devices", "usb"),
    ("MMC", "class/mmc_host", "mmc"),
    ("Hyper-V", "bus/vmbus/devices", ""),
    ("device-tree", "firmware/devicetree/base", ""),
];

/// A bus of this machine that may still discover a disk; `None` if all disks are known.
#[must_use]
pub fn late_bus() -> Option<&'static str> {
    of(Path::new("/sys"))
}

fn of(sysfs: &Path) -> Option<&'static str> {
    let is_there = |directory: &str, start: &str| {
        let entries = fs::read_dir(sysfs.join(directory));
        let mut names = entries.into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().starts_with(start))
    };
    let found = BUSES
        .iter()
        .find(|(_, directory, start)| is_there(directory, start));
    found.map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buses_that_the_machine_has_may_still_discover_a_disk() {
        let sysfs = tempfile::tempdir().unwrap();
        let add = |path: &str| fs::create_dir_all(sysfs.path().join(path)).unwrap();
        assert_eq!(of(sysfs.path()), None);
        add("bus/usb/devices");
        add("class/mmc_host");
        add("bus/vmbus/devices");
        add("class/scsi_host/host0");
        assert_eq!(of(sysfs.path()), None);
        add("firmware/devicetree/base/soc");
        assert_eq!(of(sysfs.path()), Some("device-tree"));
        add("bus/vmbus/devices/f8b3781a-1e82-4818-a1c3-63d806ec15bb");
        assert_eq!(of(sysfs.path()), Some("Hyper-V"));
        add("class/mmc_host/mmc0");
        assert_eq!(of(sysfs.path()), Some("MMC"));
        add("bus/usb/devices/usb1");
        assert_eq!(of(sysfs.path()), Some("USB"));
    }
}
