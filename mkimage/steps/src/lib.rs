//! The steps of a build: what every step of the image builder is made of, and what it works with.
//!
//! Owns: recipe, cache, kept trees, locks, downloads, readers of packages, the start of programs, locked compilers.
//! Never: knows what a step makes: neither kernel nor root file system nor image.

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
