//! The node's system calls (rustix, nix), and the only `unsafe` code of the workspace.
//!
//! Owns: nothing; each function is one operation without state. One file per concern.
//! Never: decides, retries, logs, or knows a path or a service of the node.

pub mod blkpg;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod console;
pub mod container;
pub mod diskseq;
pub mod dm;
pub mod host;
pub mod kmsg;
pub mod loopdev;
pub mod memory;
pub mod mount;
pub mod mount_table;
pub mod packet;
pub mod permissions;
pub mod power;
pub mod process;
pub mod sandbox;
pub mod seccomp;
pub mod socket;
pub mod swap;
pub mod sysctl;
#[cfg(test)]
mod testing;
pub mod trim;
pub mod vmware;
pub mod watchdog;
pub mod xfs;
