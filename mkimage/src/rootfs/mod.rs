//! The root file system: a manifest names every file, and nothing else gets in.
//!
//! `rootfs/manifest.toml` is read by [`manifest`]; [`toolchain`] unpacks the locked compilers and
//! image tools, [`go`] (with [`cni`]), [`rust`] and [`libkmod`] build what is not taken from packages,
//! [`tree`] puts the files together, [`check`] refuses what must not be in an image ([`programs`]), [`listing`] prints
//! it for the golden file and [`squashfs`] writes it. Each is a function of explicit inputs, with the versions of
//! those that are not files in [`REVISION`].

pub mod certs;
pub mod check;
pub mod cni;
pub mod go;
pub mod images;
pub mod kubernetes;
pub mod libkmod;
pub mod listing;
pub mod manifest;
pub mod programs;
pub mod rust;
pub mod squashfs;
pub mod toolchain;
pub mod tree;
mod workspace;

#[cfg(test)]
mod tests;

/// Raised when the code below changes an output without any input file changing.
pub const REVISION: &str = "1";
