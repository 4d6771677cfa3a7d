//! A config on a volume beside the node.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::{LARGEST, decode};
use crate::labelled;

/// Where one is looked into.
const MOUNT_POINT: &str = "/run/config-source";

/// The file on the first volume that has one of the labels; `None` when there is no such volume, or no such
/// file on it.
///
/// # Errors
/// The volume cannot be read; the text names it.
pub fn find(labels: &[&str], file: &str) -> Result<Option<Vec<u8>>, String> {
    for label in labels {
        if let Some(volume) = labelled::attach(label, Path::new(MOUNT_POINT))? {
            return read_file(&volume.path(file))
                .map_err(|error| format!("volume {label}: {error}"));
        }
    }
    Ok(None)
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("the file is larger than {} MiB", LARGEST >> 20));
    }
    decode::unpack(bytes).map(Some)
}
