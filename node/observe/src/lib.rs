//! Reads processes, memory, disks, mounts, files, sockets, packets and the kernel log for the API.
//!
//! Owns: parsers of the kernel's tables and walks through file trees. A function that is not `async` blocks its thread.
//! Never: changes the machine, decides who may ask, or knows config, resources, services or cluster (`node/server`).

pub mod capture;
pub mod cgroup;
pub mod cpu;
pub mod devices;
pub mod dmesg;
pub mod file_systems;
pub mod files;
pub mod frequency;
mod kmsg;
pub mod memory;
pub mod mounts;
pub mod netstat;
pub mod processes;
mod request;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod version;

use std::path::PathBuf;

pub use request::at_most;

/// Files of the kernel. Only tests differ from the default.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Mount point of procfs.
    pub proc: PathBuf,
    /// Mount point of sysfs.
    pub sys: PathBuf,
    /// Directory of named network namespaces.
    pub netns: PathBuf,
    /// The kernel log.
    pub kmsg: PathBuf,
    /// Mount point of the cgroup2 hierarchy.
    pub cgroups: PathBuf,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            netns: PathBuf::from("/run/netns"),
            kmsg: PathBuf::from("/dev/kmsg"),
            cgroups: PathBuf::from("/sys/fs/cgroup"),
        }
    }
}
