//! The node's files: list, measure, read, follow, copy.
//!
//! Paths start at the node's root. `..` and links work as in the kernel, because a caller of these methods may access
//! every path. Roles are the limit: readers get names and sizes, administrators get contents (`corten_api::roles`).

mod archive;
mod content;
mod list;
mod tail;
mod usage;
mod walk;

use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

pub use archive::{archive_of, copy};
pub use content::read;
pub use list::list;
pub use tail::tail;
pub use usage::usage;

/// Limit in bytes of a credible size for a file without disk blocks. The kernel's image of memory (`/proc/kcore`)
/// claims 128 TiB.
const BELIEVED: u64 = 1 << 20;

/// A path of the API, with or without a leading `/`.
pub(crate) fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

/// Status for a file error; `field` names the path's field in the request.
pub(crate) fn refused(field: &str, path: &Path, error: &io::Error) -> Status {
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
