//! Files with secrets.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};

/// Writes a file whole or not at all, readable by its owner only.
pub(crate) fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let save = || -> anyhow::Result<()> {
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
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
