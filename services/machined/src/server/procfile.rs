//! Reading the small text files of the kernel.

use std::fs;
use std::path::Path;

use tonic::Status;

/// A file's text.
pub(super) fn text(root: &Path, name: &str) -> Result<String, Status> {
    let path = root.join(name);
    fs::read_to_string(&path)
        .map_err(|error| Status::internal(format!("cannot read {}: {error}", path.display())))
}

/// The numbers after a line's name; what is not a number counts as 0.
pub(super) fn numbers<'a>(fields: impl Iterator<Item = &'a str>) -> Vec<u64> {
    fields
        .map(|field| field.parse().unwrap_or_default())
        .collect()
}

/// The number at an index; 0 where the kernel (an older one) has none.
pub(super) fn at(numbers: &[u64], index: usize) -> u64 {
    numbers.get(index).copied().unwrap_or_default()
}
