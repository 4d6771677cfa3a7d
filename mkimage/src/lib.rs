//! The image builder: turns a kernel config, a file manifest, locks and our daemons into
//! bit-identical images.
//!
//! *Owns* the recipe ([`build`]) and the image formats ([`image`]). *Never* needs root, a mount, a loop device or a container engine; never reads the
//! clock; never runs code of the target architecture; never links a crate of `services/`. *Talks
//! to* the Debian mirrors and the Go and Rust registries that the host is configured for, and
//! fetches only locked files. *On a laptop:* `cargo run -p mkimage -- plan`.

pub mod build;
pub mod components;
pub mod image;
pub mod keys;
pub mod output;
pub mod overlay;
pub mod platform;
pub mod profile;
pub mod secure_boot;
