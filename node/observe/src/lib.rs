//! What the machine shows, read for the API: processes, processors, memory, disks, mounts, files, sockets, packets and
//! the kernel log.
//!
//! A function takes the request of its method where there is one, and answers in the messages of the API. An error is
//! the status for the caller. A function that is not `async` blocks: it belongs on a thread of its own. One with a
//! [`stream::Sink`] produces a stream on such a thread ([`stream::stream`]).
//!
//! Owns: the parsers of the kernel's tables, the walk through a file tree, the threads that wait for hung file systems
//! and processes, and the streams of threads that may block.
//! Never does: change the machine, decide who may ask, or know config, resources, services or cluster (`node/server`).
//! Talks to: the kernel, by procfs, sysfs, `/dev/kmsg` and system calls.
//! On a laptop: `cargo test -p corten-observe`.

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
