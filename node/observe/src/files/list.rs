//! List: a file and the files below it.

use std::ffi::CStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use corten_api::machine as api;
use corten_api::machine::list_request::Type;
use rustix::fs::{FileType, lgetxattr, llistxattr};

use super::walk::{Entry, Step, Walk};
use super::{absolute, refused};
use crate::request::at_most;
use crate::stream::{Flow, Sink};

/// Limit of file types in one request; there are three.
const MOST_TYPES: usize = 16;

/// Lists `root` and the files below it: one level, all levels with `recurse`, or `recursion_depth` levels. Sizes are
/// bytes, and modes have Go's bits. An unreadable file is listed with its error.
///
/// # Errors
/// Those of the file system for the root (NOT_FOUND and others); INVALID_ARGUMENT for too many types.
pub fn list(request: &api::ListRequest, sink: &Sink<api::FileInfo>) -> Flow {
    at_most("types", request.types.len(), MOST_TYPES)?;
    let root = absolute(&request.root);
    let deepest = match (request.recurse, usize::try_from(request.recursion_depth)) {
        (false, _) => Some(1),
        (true, Ok(depth)) if depth > 0 => Some(depth),
        (true, _) => None,
    };
    let mut walk = Walk::new(&root, deepest).map_err(|error| refused("root", &root, &error))?;
    while let Some(step) = walk.next() {
        sink.check()?;
        match step {
            Step::Entry(entry) if is_wanted(request, &entry.metadata) => {
                sink.send(describe(&walk, &entry, request.report_xattrs))?;
            }
            Step::Failed(path, error) => sink.send(failure(&walk, &path, &error))?,
            Step::Entry(_) | Step::Left => {}
        }
    }
    Ok(())
}

fn is_wanted(request: &api::ListRequest, metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    let is = |wanted: Type| match wanted {
        Type::Regular => kind.is_file(),
        Type::Directory => kind.is_dir(),
        Type::Symlink => kind.is_symlink(),
    };
    request.types.is_empty() || request.types().any(is)
}

fn describe(walk: &Walk, entry: &Entry, with_xattrs: bool) -> api::FileInfo {
    let (path, metadata) = (&entry.path, &entry.metadata);
    let (link, error) = match metadata.is_symlink().then(|| fs::read_link(path)) {
        None => (String::new(), String::new()),
        Some(Ok(target)) => (shown(&target), String::new()),
        Some(Err(error)) => (String::new(), error.to_string()),
    };
    api::FileInfo {
        metadata: None,
        name: shown(path),
        size: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
        mode: go_mode(metadata.mode()),
        modified: metadata.mtime(),
        is_dir: metadata.is_dir(),
        error,
        link,
        relative_name: shown(&walk.relative(path, metadata.is_dir())),
        uid: metadata.uid(),
        gid: metadata.gid(),
        xattrs: if with_xattrs {
            xattrs(path)
        } else {
            Vec::new()
        },
    }
}

fn failure(walk: &Walk, path: &Path, error: &io::Error) -> api::FileInfo {
    api::FileInfo {
        name: shown(path),
        relative_name: shown(&walk.relative(path, false)),
        error: error.to_string(),
        ..api::FileInfo::default()
    }
}

/// A path as text; invalid UTF-8 becomes U+FFFD.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Permissions and file type in the wire format: the bits of Go's `io/fs.FileMode`.
fn go_mode(mode: u32) -> u32 {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 1 << 31,
        FileType::Symlink => 1 << 27,
        FileType::BlockDevice => 1 << 26,
        FileType::CharacterDevice => 1 << 26 | 1 << 21,
        FileType::Fifo => 1 << 25,
        FileType::Socket => 1 << 24,
        FileType::RegularFile => 0,
        FileType::Unknown => 1 << 19,
    };
    // The special bits of chmod(2), and Go's bits for them.
    let special = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)]
        .iter()
        .filter(|(bit, _)| mode & bit != 0)
        .fold(0, |all, (_, flag)| all | flag);
    mode & 0o777 | kind | special
}

/// The extended attributes; empty if the file system has none, or they are unreadable.
fn xattrs(path: &Path) -> Vec<api::Xattr> {
    let mut names = vec![0; LONGEST_XATTRS];
    let length = llistxattr(path, names.as_mut_slice()).unwrap_or_default();
    names.truncate(length);
    let value = |name: &CStr| {
        let mut data = vec![0; LONGEST_XATTRS];
        let length = lgetxattr(path, name, data.as_mut_slice()).ok()?;
        data.truncate(length);
        data.shrink_to_fit();
        Some(api::Xattr {
            name: name.to_string_lossy().into_owned(),
            data,
        })
    };
    names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| value(CStr::from_bytes_with_nul(name).ok()?))
        .collect()
}

/// Kernel limit in bytes of a value and of the list of names (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const LONGEST_XATTRS: usize = 65536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_modes_have_the_go_encoding() {
        for (mode, expected) in [
            (0o100_644, 0o644),
            (0o040_755, 0o755 | 1 << 31),
            (0o120_777, 0o777 | 1 << 27),
            (0o020_620, 0o620 | 1 << 26 | 1 << 21),
            (0o060_660, 0o660 | 1 << 26),
            (0o010_600, 0o600 | 1 << 25),
            (0o140_755, 0o755 | 1 << 24),
            (0o104_755, 0o755 | 1 << 23),
            (0o041_777, 0o777 | 1 << 31 | 1 << 20),
        ] {
            assert_eq!(go_mode(mode), expected, "{mode:o}");
        }
    }
}
