//! containerd, as machined uses it.
//!
//! Owns: the client of its API (`client`: containers, images, snapshots), the registries it asks (`registries`) and its
//! configuration (`settings`).
//! Never does: decide which container runs; the supervisor of `corten-services` does.
//! Talks to: containerd's socket; files below `/run/containerd`.
//! On a laptop: `cargo test -p corten-containerd`; `make test-containerd` runs it against the image's containerd.

pub mod client;
pub mod registries;
pub mod settings;
