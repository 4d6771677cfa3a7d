//! The node's system calls, and the only `unsafe` code of the workspace.
//!
//! Owns: nothing; each function is one operation (mount this, start that child, reboot) without state. One file per
//! concern.
//! Never does: decide, retry, log, or know a path or a service of the node.
//! Talks to: the kernel, through rustix and nix; no crate of ours.
//! On a laptop: `cargo test -p corten-sys` needs no root.

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
