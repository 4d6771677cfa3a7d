//! Reads files of sysfs.

use std::path::Path;

/// The trimmed text of a file; empty if there is no such file.
#[must_use]
pub fn read(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        .unwrap_or_default()
}
