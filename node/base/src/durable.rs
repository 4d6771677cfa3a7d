//! Files that are replaced whole: those that a power cut leaves as they were or as they shall be, and those in
//! memory, whose readers see the one or the other.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};

/// What a write that was cut off leaves behind; the next one starts it anew.
pub const UNFINISHED: &str = ".unfinished";
/// Held while a file is replaced: all of a directory share [`UNFINISHED`].
static REPLACING: Mutex<()> = Mutex::new(());

/// Whether something is mounted there; what is written elsewhere would be gone after a reboot.
#[must_use]
pub fn is_volume(mount_point: &Path) -> bool {
    // Of directories of one file system, too, the host of a container mounts one in another.
    let found = statx(CWD, mount_point, AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| {
        let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
        is_directory && found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// Makes a file of the directory hold these bytes, readable by root alone. Once this returns, it is on the
/// disk.
///
/// # Errors
/// The volume is full or broken; the file is what it was.
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

/// Who may read a file, from the moment it is there.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Permissions.
    pub mode: u32,
    /// The owner, if it is not root.
    pub uid: Option<u32>,
    /// The group, if it is not root's.
    pub gid: Option<u32>,
}

impl Access {
    /// Everybody.
    pub const ALL: Access = Access {
        mode: 0o644,
        uid: None,
        gid: None,
    };
    /// Root alone.
    pub const PRIVATE: Access = Access {
        mode: 0o600,
        ..Access::ALL
    };
}

/// Makes a file hold this text, at once for who reads it. For files in memory: nothing waits for a disk.
///
/// # Errors
/// The directory is not there or full; the file is what it was.
pub fn replace_now(path: &Path, text: &str, access: Access) -> io::Result<()> {
    // Who reads all files of the directory (udevd, containerd) passes hidden ones over.
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
        // On a full volume it would take what little there is.
        let _ = remove_if_there(&new);
    }
    replaced
}

/// Makes a directory hold these files, each with its name and text, and no others; it is made if need be. They are
/// replaced in this order, and what else is there is removed after them. What fails keeps nobody from the rest. For
/// files in memory, as [`replace_now`].
///
/// # Errors
/// The first; what failed is what it was.
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

/// Removes what else is in a directory, in a way of the caller's. What fails keeps nobody from the rest.
///
/// # Errors
/// The first.
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

/// Removes a file; that there is none is no error.
///
/// # Errors
/// The file system's.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn files_of_a_directory_are_replaced_at_once_and_none_gets_anothers_content() {
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
    fn only_a_mounted_volume_keeps_anything() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_volume(directory.path()));
        assert!(!is_volume(Path::new("/no/such/place")));
        assert!(is_volume(Path::new("/proc")));
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_permissions_whatever_was_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("99-a.rules");
        // Of a write that was cut off.
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
    fn a_directory_holds_its_files_and_no_others_as_far_as_that_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("conf.d");
        let text = |name: &str| fs::read_to_string(place.join(name)).ok();
        replace_all(&place, [("old", "1"), ("b", "1")], Access::PRIVATE).unwrap();
        let mode = fs::metadata(place.join("old")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Neither a file's name can be given to what is a directory, nor can one be in a directory that is not there,
        // nor a directory be removed as a file.
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
