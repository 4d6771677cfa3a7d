//! Links that have yet to get the name they keep: udevd gives it, by where the link is plugged in.
//!
//! What begins with the name the kernel made up (an address, a lease) would end with it. When udevd does nothing, the
//! node does with what the kernel made up: it must be reached.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corten_base::console;

/// udevd takes milliseconds, on a busy host without KVM some seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// Made up by the kernel, as `eth0` (linux/netdevice.h, `NET_NAME_ENUM`).
const BY_CHANCE: &str = "1";

/// Since when links await their names.
#[derive(Debug)]
pub(super) struct Names {
    classes: PathBuf,
    /// Where udevd has a record of every link it has looked at (libudev: `n` and the index).
    records: PathBuf,
    /// By name and index; and whether it was told that one is awaited in vain.
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
    /// The links are looked at anew.
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
        // Of what is made of software alone, whoever made it chose the name.
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
                "network: udevd does not look at {name}; it is used as it is"
            ));
        }
        waited >= PATIENCE
    }

    /// Whether a link has to be looked at again soon.
    pub(super) fn are_awaited(&self) -> bool {
        let waits = |since: Instant| self.now.saturating_duration_since(since) < PATIENCE;
        self.awaited.values().any(|(since, _)| waits(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cards_name_is_awaited_but_not_for_ever() {
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
        // udevd has no better name.
        fs::write(directory.path().join("data/n2"), "").unwrap();
        names.look();
        assert!(names.is_final("eth0", 2) && !names.are_awaited());
        // udevd says nothing.
        fs::remove_file(directory.path().join("data/n2")).unwrap();
        names.look();
        assert!(!names.is_final("eth0", 2));
        names.now += PATIENCE;
        assert!(names.is_final("eth0", 2) && !names.are_awaited());
        // It is gone.
        fs::remove_dir_all(directory.path().join("net/eth0")).unwrap();
        names.look();
        assert!(names.awaited.is_empty());
    }
}
