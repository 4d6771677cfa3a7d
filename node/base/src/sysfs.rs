//! What the kernel says in files of sysfs.

use std::path::Path;

/// A file's text without the white space around it; empty when there is no such file.
#[must_use]
pub fn read(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        .unwrap_or_default()
}
