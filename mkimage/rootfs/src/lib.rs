//! The root file system: a manifest names every file; no other file gets in.
//!
//! Owns: the manifest, programs that no package provides, the tree, its checks, its listing, and the squashfs.
//! Never: needs root, or takes owner, mode or date of a file from this machine; it fetches only locked files.

pub mod certs;
pub mod check;
pub mod cni;
pub mod go;
mod go_size;
pub mod images;
pub mod kubernetes;
pub mod libkmod;
pub mod licences;
pub mod listing;
pub mod manifest;
pub mod order;
pub mod programs;
pub mod rust;
pub mod squashfs;
pub mod tree;
mod workspace;

#[cfg(test)]
mod tests;

/// Must be raised when a change of the code below changes an output for the same input files.
pub const REVISION: &str = "1";
