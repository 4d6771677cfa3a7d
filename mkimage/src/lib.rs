//! The image builder: turns a kernel config, a file manifest, locks and our daemons into
//! bit-identical images.
//!
//! *Owns* what a build is asked for ([`profile`], [`platform`], [`output`], [`overlay`]), the recipe
//! that makes it ([`build`]), the bill of materials ([`components`]) and the making of key sets
//! ([`keys`]). The crates below `mkimage/` are the steps, the kernel, the root file system and the
//! image formats. *Never* needs root, a mount, a loop device or a container engine; never reads the
//! clock; never runs code of the target architecture; never links a crate of `services/`. *Talks
//! to* the Debian mirrors and the Go and Rust registries that the host is configured for, and
//! fetches only locked files. *On a laptop:* `cargo run -p mkimage -- plan`.

pub mod build;
pub mod components;
pub mod keys;
pub mod output;
pub mod overlay;
pub mod platform;
pub mod profile;
