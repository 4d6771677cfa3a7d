//! Installs versions of the node: to a disk that has none, and beside each other on its EFI partition.
//!
//! Owns: the layout of a node's disk, `EFI/Linux` and the order of its entries, GRUB's files, the record of a trial.
//! Never: changes the file of the running version, mounts anything, or decides whether a version is healthy.

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
