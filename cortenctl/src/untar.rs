//! Unpacking a tar archive of a node. The archive may be hostile: nothing is
//! written outside of the target, and no device, socket or set-user-id file is
//! made.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use tar::EntryType;

/// A path that was made to write elsewhere.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} leads out of the target; nothing from here on is unpacked: the node, or somebody on the way, is not to be trusted"
)]
pub(crate) struct LeadsOut(PathBuf);

/// How many left-out entries are named.
const MOST_TOLD: usize = 100;

/// Unpacks files, directories and symbolic links; what else there is is left
/// out, and told by the names returned. Directories stay open to their owner,
/// whatever the archive says.
///
/// # Errors
/// At the first entry whose path is absolute, has a `..` or leads through a link
/// out of the target, and when the archive is damaged. What came before stays.
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
        // Refuses what leads out through a link that came before.
        let unpacked = entry
            .unpack_in(target)
            .with_context(|| format!("{path:?}"))?;
        // The archive's own root is `.`, which is there.
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

/// What is in a directory comes after it: one that nobody may write to could be
/// filled by root only, and deleted by nobody else. `path` is a directory, not a
/// link to one: the library has refused that.
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

    /// The name is written as it is: the library would refuse the hostile ones.
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

    /// Root may write anywhere, so the mode is looked at, too.
    #[test]
    fn directories_nobody_may_write_to_are_filled() {
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
