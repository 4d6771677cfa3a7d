//! The root file system: a manifest names every file; no other file gets in.
//!
//! *Owns* the reading of `rootfs/manifest.toml` ([`manifest`]) and of the container images
//! ([`images`]), the programs that no package provides ([`go`] with [`cni`], [`kubernetes`],
//! [`rust`], [`libkmod`]), the assembled files ([`tree`]), the refusal of forbidden content
//! ([`check`], [`programs`]), the golden file ([`listing`]), and the packed result ([`squashfs`]).
//! Each is a function of explicit inputs; [`REVISION`] stands for the code itself. *Never* needs
//! root, and never takes owner, mode or date of a file from this machine. *Talks to* the Go and
//! Rust registries that the host is configured for, through `go` and `cargo`, and fetches only
//! locked modules and crates. *On a laptop:* `cargo test -p corten-rootfs`.

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
