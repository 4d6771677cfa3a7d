//! The root file system: a manifest names every file; no other file gets in.
//!
//! [`manifest`] reads `rootfs/manifest.toml`. [`go`] (with [`cni`]), [`rust`] and [`libkmod`] build
//! the programs that no package provides. [`tree`] assembles the files, [`check`] and [`programs`]
//! refuse forbidden content, [`listing`] prints the golden file, and [`squashfs`] writes the image.
//! Each is a function of explicit inputs; [`REVISION`] stands for the code itself.

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
pub mod tree;
mod workspace;

#[cfg(test)]
mod tests;

/// Must be raised when a change of the code below changes an output for the same input files.
pub const REVISION: &str = "1";
