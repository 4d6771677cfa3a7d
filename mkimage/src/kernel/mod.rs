//! The kernel: fragments to a resolved config, source to vmlinuz and signed modules.
//!
//! [`fragments`] reads what `kernel-config/fragments` asks for, [`config`] lets the kernel's own
//! tools resolve it and refuses what did not survive, [`build`] makes the files, [`hardening`]
//! judges them and [`diff`] shows what a change does. [`source`] is the lock, [`llvm`] the locked
//! compiler.

pub mod build;
pub mod cli;
pub mod config;
pub mod diff;
pub mod fragments;
pub mod hardening;
pub mod llvm;
pub mod parameters;
pub mod source;

#[cfg(test)]
mod tests;

/// The directory of the repository that holds everything about the kernel.
pub const CONFIG_DIR: &str = "kernel-config";

/// The date a kernel carries (`uname -v`), in seconds since 1970: that of its locked source, so that
/// a commit elsewhere in the tree does not rebuild it.
pub const EPOCH: u64 = 1_787_976_000;
