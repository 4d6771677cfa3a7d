//! Versions of the node: put onto a disk that has none, and on its EFI partition written beside each other, tried, kept or
//! left.
//!
//! Owns: what a disk of the node looks like, and the steps in which it becomes one; the names of boot entries, their order,
//! every change of the directory `EFI/Linux`, the record of a trial, and the check of an image before it gets there.
//! Never does: change the file of the version that runs, mount anything, decide whether a version is healthy.
//! Talks to: nobody; the file system it is given is mounted by its caller.
//! On a laptop: `cargo test -p corten-installer`.

mod directory;
pub mod disk;
mod entry;
pub mod esp;
pub mod layout;
mod loader;
pub mod table;
mod trial;
mod uki;
mod versions;

pub use directory::Directory;
pub use entry::{Counter, Entry, TRIES};
pub use loader::{Installed, first, is_older};
pub use trial::{AtBoot, Trial, Verdict, at_boot};
pub use uki::{Checked, NoDigest, Signer, UkiError, check, check_loader, medium_label, version};
pub use versions::{Fault, Files, Versions};
