//! DiskUsage: sizes of files and directory trees.
//!
//! Sizes are apparent sizes, not allocated blocks. A directory's size is its own plus that of everything below it. A
//! directory follows its content.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use corten_api::machine as api;

use super::list::shown;
use super::walk::{Step, Walk};
use super::{BELIEVED, absolute};
use crate::request::at_most;
use crate::stream::{Flow, Sink};

/// Limit of paths in one request; each may be the whole tree.
const MOST_PATHS: usize = 64;

/// Measures the paths one after the other, in bytes. A missing path is reported, and the next ones follow.
///
/// # Errors
/// INVALID_ARGUMENT for more than 64 paths.
pub fn usage(request: &api::DiskUsageRequest, sink: &Sink<api::DiskUsageInfo>) -> Flow {
    at_most("paths", request.paths.len(), MOST_PATHS)?;
    for path in &request.paths {
        let root = absolute(path);
        match Walk::new(&root, None) {
            Ok(walk) => measure(walk, request, sink)?,
            Err(error) => sink.send(failure(&root, &root, error.to_string()))?,
        }
    }
    Ok(())
}

/// A directory being summed up.
struct Sum {
    path: PathBuf,
    size: u64,
}

fn measure(
    mut walk: Walk,
    request: &api::DiskUsageRequest,
    sink: &Sink<api::DiskUsageInfo>,
) -> Flow {
    let mut open: Vec<Sum> = Vec::new();
    while let Some(step) = walk.next() {
        sink.check()?;
        let (path, size, depth, is_directory) = match step {
            Step::Entry(entry) if entry.metadata.is_dir() => {
                open.push(Sum {
                    size: entry.metadata.len(),
                    path: entry.path,
                });
                continue;
            }
            Step::Entry(entry) => (entry.path, size(&entry.metadata), entry.depth, false),
            Step::Failed(path, error) => {
                let relative = walk.relative(&path, false);
                sink.send(failure(&path, &relative, error.to_string()))?;
                continue;
            }
            Step::Left => match open.pop() {
                Some(sum) => (sum.path, sum.size, open.len(), true),
                None => continue,
            },
        };
        if let Some(above) = open.last_mut() {
            above.size = above.size.saturating_add(size);
        }
        if is_wanted(request, size, depth, is_directory) {
            let relative_name = shown(&walk.relative(&path, is_directory));
            sink.send(api::DiskUsageInfo {
                name: shown(&path),
                size: i64::try_from(size).unwrap_or(i64::MAX),
                relative_name,
                ..api::DiskUsageInfo::default()
            })?;
        }
    }
    Ok(())
}

/// Filters: files only with `all`; at most `recursion_depth` levels, the root included; at least `threshold` bytes, or
/// at most, if it is negative.
fn is_wanted(request: &api::DiskUsageRequest, size: u64, depth: usize, is_directory: bool) -> bool {
    let levels = usize::try_from(request.recursion_depth).unwrap_or_default();
    let bound = request.threshold.unsigned_abs();
    (is_directory || request.all)
        && (levels == 0 || depth < levels)
        && match request.threshold {
            0 => true,
            1.. => size >= bound,
            _ => size <= bound,
        }
}

fn size(metadata: &Metadata) -> u64 {
    let size = metadata.len();
    if metadata.blocks() == 0 && size > BELIEVED {
        return 0;
    }
    size
}

fn failure(path: &Path, relative: &Path, error: String) -> api::DiskUsageInfo {
    api::DiskUsageInfo {
        name: shown(path),
        relative_name: shown(relative),
        error,
        ..api::DiskUsageInfo::default()
    }
}
