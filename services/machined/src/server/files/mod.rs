//! The node's files: listed, measured, read, copied.
//!
//! Paths are the node's own, from its root; `..` and links mean what they mean to the kernel, since whoever
//! may call these methods may see every path. Roles are the limit: names and sizes for readers, contents
//! for administrators (`corten_api::roles`).

mod archive;
mod content;
mod list;
mod usage;
mod walk;

use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

pub(super) use archive::{archive_of, copy};
pub(super) use content::read;
pub(super) use list::list;
pub(super) use usage::usage;

/// What a file that takes no room on any disk may claim as its size and be believed, in bytes. The kernel's
/// image of the memory (`/proc/kcore`) claims 128 TiB.
const BELIEVED: u64 = 1 << 20;

/// A path as the API has it: from the root, with or without a leading `/`.
pub(super) fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

/// The status of a file that cannot be had; `field` is where the path came from.
pub(super) fn refused(field: &str, path: &Path, error: &io::Error) -> Status {
    let text = format!("{field}: {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Status::not_found(text),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            Status::invalid_argument(text)
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::WouldBlock => {
            Status::failed_precondition(text)
        }
        _ => Status::internal(text),
    }
}
