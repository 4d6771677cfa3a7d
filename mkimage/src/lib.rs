//! The image builder: turns a kernel config, a file manifest, locks and our daemons into
//! bit-identical images.
//!
//! *Owns* the recipe ([`recipe`]), the content-addressed cache ([`cache`]) and the image formats
//! ([`image`]). *Never* needs root, a mount, a loop device or a container engine; never reads the
//! clock; never runs code of the target architecture; never links a crate of `services/`. *Talks
//! to* the Debian mirrors and the Go and Rust registries that the host is configured for, and
//! fetches only locked files. *On a laptop:* `cargo run -p mkimage -- plan`.

pub mod arch;
pub mod archive;
pub mod build;
pub mod cache;
pub mod components;
pub mod deb;
pub mod error;
pub mod fetch;
pub mod image;
pub mod index;
pub mod interrupt;
pub mod kernel;
pub mod keys;
pub mod lock;
pub mod output;
pub mod overlay;
pub mod platform;
pub mod profile;
pub mod recipe;
pub mod report;
pub mod rootfs;
pub mod secure_boot;
pub mod tool;
pub mod tree;
pub mod untar;

/// The last part of a path, as text.
pub(crate) fn file_name(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
