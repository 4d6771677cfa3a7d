//! What the kernel says in small text files, most of them of procfs (proc(5)): read for the API's server and for
//! controllers alike.

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

/// The numbers after a line's name; what is not a number counts as 0.
pub fn numbers<'a>(fields: impl Iterator<Item = &'a str>) -> Vec<u64> {
    fields
        .map(|field| field.parse().unwrap_or_default())
        .collect()
}

/// The number at an index; 0 where the kernel (an older one) has none.
pub fn at(numbers: &[u64], index: usize) -> u64 {
    numbers.get(index).copied().unwrap_or_default()
}
