//! What a small volume holds, carried through memory while the volume is made anew.
//!
//! Never keeps it anywhere else: a power cut in between loses it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// As much as is carried, in bytes: what the node keeps in memory at once.
const MOST: u64 = 128 << 20;

/// A tree of files.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Each after its directory.
    entries: Vec<Entry>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    /// Below the root.
    path: PathBuf,
    mode: u32,
    uid: u32,
    gid: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Directory,
    /// Keys may be among them.
    File(Zeroizing<Vec<u8>>),
    Link(PathBuf),
}

impl Carried {
    /// Reads all that is below a directory. Sockets and the like are left: whoever made them makes them again.
    ///
    /// # Errors
    /// Something cannot be read, or it is too much.
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

    /// Writes it below an empty directory, onto the disk.
    ///
    /// # Errors
    /// The volume's; then a part of it is there.
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
                    // Of a new file system.
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
    fn what_is_carried_is_what_it_was() {
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
    fn what_is_too_much_for_memory_is_not_carried() {
        let from = tempfile::tempdir().unwrap();
        let large = fs::File::create(from.path().join("large")).unwrap();
        large.set_len(MOST + 1).unwrap();
        let error = Carried::take(from.path()).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 128 MiB");
    }
}
