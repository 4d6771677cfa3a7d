//! Files that a power cut leaves as they were or as they shall be, whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// What a write that was cut off leaves behind; the next one starts it anew.
pub const UNFINISHED: &str = ".unfinished";

/// Whether something is mounted there; what is written elsewhere would be gone after a reboot.
#[must_use]
pub fn is_volume(mount_point: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    let parent = mount_point.parent().and_then(device);
    mount_point.is_dir() && parent.is_some() && device(mount_point) != parent
}

/// Makes a file of the directory hold these bytes, readable by root alone. Once this returns, it is on the
/// disk.
///
/// # Errors
/// The volume is full or broken; the file is what it was.
pub fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join(UNFINISHED);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    if let Err(error) = written {
        // On a full volume it would take what little there is.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    rename(directory, UNFINISHED, name)
}

/// Renames a file of the directory and waits until the disk has the new name.
///
/// # Errors
/// The volume's; then either name holds it.
pub fn rename(directory: &Path, from: &str, to: &str) -> io::Result<()> {
    fs::rename(directory.join(from), directory.join(to))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mounted_volume_keeps_anything() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_volume(directory.path()));
        assert!(!is_volume(Path::new("/no/such/place")));
        assert!(is_volume(Path::new("/proc")));
    }
}
