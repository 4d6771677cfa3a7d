//! The steps of a build: what every step of the image builder is made of, and what it works with.
//!
//! *Owns* the recipe ([`recipe`]), the content-addressed cache ([`cache`]) with its kept trees
//! ([`tree`]), the locks ([`lock`], [`archive`]) and the download of what they name ([`fetch`]), the
//! readers of packages ([`deb`], [`untar`]), the start of other programs ([`tool`]), the locked
//! compilers ([`toolchain`]), and the names of each architecture ([`arch`]). *Never* knows what a
//! step makes: neither kernel nor root file system nor image. *Talks to* the Debian mirrors that
//! the host is configured for, and fetches only locked files. *On a laptop:* `cargo test -p
//! corten-steps`.

pub mod arch;
pub mod archive;
pub mod cache;
pub mod calendar;
pub mod deb;
pub mod error;
pub mod fetch;
pub mod index;
pub mod interrupt;
pub mod lock;
pub mod recipe;
pub mod report;
pub mod tool;
pub mod toolchain;
pub mod tree;
pub mod untar;

/// The last part of a path, as text.
pub fn file_name(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
