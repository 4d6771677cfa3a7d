//! Unpacks source tarballs.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::error::{Remedy as _, Result};

/// Unpacks the files of an xz tarball that `wanted` selects into `tree`, without the first
/// component of their paths. `what` names the source and its size for messages: `kmod's source (1
/// MB)`.
pub fn unpack(
    what: &str,
    from: impl Read,
    tree: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> Result<()> {
    let decoder = liblzma::read::XzDecoder::new(BufReader::with_capacity(1 << 20, from));
    let mut archive = tar::Archive::new(decoder);
    fs::create_dir_all(tree)?;
    let reading = || format!("reading the tarball of {what}");
    for entry in archive.entries().with_context(reading)? {
        let mut entry = entry.with_context(reading)?;
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
            format!("unpacking {what} to {}", target.display()),
            "free disk space and try again",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_error_names_the_archive_and_the_directory() {
        let encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
        let mut archive = tar::Builder::new(encoder);
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        let path = "kmod-34/shared/util.c";
        archive.append_data(&mut header, path, &b"x"[..]).unwrap();
        let tarball = archive.into_inner().unwrap().finish().unwrap();
        let into = |tree: &Path| unpack("kmod's source (1 MB)", &*tarball, tree, |_| true);

        let tree = tempfile::tempdir().unwrap();
        into(tree.path()).unwrap();
        let file = tree.path().join("shared/util.c");
        assert_eq!(fs::read(&file).unwrap(), b"x");
        // A directory at the path of a file cannot be replaced.
        fs::remove_file(&file).unwrap();
        fs::create_dir_all(file.join("in the way")).unwrap();
        let error = into(tree.path()).unwrap_err().to_string();
        let expected = format!("unpacking kmod's source (1 MB) to {}", file.display());
        assert!(error.contains(&expected), "{error}");
    }
}
