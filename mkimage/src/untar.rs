//! Unpacks the tarballs that sources come in.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::error::{Remedy as _, Result};

/// Unpacks those files of an xz tarball for which `wanted` holds into `tree`, without the first component of
/// their paths.
pub fn unpack(from: impl Read, tree: &Path, wanted: impl Fn(&Path) -> bool) -> Result<()> {
    let decoder = liblzma::read::XzDecoder::new(BufReader::with_capacity(1 << 20, from));
    let mut archive = tar::Archive::new(decoder);
    fs::create_dir_all(tree)?;
    for entry in archive.entries().context("reading a source tarball")? {
        let mut entry = entry.context("reading a source tarball")?;
        let path: PathBuf = entry.path()?.components().skip(1).collect();
        if path.as_os_str().is_empty() || path.components().any(|part| part.as_os_str() == "..") {
            continue;
        }
        if entry.header().entry_type().is_dir() || !wanted(&path) {
            continue;
        }
        let target = tree.join(&path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        entry.unpack(&target).or_fail(
            format!("unpacking sources to {}", target.display()),
            "free disk space (the kernel's source needs 2 GB) and try again",
        )?;
    }
    Ok(())
}
