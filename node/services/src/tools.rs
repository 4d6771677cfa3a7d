//! Programs of the image that run once and end, as a table. Nothing else runs one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_sys::child::CapabilitySet;

use super::{MODULE_LOADER, Part, REGISTRYD, REGISTRYD_UID, Sandbox, SystemCalls};

/// Where they all run: what they take of the machine is bounded (`boot/cgroups.rs`), and is not machined's.
pub const TOOLS_CGROUP: &str = "system/tools";

/// A tool's declaration. None reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name in `/usr/bin`.
    pub program: &'static str,
    /// User and group id; no supplementary groups.
    pub uid: u32,
    /// What it may ever do.
    pub capabilities: CapabilitySet,
    /// The system calls it may make.
    pub system_calls: SystemCalls,
    /// What it sees beside its program and the files that its arguments name.
    pub sandbox: Sandbox,
    /// It is killed when it has not ended by then. Generous: only what hangs shall ever be killed.
    pub time: Duration,
}

/// An argument of a tool. A tool sees no file that no argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A word that names no file.
    Word(String),
    /// A file or directory, which the tool can read.
    Reads(PathBuf),
    /// A block device, which the tool can read and write.
    Device(PathBuf),
    /// A directory that is made new for the tool, which puts its work there. It is the tool's own until the tool has
    /// ended well, and then the node's (`supervisor/handover.rs`).
    Fills(PathBuf),
}

impl Argument {
    /// A word that names no file.
    pub fn word(word: impl Into<String>) -> Argument {
        Argument::Word(word.into())
    }

    /// A file or directory to be read.
    pub fn reads(path: impl Into<PathBuf>) -> Argument {
        Argument::Reads(path.into())
    }

    /// A block device to be worked on.
    pub fn device(path: impl Into<PathBuf>) -> Argument {
        Argument::Device(path.into())
    }

    /// A directory to be filled.
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

/// Of programs that the loader of the C library starts: they, their libraries, and where those are looked for.
const DYNAMIC: Sandbox = Sandbox {
    sees: &[Part::runs("/usr")],
    links: &[("/lib", "usr/lib"), ("/lib64", "usr/lib64")],
    empty: &[],
};

/// Of those that work on a file system. They refuse to work where they find no table of mounts. They get an empty
/// one: they open their device exclusively, which the kernel refuses for one that is mounted.
const XFS: Sandbox = Sandbox {
    empty: &["/proc/mounts"],
    ..DYNAMIC
};

const MINUTE: Duration = Duration::from_secs(60);

const TABLE: [Tool; 4] = [
    Tool {
        program: "mkfs.xfs",
        // As root it owns the device's node.
        uid: 0,
        // The kernel wants it for `BLKBSZSET` and `BLKFLSBUF`. Its system calls leave no other use of it.
        capabilities: CapabilitySet::SYS_ADMIN,
        system_calls: SystemCalls::Tool,
        sandbox: XFS,
        // It tells the disk first that all of it is free, which some take their time for.
        time: MINUTE.saturating_mul(60),
    },
    Tool {
        program: "xfs_repair",
        uid: 0,
        capabilities: CapabilitySet::SYS_ADMIN,
        system_calls: SystemCalls::Tool,
        sandbox: XFS,
        // Reads all there is of the file system's own data, on a disk that may be slow as well as broken.
        time: MINUTE.saturating_mul(12 * 60),
    },
    Tool {
        program: "udevd",
        uid: 0,
        capabilities: CapabilitySet::SYS_MODULE,
        system_calls: SystemCalls::ModuleLoader,
        sandbox: MODULE_LOADER,
        // A driver may look for its device for long.
        time: MINUTE.saturating_mul(10),
    },
    Tool {
        // It alone reads what strangers made. It is a static program.
        program: REGISTRYD,
        uid: REGISTRYD_UID,
        capabilities: CapabilitySet::empty(),
        system_calls: SystemCalls::Tool,
        sandbox: Sandbox {
            sees: &[],
            links: &[],
            empty: &[],
        },
        // Reads and writes an extension of up to some GiB.
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

    #[test]
    fn a_tool_sees_programs_and_libraries_and_no_directory_of_the_nodes_data() {
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
            // What reads the bytes of strangers is not root.
            assert_eq!(tool.uid == 0, tool.program != REGISTRYD, "{}", tool.program);
        }
    }
}
