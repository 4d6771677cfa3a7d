//! Unpacks a tar archive from a node, which may be hostile. Never writes outside the target, and
//! never makes a device, socket or set-user-id file.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use tar::EntryType;

/// A path that leads out of the target.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} leads out of the target, so the rest of the archive is not unpacked: do not trust this node"
)]
pub(crate) struct LeadsOut(PathBuf);

/// Maximum number of skipped entries to report.
const MOST_TOLD: usize = 100;

/// Unpacks files, directories and symbolic links; returns the names of other entries, which it
/// skips. Directories stay accessible to their owner, whatever their mode in the archive.
///
/// # Errors
/// An entry's path is absolute, has a `..`, or leads out of the target through a link; or the
/// archive is damaged. The entries before it stay.
pub(crate) fn extract(archive: impl Read, target: &Path) -> anyhow::Result<Vec<String>> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_permissions(false);
    archive.set_preserve_mtime(true);
    let mut left_out = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if !inside(&path) {
            return Err(LeadsOut(path).into());
        }
        let kind = entry.header().entry_type();
        let usual = matches!(
            kind,
            EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::Symlink
        );
        if !usual {
            if left_out.len() < MOST_TOLD {
                left_out.push(format!("{} ({kind:?})", path.display()));
            }
            continue;
        }
        // Refuses a path that leads out through an earlier link.
        let unpacked = entry
            .unpack_in(target)
            .with_context(|| format!("{path:?}"))?;
        // The archive's root is `.`, which exists.
        if path.components().all(|part| part == Component::CurDir) {
            continue;
        }
        if !unpacked {
            bail!("{path:?} cannot be unpacked");
        }
        if kind == EntryType::Directory {
            open_to_owner(&target.join(&path)).with_context(|| format!("{path:?}"))?;
        }
    }
    Ok(left_out)
}

/// Makes a directory writable by its owner. Its entries follow later in the archive; without write
/// permission only root could create them, and no other user could delete them. `path` is a
/// directory, not a link to one, which the library has refused.
fn open_to_owner(path: &Path) -> std::io::Result<()> {
    let mode = fs::symlink_metadata(path)?.permissions().mode();
    fs::set_permissions(path, Permissions::from_mode((mode & 0o777) | 0o700))
}

fn inside(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    /// An entry with its name written unchecked: the library would refuse hostile names.
    fn entry(kind: EntryType, name: &str, link: &str, data: &[u8]) -> Vec<u8> {
        with_mode(0o4755, kind, name, link, data)
    }

    fn with_mode(mode: u32, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, data).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes
    }

    fn unpack(entries: &[Vec<u8>]) -> (tempfile::TempDir, anyhow::Result<Vec<String>>) {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::create_dir(&target).unwrap();
        let mut bytes = entries.concat();
        bytes.extend([0; 1024]);
        let result = extract(&*bytes, &target);
        (directory, result)
    }

    #[test]
    fn files_directories_and_links_are_unpacked() {
        let (directory, result) = unpack(&[
            entry(EntryType::Directory, "./", "", b""),
            entry(EntryType::Directory, "log/", "", b""),
            entry(EntryType::Regular, "log/a", "", b"hello"),
            entry(EntryType::Symlink, "log/b", "a", b""),
            entry(EntryType::Char, "log/null", "", b""),
            entry(EntryType::Fifo, "log/fifo", "", b""),
        ]);
        let left_out = result.unwrap();
        assert_eq!(left_out, ["log/null (Char)", "log/fifo (Fifo)"]);
        let log = directory.path().join("target/log");
        assert_eq!(fs::read_to_string(log.join("b")).unwrap(), "hello");
        let mode = fs::metadata(log.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0, "{mode:o}");
        assert_eq!(fs::read_dir(log).unwrap().count(), 2);
    }

    /// Root may write anywhere, so that the test checks the mode, too.
    #[test]
    fn read_only_directories_are_filled_and_made_writable() {
        let (directory, result) = unpack(&[
            with_mode(0o555, EntryType::Directory, "etc/", "", b""),
            with_mode(0o555, EntryType::Directory, "etc/ssl/", "", b""),
            entry(EntryType::Regular, "etc/ssl/a", "", b"hello"),
        ]);
        result.unwrap();
        for name in ["target/etc", "target/etc/ssl"] {
            let metadata = fs::metadata(directory.path().join(name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o755, "{name}");
        }
        let text = fs::read_to_string(directory.path().join("target/etc/ssl/a")).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_hostile_archive_writes_nothing_outside() {
        let cases: [&[Vec<u8>]; 5] = [
            &[entry(EntryType::Regular, "../evil", "", b"x")],
            &[entry(EntryType::Regular, "a/../../evil", "", b"x")],
            &[entry(EntryType::Regular, "/tmp/corten-evil", "", b"x")],
            &[
                entry(EntryType::Symlink, "out", "..", b""),
                entry(EntryType::Regular, "out/evil", "", b"x"),
            ],
            &[
                entry(EntryType::Symlink, "out", "/", b""),
                entry(EntryType::Regular, "out/tmp/corten-evil", "", b"x"),
            ],
        ];
        for entries in cases {
            let (directory, result) = unpack(entries);
            assert!(result.is_err(), "{result:?}");
            let names = fs::read_dir(directory.path()).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["target"]);
        }
        assert!(!Path::new("/tmp/corten-evil").exists());
    }

    #[test]
    fn a_damaged_archive_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = entry(EntryType::Regular, "a", "", &[7; 5000]);
        bytes.truncate(1000);
        extract(&*bytes, directory.path()).unwrap_err();
        let noise: Vec<u8> = (0..=255).cycle().skip(1).take(4096).collect();
        extract(&*noise, directory.path()).unwrap_err();
    }
}
