//! machined's interface to containerd.
//!
//! Owns: the client of containerd's API, the names of images, registry settings, and containerd's configuration.
//! Never: decides which container runs; the supervisor of `corten-supervisor` does.

pub mod client;
pub mod names;
pub mod registries;
pub mod settings;
