//! Readers of small text files of the kernel, mostly in procfs (proc(5)), for the API server and for controllers.

pub mod cpu;
pub mod memory;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

impl From<Unreadable> for tonic::Status {
    fn from(error: Unreadable) -> tonic::Status {
        tonic::Status::internal(format!("{error}: {}", error.source))
    }
}

/// The text of the file `name` below `root`.
pub fn text(root: &Path, name: &str) -> Result<String, Unreadable> {
    let path = root.join(name);
    fs::read_to_string(&path).map_err(|source| Unreadable { path, source })
}

/// Parses the numbers after a line's name; a malformed number counts as 0.
pub fn numbers<'a>(fields: impl Iterator<Item = &'a str>) -> Vec<u64> {
    fields
        .map(|field| field.parse().unwrap_or_default())
        .collect()
}

/// The number at an index; 0 if an older kernel has fewer.
pub fn at(numbers: &[u64], index: usize) -> u64 {
    numbers.get(index).copied().unwrap_or_default()
}
