//! machined's interface to containerd.
//!
//! Owns: the client of containerd's API (`client`: containers, images, snapshots), the names of images (`names`), its
//! registry settings (`registries`) and its configuration (`settings`).
//! Never does: decide which container runs; the supervisor of `corten-services` does.
//! Talks to: containerd's socket; files below `/run/containerd`.
//! On a laptop: `cargo test -p corten-containerd`; `make test-containerd` runs it against the image's containerd.

pub mod client;
pub mod names;
pub mod registries;
pub mod settings;
