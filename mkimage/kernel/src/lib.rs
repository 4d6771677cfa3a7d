//! The kernel: fragments to a resolved config, source to vmlinuz and signed modules.
//!
//! Owns: the resolution of fragments, source, compiler, keys, [`build`], the checks, and `mkimage kernel` ([`cli`]).
//! Never: reads the clock, or lets user, host or directory names into a kernel.

pub mod build;
pub mod cli;
pub mod config;
pub mod diff;
pub mod fragments;
pub mod hardening;
pub mod keys;
pub mod llvm;
pub mod parameters;
pub mod precompiled;
pub mod source;

#[cfg(test)]
mod tests;

/// The directory of the repository with all inputs of the kernel.
pub const CONFIG_DIR: &str = "kernel-config";

/// The date of a kernel (`uname -v`), in seconds since 1970. It is the date of the locked source,
/// so that an unrelated commit does not rebuild the kernel.
pub const EPOCH: u64 = 1_787_976_000;
