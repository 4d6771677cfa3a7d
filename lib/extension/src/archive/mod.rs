//! Turns an OCI archive (image-spec 1.1, image-layout.md, in a tar or a directory) into the files of a layer.
//!
//! Every used byte is verified against its digest first, from the index down. The archive never chooses a path to write
//! to: contents become numbered files of a scratch directory, and names stay values.

mod files;
mod layout;
mod place;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::rules::{self, Kind};
use crate::{Manifest, Problem};
use files::{Content, Tree};
use layout::Layout;

/// Selection of an image of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// OCI's name of the architecture: `amd64`, `arm64`.
    pub architecture: &'a str,
    /// Digest of the index or of the manifest, as a registry shows it (`sha256:` and 64 hexadecimal digits). `None`:
    /// the image in the archive's index; a directory has no index and needs a digest.
    pub digest: Option<&'a str>,
}

/// A checked extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Manifest of the extension.
    pub manifest: Manifest,
    /// Paths of the root file system without their leading `/`, parents before children; [`rules`] allows each of them.
    pub files: BTreeMap<String, Entry>,
}

/// A path of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Permission bits; 0755 for every directory.
    pub mode: u32,
    /// Type of the path.
    pub kind: EntryKind,
}

/// The type of a path of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Link(String),
    /// A regular file with the content of this file in the scratch directory.
    File(PathBuf),
}

/// Reads the archive, or the directory that holds `blobs`; contents are written to the directory `scratch`, which must
/// be empty.
///
/// # Errors
/// The problem of the archive, its manifest or one of its files.
pub fn read(archive: &Path, wanted: Wanted<'_>, scratch: &Path) -> Result<Extension, Problem> {
    extension(tree(archive, wanted, scratch)?)
}

/// Merges the layers of the image; contents are written to `scratch`.
fn tree(archive: &Path, wanted: Wanted<'_>, scratch: &Path) -> Result<Tree, Problem> {
    let broken = |error: &io::Error| {
        let remedy = "write it again: skopeo copy docker://IMAGE oci-archive:FILE";
        Problem::new(archive.display().to_string(), error.to_string(), remedy)
    };
    let layout = Layout::open(archive).map_err(|error| broken(&error))?;
    let layers = layout.layers(wanted).map_err(|error| broken(&error))?;
    let mut tree = Tree::new(scratch.to_owned());
    for layer in &layers {
        let blob = layout.layer(layer).map_err(|error| broken(&error))?;
        tree.apply(blob).map_err(|error| broken(&error))?;
    }
    Ok(tree)
}

/// Moves files of the image: each path (without its leading `/`) to its target. `scratch` is an empty directory on the
/// same file system as the targets.
///
/// # Errors
/// The problem of the archive, or the image lacks one of the files.
pub fn take_files(
    archive: &Path,
    wanted: Wanted<'_>,
    files: &[(&str, &Path)],
    scratch: &Path,
) -> Result<(), Problem> {
    let mut nodes = tree(archive, wanted, scratch)?.into_nodes();
    for (path, to) in files {
        let Some(Content::File(content)) = nodes.remove(*path).map(|node| node.content) else {
            let remedy =
                "check that this is the image of an installer for this machine's architecture";
            return Err(Problem::new(
                format!("/{path}"),
                "there is no such file",
                remedy,
            ));
        };
        fs::rename(content, to).map_err(|error| {
            Problem::new(
                to.display().to_string(),
                error.to_string(),
                "free disk space",
            )
        })?;
    }
    Ok(())
}

/// Checks the tree against the rules: only `manifest.yaml` and `rootfs` at the top.
fn extension(tree: Tree) -> Result<Extension, Problem> {
    let mut manifest = None;
    let mut files = BTreeMap::new();
    for (path, node) in tree.into_nodes() {
        match (path.as_str(), node.content) {
            ("manifest.yaml", Content::File(content)) => {
                let bytes = fs::read(content).map_err(|error| {
                    let remedy = "free disk space";
                    Problem::new("manifest.yaml", error.to_string(), remedy)
                })?;
                manifest = Some(Manifest::parse(&bytes)?);
            }
            ("rootfs", Content::Directory) => {}
            (path, content) => {
                let Some(inner) = path.strip_prefix("rootfs/") else {
                    return Err(Problem::new(
                        format!("/{path}"),
                        "an extension contains only manifest.yaml and the directory rootfs",
                        "check that this is the image of a system extension",
                    ));
                };
                let kind = match content {
                    Content::Directory => EntryKind::Directory,
                    Content::Link(target) => EntryKind::Link(target),
                    Content::File(content) => EntryKind::File(content),
                    Content::Special(what) => {
                        return Err(Problem::new(
                            format!("/{inner}"),
                            format!("it is {what}"),
                            "remove it: udevd creates devices, and programs create sockets",
                        ));
                    }
                };
                rules::check(inner, kind.as_rule(), node.mode)?;
                // The topmost layer's mode would apply to a shared directory, and /usr must keep its mode.
                let mode = match kind {
                    EntryKind::Directory => 0o755,
                    _ => node.mode,
                };
                files.insert(inner.to_owned(), Entry { mode, kind });
            }
        }
    }
    let manifest = manifest.ok_or_else(|| {
        let remedy = "check that this is the image of a system extension";
        Problem::new("manifest.yaml", "the file is missing", remedy)
    })?;
    Ok(Extension { manifest, files })
}

impl EntryKind {
    fn as_rule(&self) -> Kind<'_> {
        match self {
            EntryKind::Directory => Kind::Directory,
            EntryKind::Link(target) => Kind::Link(target),
            EntryKind::File(_) => Kind::File,
        }
    }
}

#[cfg(test)]
mod tests;
