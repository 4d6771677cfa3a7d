//! Atomic replacement of files. On disk, a power cut leaves the old or the new content. In memory, readers see one or
//! the other.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};

/// Name of a partly written file, left after a power cut; the next write truncates it.
pub const UNFINISHED: &str = ".unfinished";
/// Serializes replacements, since all files of a directory share [`UNFINISHED`].
static REPLACING: Mutex<()> = Mutex::new(());

/// Whether the path is a mount point. Without a mount, written files would be lost at a reboot.
#[must_use]
pub fn is_volume(mount_point: &Path) -> bool {
    // A comparison of device numbers would not do: the host of a container may mount several directories of one file
    // system.
    let found = statx(CWD, mount_point, AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| {
        let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
        is_directory && found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// Replaces the content of a file in the directory, readable by root only. When this returns, the content is on disk.
///
/// # Errors
/// The volume is full or broken; the file is unchanged.
pub fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let _alone = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
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
        // The partial file would use up the little space that is left.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    rename(directory, UNFINISHED, name)
}

/// Renames a file of the directory and syncs the directory.
///
/// # Errors
/// Those of the volume; the file then has either name.
pub fn rename(directory: &Path, from: &str, to: &str) -> io::Result<()> {
    fs::rename(directory.join(from), directory.join(to))?;
    File::open(directory)?.sync_all()
}

/// Owner and permissions of a file, in effect from its creation on.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    /// Owner; `None` for root.
    pub uid: Option<u32>,
    /// Group; `None` for root's.
    pub gid: Option<u32>,
}

impl Access {
    /// Readable by everyone.
    pub const ALL: Access = Access {
        mode: 0o644,
        uid: None,
        gid: None,
    };
    /// Readable by root only.
    pub const PRIVATE: Access = Access {
        mode: 0o600,
        ..Access::ALL
    };
}

/// Replaces a file's text atomically, without a sync. For files in memory.
///
/// # Errors
/// The directory is missing or full; the file is unchanged.
pub fn replace_now(path: &Path, text: &str, access: Access) -> io::Result<()> {
    // The temporary name is hidden, because programs that read all files of a directory (udevd, containerd) skip hidden
    // files.
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    let new = path.with_file_name(name);
    remove_if_there(&new)?;
    let replaced = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(access.mode)
        .open(&new)
        .and_then(|mut file| {
            fchown(&file, access.uid, access.gid)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&new, path)
        });
    if replaced.is_err() {
        // The partial file would use up the little space that is left.
        let _ = remove_if_there(&new);
    }
    replaced
}

/// Replaces a file's text in place, so that containers with this file as a mount see the change. A reader may see a mixture
/// for a moment. A missing file is made as by [`replace_now`].
///
/// # Errors
/// The directory is missing or full, or the path is no file.
pub fn rewrite_now(path: &Path, text: &str, access: Access) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return replace_now(path, text, access);
        }
        opened => opened?,
    };
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Makes a directory contain exactly these files, given by name and text; creates it if needed. Files are replaced in
/// order, then others are removed. A failure does not stop the rest. For files in memory, as [`replace_now`].
///
/// # Errors
/// The first failure; a file that failed is unchanged.
pub fn replace_all<'a>(
    directory: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    access: Access,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut names = BTreeSet::new();
    let mut done = Ok(());
    for (name, text) in files {
        names.insert(OsStr::new(name));
        done = done.and(replace_now(&directory.join(name), text, access));
    }
    let is_wanted = |name: &OsStr| names.contains(name);
    done.and(remove_others(directory, is_wanted, remove_if_there))
}

/// Removes all unwanted entries of a directory with the given function. A failure does not stop the rest.
///
/// # Errors
/// The first failure.
pub fn remove_others(
    directory: &Path,
    is_wanted: impl Fn(&OsStr) -> bool,
    remove: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = Ok(());
    for entry in fs::read_dir(directory)? {
        let removed = entry.and_then(|entry| match is_wanted(&entry.file_name()) {
            true => Ok(()),
            false => remove(&entry.path()),
        });
        done = done.and(removed);
    }
    done
}

/// Removes a file; a missing file is no error.
///
/// # Errors
/// Those of the file system.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a directory with its content; a missing directory is no error.
///
/// # Errors
/// Those of the file system.
pub fn remove_directory_if_there(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file or a link, or a directory with its content.
///
/// # Errors
/// Those of the file system.
pub fn remove_whole(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn rewritten_file_stays_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        rewrite_now(&path, "first text", Access::ALL).unwrap();
        let opened = File::open(&path).unwrap();
        rewrite_now(&path, "second", Access::ALL).unwrap();
        assert_eq!(io::read_to_string(opened).unwrap(), "second");
    }

    #[test]
    fn concurrent_replacements_of_two_files_do_not_mix_their_contents() {
        let directory = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for name in ["config.yaml", "user-volumes.json"] {
                let path = directory.path();
                scope.spawn(move || {
                    let text = name.repeat(10_000);
                    for _ in 0..100 {
                        replace(path, name, text.as_bytes()).unwrap();
                        assert!(fs::read_to_string(path.join(name)).unwrap() == text);
                    }
                });
            }
        });
    }

    #[test]
    fn only_a_mount_point_counts_as_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_volume(directory.path()));
        assert!(!is_volume(Path::new("/no/such/place")));
        assert!(is_volume(Path::new("/proc")));
    }

    #[test]
    fn file_is_replaced_with_its_permissions_despite_an_interrupted_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("99-a.rules");
        // The temporary file of an interrupted write.
        fs::write(directory.path().join(".99-a.rules.new"), "half").unwrap();
        for (text, access) in [("one", Access::ALL), ("two", Access::PRIVATE)] {
            replace_now(&path, text, access).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, access.mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        remove_if_there(&path).unwrap();
        remove_if_there(&path).unwrap();
        replace_now(&directory.path().join("no/such"), "x", Access::PRIVATE).unwrap_err();
    }

    #[test]
    fn removal_of_a_missing_directory_succeeds_and_that_of_a_file_fails() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("a");
        fs::create_dir_all(directory.join("b")).unwrap();
        remove_directory_if_there(&directory).unwrap();
        assert!(!directory.exists());
        remove_directory_if_there(&directory).unwrap();
        fs::write(&directory, "x").unwrap();
        remove_directory_if_there(&directory).unwrap_err();
    }

    #[test]
    fn failed_file_does_not_stop_the_replacement_of_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("conf.d");
        let text = |name: &str| fs::read_to_string(place.join(name)).ok();
        replace_all(&place, [("old", "1"), ("b", "1")], Access::PRIVATE).unwrap();
        let mode = fs::metadata(place.join("old")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Three failures: a rename onto a directory, a file in a missing directory, and the removal of a directory as a
        // file.
        for name in ["a", "other"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        let (is_directory, not_there) = (io::ErrorKind::IsADirectory, io::ErrorKind::NotFound);
        for (first, second, expected) in [("a", "z/z", is_directory), ("z/z", "a", not_there)] {
            fs::write(place.join("old"), "1").unwrap();
            let files = [(first, "2"), ("c", first), (second, "2"), ("b", second)];
            let failed = replace_all(&place, files, Access::ALL).unwrap_err();
            assert_eq!(failed.kind(), expected);
            assert_eq!(
                (text("b").as_deref(), text("c").as_deref()),
                (Some(second), Some(first))
            );
            assert_eq!(text("old"), None);
        }
        let failed = replace_all(&place, [("b", "3")], Access::ALL);
        assert_eq!(failed.unwrap_err().kind(), is_directory);
        assert_eq!((text("b").as_deref(), text("c")), (Some("3"), None));
    }
}
