//! From an OCI archive to the files of a layer.
//!
//! The archive is an OCI image layout (image-spec 1.1, image-layout.md) in a tar; a directory with the layout's
//! blobs, as containerd keeps them, is read likewise. Every byte that is used was
//! compared with its digest first, down from the index. Nothing is unpacked to a path that the archive
//! chooses: contents become numbered files of a scratch directory, names stay values.

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

/// Which image of an archive is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// OCI's name of the architecture: `amd64`, `arm64`.
    pub architecture: &'a str,
    /// The digest of the index or of the manifest, as a registry shows it (`sha256:` and 64 hexadecimal
    /// digits); `None`: whatever the archive holds, which a directory does not say.
    pub digest: Option<&'a str>,
}

/// An extension, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Paths of the root file system without their leading `/`, parents before children; each is allowed by
    /// [`rules`].
    pub files: BTreeMap<String, Entry>,
}

/// A path of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Permission bits; 0755 for every directory.
    pub mode: u32,
    /// What it is.
    pub kind: EntryKind,
}

/// What a path of an extension is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Link(String),
    /// A regular file with the content of this file in the scratch directory.
    File(PathBuf),
}

/// Reads the archive, or the directory that holds `blobs`; contents are written into the directory `scratch`,
/// which must be empty.
///
/// # Errors
/// What is wrong with the archive, its manifest or one of its files.
pub fn read(archive: &Path, wanted: Wanted<'_>, scratch: &Path) -> Result<Extension, Problem> {
    extension(tree(archive, wanted, scratch)?)
}

/// The layers of the image laid over each other, with their contents in `scratch`.
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

/// Puts the file `path` (without its leading `/`) of the image at `to`, on the file system of `scratch`, an empty
/// directory.
///
/// # Errors
/// What is wrong with the archive, or that the image has no such file.
pub fn take_file(
    archive: &Path,
    wanted: Wanted<'_>,
    path: &str,
    (to, scratch): (&Path, &Path),
) -> Result<(), Problem> {
    let mut nodes = tree(archive, wanted, scratch)?.into_nodes();
    let Some(Content::File(content)) = nodes.remove(path).map(|node| node.content) else {
        let remedy = "check that this is the image of an installer for this machine's architecture";
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
    })
}

/// Holds the tree against the rules: `manifest.yaml` and `rootfs` at the top, and nothing else.
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
                        "an extension has manifest.yaml and the directory rootfs, and nothing beside them",
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
                            "leave it out: udevd makes devices, programs make sockets",
                        ));
                    }
                };
                rules::check(inner, kind.as_rule(), node.mode)?;
                // Where layers share a directory, the topmost one's mode is everybody's: /usr is to stay /usr.
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
        Problem::new("manifest.yaml", "there is none", remedy)
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
