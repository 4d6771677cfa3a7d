//! The kernel: fragments to a resolved config, source to vmlinuz and signed modules.
//!
//! *Owns* the reading of `kernel-config/fragments` ([`fragments`]), their resolution with the
//! kernel's own tools, which refuses unfulfilled requests ([`config`]), and the effect of a change
//! ([`diff`]); the locked source ([`source`]), the locked compiler ([`llvm`]) and the keys
//! ([`keys`]) that [`build`] makes the files from; their checks ([`hardening`]), the kernel
//! parameters ([`parameters`]), and the verbs of `mkimage kernel` ([`cli`]). *Never* reads the
//! clock, and never lets user, host or directory names into a kernel. *Talks to* the Debian
//! mirrors, through the fetcher of `corten-steps`. *On a laptop:* `cargo test -p corten-kernel`,
//! `cargo run -p mkimage -- kernel diff`.

pub mod build;
pub mod cli;
pub mod config;
pub mod diff;
pub mod fragments;
pub mod hardening;
pub mod keys;
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
