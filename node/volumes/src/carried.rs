//! Files of a small volume, held in memory while the volume is made anew. Never writes them anywhere else: a power cut
//! in between loses them.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Maximum number of bytes to hold in memory.
const MOST: u64 = 128 << 20;

/// A tree of files.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Entries, each after its directory.
    entries: Vec<Entry>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    /// Path relative to the root.
    path: PathBuf,
    mode: u32,
    uid: u32,
    gid: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Directory,
    /// The content may include keys.
    File(Zeroizing<Vec<u8>>),
    Link(PathBuf),
}

impl Carried {
    /// Reads everything below a directory, except sockets and other special files, which their owners create again.
    ///
    /// # Errors
    /// A file cannot be read, or the total exceeds [`MOST`].
    pub(super) fn take(root: &Path) -> io::Result<Carried> {
        let mut carried = Carried::default();
        carried.take_below(root, Path::new(""))?;
        Ok(carried)
    }

    fn take_below(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let data = entry.metadata()?;
            let kind = if data.is_dir() {
                Kind::Directory
            } else if data.is_symlink() {
                Kind::Link(fs::read_link(entry.path())?)
            } else if data.is_file() {
                self.bytes = self.bytes.saturating_add(data.len());
                if self.bytes > MOST {
                    let text = format!("it holds more than {} MiB", MOST >> 20);
                    return Err(io::Error::other(text));
                }
                Kind::File(Zeroizing::new(fs::read(entry.path())?))
            } else {
                continue;
            };
            let is_directory = matches!(kind, Kind::Directory);
            self.entries.push(Entry {
                path: path.clone(),
                mode: data.mode() & 0o7777,
                uid: data.uid(),
                gid: data.gid(),
                kind,
            });
            if is_directory {
                self.take_below(root, &path)?;
            }
        }
        Ok(())
    }

    /// Writes the files below an empty directory and syncs them to the disk.
    ///
    /// # Errors
    /// Those of the volume; some files may then be written.
    pub(super) fn put(&self, root: &Path) -> io::Result<()> {
        for entry in &self.entries {
            let path = root.join(&entry.path);
            match &entry.kind {
                Kind::Link(target) => {
                    symlink(target, &path)?;
                    lchown(&path, Some(entry.uid), Some(entry.gid))?;
                    continue;
                }
                Kind::Directory => match fs::create_dir(&path) {
                    // A new file system may already have the directory.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made?,
                },
                Kind::File(bytes) => fs::write(&path, bytes)?,
            }
            chown(&path, Some(entry.uid), Some(entry.gid))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode))?;
        }
        rustix::fs::syncfs(fs::File::open(root)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrated_files_keep_content_and_modes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |path: &str| from.path().join(path);
        fs::create_dir_all(at("logs/old")).unwrap();
        fs::write(at("config.yaml"), "secret").unwrap();
        fs::set_permissions(at("config.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("logs/old/audit"), vec![7; 100_000]).unwrap();
        fs::set_permissions(at("logs"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("config.yaml", at("link")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let carried = Carried::take(from.path()).unwrap();
        drop(socket);
        assert!(carried.bytes == 100_006 && carried.entries.len() == 5);
        carried.put(to.path()).unwrap();
        let at = |path: &str| to.path().join(path);
        let mode = |path| fs::metadata(at(path)).unwrap().mode() & 0o7777;
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "secret");
        assert_eq!((mode("config.yaml"), mode("logs")), (0o600, 0o750));
        assert!(fs::read(at("logs/old/audit")).unwrap() == [7; 100_000]);
        assert!(!at("socket").exists());
    }

    #[test]
    fn migration_refuses_more_data_than_fits_into_memory() {
        let from = tempfile::tempdir().unwrap();
        let large = fs::File::create(from.path().join("large")).unwrap();
        large.set_len(MOST + 1).unwrap();
        let error = Carried::take(from.path()).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 128 MiB");
    }
}
