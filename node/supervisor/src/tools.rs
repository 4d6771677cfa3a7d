//! The table of one-shot programs of the image. Only this table's programs are ever run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_sys::child::CapabilitySet;

use super::{MODULE_LOADER, Part, REGISTRYD, REGISTRYD_UID, Sandbox, SystemCalls};

/// Cgroup of all tools; its limits are set in `boot/cgroups.rs`, separate from machined's.
pub const TOOLS_CGROUP: &str = "system/tools";

/// Declaration of a tool. No tool has network access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program in `/usr/bin`.
    pub program: &'static str,
    /// User and group id; no supplementary groups.
    pub uid: u32,
    /// Upper limit of its capabilities.
    pub capabilities: CapabilitySet,
    /// System calls permitted to it.
    pub system_calls: SystemCalls,
    /// Paths in its sandbox, in addition to its program and the files that its arguments name.
    pub sandbox: Sandbox,
    /// Time limit, after which it is killed. Generous: only a tool that hangs should reach it.
    pub time: Duration,
}

/// An argument of a tool. A tool sees only the files that its arguments name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A word that is not a path.
    Word(String),
    /// A file or directory that the tool can read.
    Reads(PathBuf),
    /// A block device that the tool can read and write.
    Device(PathBuf),
    /// A directory, created empty, for the tool's output. It belongs to the tool until the tool has succeeded, and then
    /// to the node (`supervisor/handover.rs`).
    Fills(PathBuf),
}

impl Argument {
    /// A word that is not a path.
    pub fn word(word: impl Into<String>) -> Argument {
        Argument::Word(word.into())
    }

    /// A file or directory that the tool can read.
    pub fn reads(path: impl Into<PathBuf>) -> Argument {
        Argument::Reads(path.into())
    }

    /// A block device that the tool can read and write.
    pub fn device(path: impl Into<PathBuf>) -> Argument {
        Argument::Device(path.into())
    }

    /// A directory for the tool's output.
    pub fn fills(path: impl Into<PathBuf>) -> Argument {
        Argument::Fills(path.into())
    }
}

impl AsRef<Path> for Argument {
    fn as_ref(&self) -> &Path {
        match self {
            Argument::Word(word) => Path::new(word),
            Argument::Reads(path) | Argument::Device(path) | Argument::Fills(path) => path,
        }
    }
}

/// Sandbox of dynamically linked programs: their libraries and the loader's search paths.
const DYNAMIC: Sandbox = Sandbox {
    sees: &[Part::runs("/usr")],
    links: &[("/lib", "usr/lib"), ("/lib64", "usr/lib64")],
    empty: &[],
};

/// Sandbox of XFS tools. They refuse to run without a mount table, so they get an empty one. That is safe because they
/// open their device exclusively, which the kernel refuses for a mounted device.
const XFS: Sandbox = Sandbox {
    empty: &["/proc/mounts"],
    ..DYNAMIC
};

const MINUTE: Duration = Duration::from_secs(60);

const TABLE: [Tool; 4] = [
    Tool {
        program: "mkfs.xfs",
        // It accesses the device node as its owner, root.
        uid: 0,
        // The kernel requires it for `BLKBSZSET` and `BLKFLSBUF`. The system call filter permits no other use of it.
        capabilities: CapabilitySet::SYS_ADMIN,
        system_calls: SystemCalls::Tool,
        sandbox: XFS,
        // It first discards the whole device, which is slow on some disks.
        time: MINUTE.saturating_mul(60),
    },
    Tool {
        program: "xfs_repair",
        uid: 0,
        capabilities: CapabilitySet::SYS_ADMIN,
        system_calls: SystemCalls::Tool,
        sandbox: XFS,
        // It reads all metadata of the file system, perhaps from a slow and damaged disk.
        time: MINUTE.saturating_mul(12 * 60),
    },
    Tool {
        program: "udevd",
        uid: 0,
        capabilities: CapabilitySet::SYS_MODULE,
        system_calls: SystemCalls::ModuleLoader,
        sandbox: MODULE_LOADER,
        // A driver may probe for its device for a long time.
        time: MINUTE.saturating_mul(10),
    },
    Tool {
        // The only tool that reads untrusted data. It is a static program.
        program: REGISTRYD,
        uid: REGISTRYD_UID,
        capabilities: CapabilitySet::empty(),
        system_calls: SystemCalls::Tool,
        sandbox: Sandbox {
            sees: &[],
            links: &[],
            empty: &[],
        },
        // It reads and writes an extension of up to some GiB.
        time: MINUTE.saturating_mul(60),
    },
];

/// The tool with this name.
#[must_use]
pub fn tool(program: &str) -> Option<Tool> {
    TABLE.into_iter().find(|tool| tool.program == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_their_capabilities_and_generous_timeouts() {
        let loads_modules = tool("udevd").unwrap().capabilities;
        assert_eq!(loads_modules, CapabilitySet::SYS_MODULE);
        assert!(tool(REGISTRYD).unwrap().capabilities.is_empty());
        assert_eq!(tool("sh"), None);
        assert!(TABLE.iter().all(|tool| tool.time >= 10 * MINUTE));
    }

    #[test]
    fn tools_see_programs_and_libraries_and_no_node_data() {
        for tool in TABLE {
            for part in tool.sandbox.sees {
                let (path, access) = (part.path, part.access);
                let runs = part.access == Part::runs("").access;
                assert_eq!(path == "/usr", runs, "{}: {path} {access:?}", tool.program);
                let data = ["/system", "/var", "/run", "/dev", "/proc", "/etc"];
                assert!(!data.contains(&path), "{}: {path}", tool.program);
            }
            let filtered = tool.system_calls == SystemCalls::Tool || tool.program == "udevd";
            assert!(filtered, "{}", tool.program);
            // A program that reads untrusted data does not run as root.
            assert_eq!(tool.uid == 0, tool.program != REGISTRYD, "{}", tool.program);
        }
    }
}
