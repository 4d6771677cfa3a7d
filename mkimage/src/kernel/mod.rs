//! The kernel: fragments to a resolved config, source to vmlinuz and signed modules.
//!
//! [`fragments`] reads `kernel-config/fragments`; [`config`] resolves them with the kernel's own
//! tools and refuses unfulfilled requests; [`diff`] shows the effect of a change. [`source`] is the
//! lock, [`llvm`] the locked compiler. [`build`] builds the files and [`hardening`] checks them.

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

/// The directory of the repository with all inputs of the kernel.
pub const CONFIG_DIR: &str = "kernel-config";

/// The date of a kernel (`uname -v`), in seconds since 1970. It is the date of the locked source,
/// so that an unrelated commit does not rebuild the kernel.
pub const EPOCH: u64 = 1_787_976_000;
