//! Writes the files of an extension to a directory.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{EntryKind, Extension};

impl Extension {
    /// Writes the files to the new directory `root`, owned by the calling user. Contents are moved out of the scratch
    /// directory, which must be on the same file system.
    ///
    /// # Errors
    /// A file cannot be written; the text names it.
    pub fn place(&self, root: &Path) -> io::Result<()> {
        fs::create_dir(root).map_err(|error| named(root, &error))?;
        let mut moved = HashMap::new();
        for (path, entry) in &self.files {
            let at = root.join(path);
            let placed = match &entry.kind {
                EntryKind::Directory => fs::create_dir(&at),
                EntryKind::Link(target) => symlink(target, &at),
                EntryKind::File(content) => place_file(content, &at, &mut moved),
            };
            let done = placed.and_then(|()| match entry.kind {
                // A link has no permissions of its own, and must not change those of its target.
                EntryKind::Link(_) => Ok(()),
                _ => fs::set_permissions(&at, Permissions::from_mode(entry.mode)),
            });
            done.map_err(|error| named(&at, &error))?;
        }
        Ok(())
    }
}

/// Moves a content. For the second path of a content it copies the moved file.
fn place_file<'a>(
    content: &'a Path,
    at: &Path,
    moved: &mut HashMap<&'a Path, PathBuf>,
) -> io::Result<()> {
    match moved.get(content) {
        Some(first) => fs::copy(first, at).map(drop),
        None => {
            fs::rename(content, at)?;
            moved.insert(content, at.to_owned());
            Ok(())
        }
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
