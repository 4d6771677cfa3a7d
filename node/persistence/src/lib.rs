//! State that survives a boot.
//!
//! Owns: the stored machine configs, the values of META, how a boot ended, and the kernel's reports of memory kills.
//! Never: mounts a volume, or decides what the node does with what it finds.

pub mod config_store;
pub mod last_stop;
pub mod meta;
pub mod oom;
