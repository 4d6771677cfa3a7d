//! Reads files from a labelled volume beside the node, such as a CD or a USB disk.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use corten_volumes::labelled;

use super::{LARGEST, decode};

/// Reads these files from the first volume that has one of the labels. A file that the volume lacks is `None`. The
/// whole result is `None` when no volume has such a label. The volume is mounted at `mount_point` during the call.
///
/// # Errors
/// The volume cannot be read; the text names it.
pub fn find<const N: usize>(
    labels: &[&str],
    files: [&str; N],
    mount_point: &Path,
) -> Result<Option<[Option<Vec<u8>>; N]>, String> {
    let found = read_files(labels, &files, mount_point)?;
    Ok(found.and_then(|found| found.try_into().ok()))
}

/// [`find`] for a number of files that is known only at run time.
///
/// # Errors
/// As [`find`].
pub fn read_files(
    labels: &[&str],
    files: &[&str],
    mount_point: &Path,
) -> Result<Option<Vec<Option<Vec<u8>>>>, String> {
    for label in labels {
        if let Some(volume) = labelled::attach(label, mount_point)? {
            let read = files.iter().map(|file| {
                let bytes = read_file(&volume.path(file));
                bytes.map_err(|error| format!("volume {label}: {file}: {error}"))
            });
            return read.collect::<Result<_, _>>().map(Some);
        }
    }
    Ok(None)
}

pub(super) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
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
