//! Writes the config's files below `/var` (`machine.files`), at the start, before any of their readers.
//!
//! Existing entries may come from others, such as a pod of an earlier boot. So no link is followed, neither on the path
//! nor at its end. A file is replaced atomically, and left alone if it is up to date.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use corten_base::regular;
use corten_config::cri::is_part;
use corten_config::v1alpha1::{FileOperation, MachineFile};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, open, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Default permissions: a file may hold a secret.
const PRIVATE: u32 = 0o600;
/// Size limit in bytes of a file to append to.
const LONGEST: usize = 16 << 20;
/// Leftover of a torn write; the next write replaces it.
const UNFINISHED: &str = ".machine-file.unfinished";

/// Writes the files below `var`, in order. Returns the errors as text for people; a failure does not stop the other
/// files.
pub fn write(var: &Path, files: &[MachineFile]) -> Vec<String> {
    // Parts of containerd's configuration are written elsewhere (`runtime_config`).
    let files = files.iter().filter(|file| !is_part(file));
    let complaint = |file: &MachineFile| {
        let error = place(var, file).err()?;
        Some(format!(
            "machine.files: cannot write {}: {error}",
            file.path
        ))
    };
    files.filter_map(complaint).collect()
}

fn place(var: &Path, file: &MachineFile) -> io::Result<()> {
    // The config check guarantees the prefix.
    let path = file.path.strip_prefix("/var/").unwrap_or_default();
    let mut steps: Vec<&str> = path
        .split('/')
        .filter(|step| !matches!(*step, "" | "."))
        .collect();
    let name = steps.pop().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = directory(var, &steps)?;
    let mode = file.permissions.map_or(PRIVATE, |mode| mode.0);
    let found = find(&directory, name)?;
    let wanted = file.content.expose().as_bytes();
    let content = match (file.op, &found) {
        (FileOperation::Create, _) | (FileOperation::Overwrite, Some(_)) => wanted.to_vec(),
        (FileOperation::Append, Some((_, old))) if old.len() > LONGEST => {
            let text = format!("it is longer than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        // Appended at an earlier start.
        (FileOperation::Append, Some((_, old))) if old.ends_with(wanted) => old.clone(),
        (FileOperation::Append, Some((_, old))) => [old, wanted].concat(),
        (FileOperation::Append | FileOperation::Overwrite, None) => {
            let text = "there is no such file; to make it, use op: create";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
    };
    let wanted = (mode, content);
    if found.as_ref() == Some(&wanted) {
        return Ok(());
    }
    replace(&directory, name, &wanted.1, mode)
}

/// Opens the directory at the end of these steps; creates missing ones.
fn directory(var: &Path, steps: &[&str]) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = open(var, flags, Mode::empty())?;
    for step in steps {
        match mkdirat(&directory, *step, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = openat(&directory, *step, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// Permissions and content of a file, if it exists; of a file beyond the limit, its beginning.
fn find(directory: &OwnedFd, name: &str) -> io::Result<Option<(u32, Vec<u8>)>> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let file = match regular::open(&path.join(name), false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    let mut content = Vec::new();
    let bound = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
    file.take(bound).read_to_end(&mut content)?;
    Ok(Some((mode, content)))
}

fn replace(directory: &OwnedFd, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
    match unlinkat(directory, UNFINISHED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, UNFINISHED, flags, Mode::from_raw_mode(PRIVATE))?;
    let mut file = File::from(file);
    let written = file
        .write_all(content)
        .and_then(|()| Ok(fchmod(&file, Mode::from_raw_mode(mode))?))
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(directory, UNFINISHED, directory, name)?));
    if written.is_err() {
        // Free the space: the volume may be full.
        let _ = unlinkat(directory, UNFINISHED, AtFlags::empty());
    }
    written?;
    Ok(rustix::fs::fsync(directory)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use corten_base::sample;

    use super::*;

    fn files(text: &str) -> Vec<MachineFile> {
        sample::config(&format!("files: [{text}]"), "")
            .machine
            .files
    }

    #[test]
    fn machine_files_are_created_replaced_and_appended_once_across_boots() {
        let var = tempfile::tempdir().unwrap();
        let at = |name: &str| var.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::write(at("list"), "a\n").unwrap();
        // Leftover of a torn write.
        fs::write(at(UNFINISHED), "ol").unwrap();
        let files = files(
            "{path: /var/lib/a/./secret, content: hunter2},
             {path: /var/old, content: new, op: overwrite, permissions: 0o640},
             {path: /var/list, content: \"b\\n\", op: append, permissions: 0o644}",
        );
        let mut inodes = Vec::new();
        for _ in 0..2 {
            assert_eq!(write(var.path(), &files), [""; 0]);
            let found = ["lib/a/secret", "old", "list"].map(|name| {
                let data = fs::metadata(at(name)).unwrap();
                inodes.push(data.ino());
                (fs::read_to_string(at(name)).unwrap(), data.mode() & 0o7777)
            });
            let expected = [("hunter2", 0o600), ("new", 0o640), ("a\nb\n", 0o644)];
            assert_eq!(found, expected.map(|(text, mode)| (text.to_owned(), mode)));
        }
        // Files that are up to date are left alone.
        assert_eq!(inodes[..3], inodes[3..]);
        assert!(!at(UNFINISHED).exists());
    }

    #[test]
    fn machine_files_follow_no_link_and_the_others_are_written() {
        let var = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = |name: &str| var.path().join(name);
        fs::write(outside.path().join("passwd"), "root").unwrap();
        symlink(outside.path(), at("directory")).unwrap();
        symlink(outside.path().join("passwd"), at("file")).unwrap();
        fs::create_dir(at("real")).unwrap();
        let files = files(
            "{path: /var/directory/passwd, content: x},
             {path: /var/directory/new, content: x},
             {path: /var/file, content: x},
             {path: /var/real, content: x},
             {path: /var/none, content: x, op: append},
             {path: /var/none, content: x, op: overwrite},
             {path: /var/last, content: x}",
        );
        let complaints = write(var.path(), &files);
        assert_eq!(complaints.len(), 6, "{complaints:#?}");
        assert!(complaints[3].contains("/var/real: must be a regular file"));
        assert!(complaints[4].contains("/var/none: there is no such file"));
        let passwd = fs::read_to_string(outside.path().join("passwd")).unwrap();
        assert_eq!(
            (&*passwd, outside.path().join("new").exists()),
            ("root", false)
        );
        assert_eq!(fs::read_to_string(at("last")).unwrap(), "x");
    }
}
