//! Extracts a unified kernel image from an installer image and checks that this machine may start it.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use corten_extension::archive::{self, Wanted};
use corten_installer::check;

use crate::unpack::make_empty;

/// What is taken, whose key it has to be signed with, and where it goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Uki {
    /// An OCI archive, or a directory with `blobs/sha256`.
    image: PathBuf,
    /// The digest of the image's index or manifest: `sha256:` and 64 hexadecimal digits.
    digest: String,
    /// The unified kernel image that runs: the new one has to be signed by the same key.
    running: PathBuf,
    /// Becomes a directory with `corten.efi` and `version`; whatever was there is removed first.
    directory: PathBuf,
}

impl Uki {
    /// Runs on a blocking thread, so that a signal can end the program.
    pub(crate) async fn run(self) -> Result<(), String> {
        let done = tokio::task::spawn_blocking(move || self.take()).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn take(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.directory.display());
        let contents = self.directory.join("contents");
        make_empty(&self.directory)
            .and_then(|()| fs::create_dir(&contents))
            .map_err(failed)?;
        let architecture = corten_api::ARCH;
        let wanted = Wanted {
            architecture,
            digest: Some(&self.digest),
        };
        let file = self.directory.join("corten.efi");
        let path = format!("usr/install/{architecture}/corten.efi");
        archive::take_file(&self.image, wanted, &path, (&file, &contents))
            .map_err(|problem| problem.to_string())?;
        fs::remove_dir_all(&contents).map_err(failed)?;
        let checked = check(&file, &self.running, architecture);
        let checked = checked.map_err(|error| format!("/{path}: {error}"))?;
        fs::write(self.directory.join("version"), checked.version).map_err(failed)
    }
}
