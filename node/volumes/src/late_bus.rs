//! Tells which buses of this machine may still discover a disk after udevd has settled.
//!
//! Owns the list of such buses. Never waits: the kernel finishes the discovery on any other bus before a module's load
//! returns, or before it starts process 1 (`async_synchronize_full`).

use std::fs;
use std::path::Path;

/// Name and sysfs directory of each bus, and the start of the names of its host controllers. A hub's ports and a card
/// slot are polled by a kernel thread that nothing waits for.
const BUSES: [(&str, &str, &str); 2] = [
    ("USB", "bus/usb/devices", "usb"),
    ("MMC", "class/mmc_host", "mmc"),
];

/// A bus with a host controller that may still discover a disk; `None` if all disks of this machine are known.
#[must_use]
pub fn late_bus() -> Option<&'static str> {
    of(Path::new("/sys"))
}

fn of(sysfs: &Path) -> Option<&'static str> {
    let has_host = |directory: &str, start: &str| {
        let entries = fs::read_dir(sysfs.join(directory));
        let mut names = entries.into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().starts_with(start))
    };
    let found = BUSES
        .iter()
        .find(|(_, directory, start)| has_host(directory, start));
    found.map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buses_with_a_host_controller_may_still_discover_a_disk() {
        let sysfs = tempfile::tempdir().unwrap();
        let add = |path: &str| fs::create_dir_all(sysfs.path().join(path)).unwrap();
        assert_eq!(of(sysfs.path()), None);
        add("bus/usb/devices");
        add("class/mmc_host");
        add("class/scsi_host/host0");
        assert_eq!(of(sysfs.path()), None);
        add("class/mmc_host/mmc0");
        assert_eq!(of(sysfs.path()), Some("MMC"));
        add("bus/usb/devices/usb1");
        assert_eq!(of(sysfs.path()), Some("USB"));
    }
}
