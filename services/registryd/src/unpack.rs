//! Unpacks a system extension image into a directory to be laid over `/usr/local`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use corten_extension::archive::{self, Wanted};
use corten_extension::{Problem, manifest, rules};

/// An extension image and the target directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct Unpack {
    /// An OCI archive, or a directory with `blobs/sha256`.
    image: PathBuf,
    /// The digest of the image's index or manifest: `sha256:` and 64 hexadecimal digits.
    digest: String,
    /// Target directory of `manifest.yaml` and `rootfs`; its former content is removed first.
    directory: PathBuf,
}

impl Unpack {
    /// Runs on a blocking thread, so that a signal can end the program.
    pub(crate) async fn run(self) -> Result<(), String> {
        let work = move || self.unpack().map_err(|problem| problem.to_string());
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn unpack(&self) -> Result<(), Problem> {
        let failed = |error: io::Error| Problem {
            place: self.directory.display().to_string(),
            what: error.to_string(),
            remedy: "free space on the node's disk".to_owned(),
        };
        let contents = self.directory.join("contents");
        make_empty(&self.directory)
            .and_then(|()| fs::create_dir(&contents))
            .map_err(failed)?;
        let wanted = Wanted {
            architecture: corten_api::ARCH,
            digest: Some(&self.digest),
        };
        let extension = archive::read(&self.image, wanted, &contents)?;
        extension.manifest.check_compatible(&manifest::release())?;
        for path in extension.files.keys() {
            rules::check_late(path)?;
        }
        extension
            .place(&self.directory.join("rootfs"))
            .and_then(|()| fs::remove_dir_all(&contents))
            .map_err(failed)?;
        let text = extension.manifest.render()?;
        fs::write(self.directory.join("manifest.yaml"), text).map_err(failed)
    }
}

/// Creates or empties a directory. In a sandbox an existing one cannot be replaced.
pub(crate) fn make_empty(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
