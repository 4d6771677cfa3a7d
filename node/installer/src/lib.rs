//! Versions of the node on its EFI partition: written beside each other, tried, kept or left.
//!
//! Owns: the names of boot entries, their order, every change of the directory `EFI/Linux`, the record of a trial, and
//! the check of an image before it gets there.
//! Never does: change the file of the version that runs, mount anything, decide whether a version is healthy.
//! Talks to: nobody; the file system it is given is mounted by its caller.
//! On a laptop: `cargo test -p corten-installer`.

mod directory;
mod entry;
mod loader;
mod trial;
mod uki;
mod versions;

pub use directory::Directory;
pub use entry::{Counter, Entry, TRIES};
pub use loader::{Installed, first, is_older};
pub use trial::{AtBoot, Trial, Verdict, at_boot};
pub use uki::{Checked, UkiError, check, version};
pub use versions::{Fault, Files, Versions};
