//! Installs versions of the node: to a disk that has none, and on its EFI partition beside each other, where they are
//! tried, kept or left.
//!
//! Owns: the layout of a node's disk, and the steps that write it; the names and the order of boot entries; every
//! change of the directory `EFI/Linux`; GRUB's configuration and its counter; the record of a trial; the check of an
//! image before it is written.
//! Never does: change the file of the running version, mount anything, decide whether a version is healthy.
//! Talks to: nothing; the caller mounts the file system.
//! On a laptop: `cargo test -p corten-installer`.

mod chunks;
mod directory;
pub mod disk;
mod entry;
pub mod esp;
pub mod grub;
#[cfg(test)]
mod grub_model;
pub mod layout;
mod loader;
mod places;
pub mod table;
mod trial;
mod uki;
mod versions;
#[cfg(test)]
mod versions_model;

pub use directory::Directory;
pub use entry::{Counter, Entry, TRIES};
pub use loader::{Installed, Loader, first, is_older};
pub use places::{IMAGES, boot_files, image_path, loader_path};
pub use trial::{AtBoot, Trial, Verdict, at_boot};
pub use uki::{Checked, NoDigest, Signers, UkiError, check, check_loader, medium_label, version};
pub use versions::{Fault, Files, Versions};
