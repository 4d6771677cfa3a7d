//! Programs of the image that run once and end, as a table. Nothing else runs one.

use std::time::Duration;

use corten_sys::child::CapabilitySet;

use super::REGISTRYD;

/// Where they all run: what they take of the machine is bounded (`boot/cgroups.rs`), and is not machined's.
pub const TOOLS_CGROUP: &str = "system/tools";

/// A tool's declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name in `/usr/bin`.
    pub program: &'static str,
    /// What it may ever do, as root.
    pub capabilities: CapabilitySet,
    /// It is killed when it has not ended by then. Generous: only what hangs shall ever be killed.
    pub time: Duration,
}

/// Work on devices and file systems.
const DISKS: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_OVERRIDE);

const MINUTE: Duration = Duration::from_secs(60);

const TABLE: [Tool; 5] = [
    Tool {
        // It tells the disk first that all of it is free, which some take their time for.
        program: "mkfs.xfs",
        capabilities: DISKS,
        time: MINUTE.saturating_mul(60),
    },
    Tool {
        program: "xfs_growfs",
        capabilities: DISKS,
        time: MINUTE.saturating_mul(30),
    },
    Tool {
        // Reads all there is of the file system's own data, on a disk that may be slow as well as broken.
        program: "xfs_repair",
        capabilities: DISKS,
        time: MINUTE.saturating_mul(12 * 60),
    },
    Tool {
        // A driver may look for its device for long.
        program: "udevd",
        capabilities: CapabilitySet::SYS_MODULE,
        time: MINUTE.saturating_mul(10),
    },
    Tool {
        // Reads and writes an extension of up to some GiB.
        program: REGISTRYD,
        capabilities: CapabilitySet::empty(),
        time: MINUTE.saturating_mul(60),
    },
];

/// The tool of this name.
#[must_use]
pub fn tool(program: &str) -> Option<Tool> {
    TABLE.into_iter().find(|tool| tool.program == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_has_what_it_needs_and_time() {
        let loads_modules = tool("udevd").unwrap().capabilities;
        assert_eq!(loads_modules, CapabilitySet::SYS_MODULE);
        assert!(tool(REGISTRYD).unwrap().capabilities.is_empty());
        assert_eq!(tool("sh"), None);
        assert!(TABLE.iter().all(|tool| tool.time >= 10 * MINUTE));
    }
}
