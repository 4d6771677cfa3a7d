//! Delays links until udevd has given them their final name, which depends on where they are plugged in.
//!
//! Otherwise work that starts under the kernel's temporary name (an address, a lease) would be lost with it. If udevd
//! does nothing, the node uses the kernel's name after a timeout: it must be reachable.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corten_base::console;

/// Timeout for udevd. It takes milliseconds, or some seconds on a busy host without KVM.
const PATIENCE: Duration = Duration::from_secs(15);
/// Value for names made up by the kernel, such as `eth0` (linux/netdevice.h, `NET_NAME_ENUM`).
const BY_CHANCE: &str = "1";

/// Links that await their names.
#[derive(Debug)]
pub(super) struct Names {
    classes: PathBuf,
    /// udevd's database, with a record for every processed link (libudev: `n` and the index).
    records: PathBuf,
    /// Start of the wait by name and index, and whether its timeout was logged.
    awaited: HashMap<(String, u32), (Instant, bool)>,
    now: Instant,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            classes: "/sys/class/net".into(),
            records: "/run/udev/data".into(),
            awaited: HashMap::new(),
            now: Instant::now(),
        }
    }
}

impl Names {
    /// Starts a new round of checks.
    pub(super) fn look(&mut self) {
        self.now = Instant::now();
        let (classes, records) = (&self.classes, &self.records);
        self.awaited.retain(|(name, index), _| {
            classes.join(name).exists() && !records.join(format!("n{index}")).exists()
        });
    }

    /// Whether the link keeps this name.
    pub(super) fn is_final(&mut self, name: &str, index: u32) -> bool {
        let class = self.classes.join(name);
        let given = fs::read_to_string(class.join("name_assign_type"));
        // The creator of a purely virtual link has chosen its name.
        let by_chance = given.is_ok_and(|given| given.trim() == BY_CHANCE);
        let is_known = self.records.join(format!("n{index}")).exists();
        if is_known || !by_chance || !class.join("device").exists() {
            return true;
        }
        let key = (name.to_owned(), index);
        let (since, is_told) = self.awaited.entry(key).or_insert((self.now, false));
        let waited = self.now.saturating_duration_since(*since);
        if waited >= PATIENCE && !std::mem::replace(is_told, true) {
            console::warn(&format!(
                "network: udevd has not processed {name} in time; its current name is used"
            ));
        }
        waited >= PATIENCE
    }

    /// Whether a link must be checked again soon.
    pub(super) fn are_awaited(&self) -> bool {
        let waits = |since: Instant| self.now.saturating_duration_since(since) < PATIENCE;
        self.awaited.values().any(|(since, _)| waits(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_link_name_is_awaited_for_a_bounded_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut names = Names {
            classes: directory.path().join("net"),
            records: directory.path().join("data"),
            ..Names::default()
        };
        let link = |name: &str, given: &str, has_device: bool| {
            let class = directory.path().join("net").join(name);
            fs::create_dir_all(&class).unwrap();
            fs::write(class.join("name_assign_type"), given).unwrap();
            if has_device {
                fs::create_dir_all(class.join("device")).unwrap();
            }
        };
        fs::create_dir_all(directory.path().join("data")).unwrap();
        link("eth0", "1\n", true);
        link("dummy0", "1\n", false);
        link("enp0s2", "4\n", true);
        names.look();
        assert!(names.is_final("dummy0", 5) && names.is_final("enp0s2", 3));
        assert!(!names.are_awaited());
        assert!(!names.is_final("eth0", 2) && names.are_awaited());
        // udevd has processed the link and left its name.
        fs::write(directory.path().join("data/n2"), "").unwrap();
        names.look();
        assert!(names.is_final("eth0", 2) && !names.are_awaited());
        // udevd does not respond.
        fs::remove_file(directory.path().join("data/n2")).unwrap();
        names.look();
        assert!(!names.is_final("eth0", 2));
        names.now += PATIENCE;
        assert!(names.is_final("eth0", 2) && !names.are_awaited());
        // The link is gone.
        fs::remove_dir_all(directory.path().join("net/eth0")).unwrap();
        names.look();
        assert!(names.awaited.is_empty());
    }
}
