//! Files with secrets.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tempfile::NamedTempFile;

/// The file to write for `path`. A symbolic link stays; its target is replaced.
pub fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Makes the parent directories of a file.
pub fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = directory(path);
    std::fs::create_dir_all(parent).with_context(|| format!("directory {}", parent.display()))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A temporary file beside `path`, to be renamed to `path` when it is complete, readable by its
/// owner only.
pub fn beside(path: &Path) -> anyhow::Result<NamedTempFile> {
    let directory = directory(path);
    anyhow::ensure!(
        directory.is_dir(),
        "{}: there is no directory {}",
        path.display(),
        directory.display()
    );
    // Created with mode 0600.
    NamedTempFile::new_in(directory).with_context(|| path.display().to_string())
}

/// Writes a file by atomic rename, readable by its owner only.
pub fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let mut file = beside(path)?;
    let save = || -> anyhow::Result<()> {
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        if force {
            file.persist(path).map_err(|error| error.error)?;
        } else {
            file.persist_noclobber(path)
                .map_err(|error| match error.error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        anyhow!("it exists; --force overwrites it")
                    }
                    _ => error.error.into(),
                })?;
        }
        Ok(())
    };
    save().with_context(|| path.display().to_string())
}

/// Reads a text of at most `limit` bytes. No error quotes it.
pub fn read(path: &Path, limit: u64) -> anyhow::Result<String> {
    let load = || -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        // One byte over the limit shows that the file is too large.
        file.take(limit + 1).read_to_end(&mut bytes)?;
        anyhow::ensure!(bytes.len() as u64 <= limit, "larger than {limit} bytes");
        String::from_utf8(bytes).map_err(|_| anyhow!("not UTF-8 text"))
    };
    load().with_context(|| path.display().to_string())
}
