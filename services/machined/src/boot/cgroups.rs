//! The cgroups of a node, as a table.

use std::io;
use std::path::Path;

use corten_sys::cgroup;

use crate::console;

/// Where the hierarchy is mounted.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The top-level groups that hold everything but machined itself.
pub const ALL_BUT_INIT: [&str; 3] = ["system", "podruntime", "kubepods"];

const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// One cgroup and what memory it is promised, in MiB; 0 leaves the kernel's default.
struct Entry {
    path: &'static str,
    /// Never reclaimed.
    min: u64,
    /// Reclaimed last.
    low: u64,
    /// Killed above, on a machine that has four times as much; else above a quarter of what it has: who is
    /// killed comes back, a node without memory does not. 0: unlimited.
    max: u64,
}

/// The promises together fit a node of 512 MiB several times over: they are what our own daemons need, not
/// what they may use. `podruntime` gets its promise with the services that live there.
const TABLE: [Entry; 9] = [
    Entry {
        path: "init",
        min: 24,
        low: 48,
        max: 0,
    },
    Entry {
        path: "system",
        min: 64,
        low: 128,
        max: 0,
    },
    Entry {
        path: "system/runtime",
        min: 32,
        low: 64,
        max: 0,
    },
    Entry {
        path: "system/udevd",
        min: 4,
        low: 16,
        max: 0,
    },
    Entry {
        path: "system/syslogd",
        min: 8,
        low: 16,
        max: 64,
    },
    Entry {
        // All its connections and calls at their bounds fit (`services/apid/src/lib.rs`).
        path: "system/apid",
        min: 8,
        low: 32,
        max: 448,
    },
    Entry {
        path: "system/registryd",
        min: 0,
        low: 8,
        max: 64,
    },
    Entry {
        path: "system/trustd",
        min: 8,
        low: 16,
        max: 128,
    },
    Entry {
        path: "podruntime",
        min: 0,
        low: 0,
        max: 0,
    },
];

/// Makes the groups of the table and moves machined into its own.
///
/// # Errors
/// A group cannot be made. A promise that cannot be set is told and passed over.
pub fn make_all(root: &Path) -> io::Result<()> {
    let quarter = memory() >> 22;
    for entry in &TABLE {
        cgroup::create(root, entry.path, &CONTROLLERS)?;
        for (file, mebibytes) in [
            ("memory.min", entry.min),
            ("memory.low", entry.low),
            ("memory.max", entry.max.min(quarter)),
        ] {
            if mebibytes == 0 {
                continue;
            }
            if let Err(error) = cgroup::set(root, entry.path, file, &(mebibytes << 20).to_string())
            {
                console::warn(&format!(
                    "cannot set {file} of cgroup {}: {error}",
                    entry.path
                ));
            }
        }
    }
    cgroup::enter(root, "init", std::process::id())
}

/// What the machine has, in bytes.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::{ApiMode, table, trustd};

    #[test]
    fn every_service_has_its_cgroup() {
        for spec in table(ApiMode::Secure).into_iter().chain([trustd()]) {
            assert!(
                TABLE.iter().any(|entry| entry.path == spec.cgroup),
                "{}",
                spec.id
            );
        }
    }

    #[test]
    fn promises_hold_together_and_fit_a_small_node() {
        let children: u64 = TABLE
            .iter()
            .filter(|e| e.path.starts_with("system/"))
            .map(|e| e.min)
            .sum();
        let system = TABLE
            .iter()
            .find(|entry| entry.path == "system")
            .map_or(0, |entry| entry.min);
        assert!(children <= system, "{children} > {system}");
        let top: u64 = TABLE
            .iter()
            .filter(|entry| !entry.path.contains('/'))
            .map(|entry| entry.min)
            .sum();
        assert!(top <= 128, "{top} MiB of 512");
    }
}
