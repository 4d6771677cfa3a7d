//! OCI image layouts: container images on disk, as one archive, and as the files of an image cache.
//!
//! Format: OCI Image Layout Specification 1.0. A layout depends on its images alone, never on the
//! release or the date of a build.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_rootfs::tree::{Kind, Node, Tree};
use corten_steps::arch::Arch;
use corten_steps::error::Result;
use serde_json::{Value, json};

use super::Release;
use super::oci::{self, Blob};
use super::tarball::Tarball;

/// The annotation with an image's full name for containerd.
const FULL_NAME: &str = "io.containerd.image.name";
/// The annotation with an image's full name for other tools.
const REFERENCE: &str = "org.opencontainers.image.ref.name";
/// Directory of the blobs in a layout.
const BLOBS: &str = "blobs/sha256";
/// Docker's index in an archive.
const DOCKER: &str = "manifest.json";

/// An OCI image layout being written.
#[derive(Debug)]
pub struct Layout<'a> {
    directory: &'a Path,
    release: Release,
    manifests: Vec<(Blob, Value)>,
    /// The images in the form of Docker's archives.
    docker: Vec<Value>,
}

impl<'a> Layout<'a> {
    /// An empty layout in a directory.
    ///
    /// # Errors
    /// The layout cannot be written.
    pub fn create(directory: &'a Path, arch: Arch) -> Result<Self> {
        fs::create_dir_all(directory.join(BLOBS))
            .with_context(|| format!("creating {}", directory.display()))?;
        Ok(Self {
            directory,
            release: Release {
                version: String::new(),
                arch,
                epoch: 0,
            },
            manifests: Vec::new(),
            docker: Vec::new(),
        })
    }

    /// Adds an image with the files of a tree; `run` is the configuration of its containers.
    ///
    /// # Errors
    /// A file cannot be read, or the layout cannot be written.
    pub fn add(&mut self, name: &str, run: &Value, annotations: &Value, tree: &Tree) -> Result<()> {
        let layer = self.layer(tree)?;
        let config = self.blob(&oci::config(&self.release, &layer, run))?;
        let manifest = self.blob(&oci::manifest(&config, &layer, annotations))?;
        let path = |blob: &Blob| format!("{BLOBS}/{}", blob.sha256);
        self.docker.push(json!({
            "Config": path(&config),
            "RepoTags": [name],
            "Layers": [path(&layer)],
        }));
        self.manifests
            .push((manifest, json!({FULL_NAME: name, REFERENCE: name})));
        Ok(())
    }

    /// Writes the index, and the one that `docker load` reads (Docker Image Specification 1.2, "Combined Image JSON +
    /// Filesystem Changeset Format").
    ///
    /// # Errors
    /// An index cannot be written.
    pub fn finish_for_docker(mut self) -> Result<()> {
        let index = Value::from(std::mem::take(&mut self.docker)).to_string();
        fs::write(self.directory.join(DOCKER), index)
            .with_context(|| format!("writing {DOCKER}"))?;
        self.finish()
    }

    /// Writes the index.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn finish(self) -> Result<()> {
        let manifests = self
            .manifests
            .iter()
            .map(|(manifest, names)| (manifest, names.clone()));
        let index = oci::index(&self.release, manifests);
        for (name, content) in [("index.json", index.as_bytes()), oci::LAYOUT] {
            fs::write(self.directory.join(name), content)
                .with_context(|| format!("writing {name}"))?;
        }
        Ok(())
    }

    fn place(&self, blob: &Blob) -> PathBuf {
        self.directory.join(BLOBS).join(&blob.sha256)
    }

    fn blob(&self, content: &[u8]) -> Result<Blob> {
        let blob = Blob::of_bytes(content);
        let path = self.place(&blob);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        Ok(blob)
    }

    fn layer(&self, tree: &Tree) -> Result<Blob> {
        let partial = self.directory.join("layer.partial");
        let file = fs::File::create(&partial)
            .with_context(|| format!("creating {}", partial.display()))?;
        let mut tar = Tarball::new(BufWriter::new(file), 0);
        for (path, node) in tree.nodes() {
            tar.node(path, node)?;
        }
        tar.finish()?.flush()?;
        let blob = Blob::of_file(&partial)?;
        fs::rename(&partial, self.place(&blob))
            .with_context(|| format!("placing {}", partial.display()))?;
        Ok(blob)
    }
}

/// Writes a layout as one file: an OCI archive for containerd, podman and skopeo.
///
/// # Errors
/// The layout cannot be read.
pub fn archive(layout: &Path, out: impl std::io::Write) -> Result<()> {
    let mut tar = Tarball::new(BufWriter::new(out), 0);
    tar.directory("blobs/")?;
    tar.directory("blobs/sha256/")?;
    let blobs = blobs(layout)?;
    let files = blobs
        .iter()
        .map(|digest| format!("{BLOBS}/{digest}"))
        .chain(["index.json".to_owned()])
        .chain(layout.join(DOCKER).exists().then(|| DOCKER.to_owned()))
        .chain([oci::LAYOUT.0.to_owned()]);
    for name in files {
        let kind = Kind::File(layout.join(&name));
        tar.node(&name, &plain(kind))?;
    }
    Ok(tar.finish()?.flush()?)
}

/// The files of a layout as `registryd` serves them (its `cache.rs`): manifests by name, tag and
/// digest, and blobs.
///
/// # Errors
/// The layout was not written by [`Layout`].
pub fn cache(layout: &Path) -> Result<Tree> {
    let index = fs::read(layout.join("index.json")).context("reading the index of the images")?;
    let index: Value = serde_json::from_slice(&index).context("reading the index of the images")?;
    let mut tree = Tree::default();
    let mut manifests = BTreeSet::new();
    let described = index.get("manifests").and_then(Value::as_array);
    for described in described.into_iter().flatten() {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let digest = text(described.get("digest"));
        let name = text(
            described
                .get("annotations")
                .and_then(|names| names.get(FULL_NAME)),
        );
        let (Some(digest), Some(name)) = (digest, name) else {
            return Err(anyhow::anyhow!("the index has an image without a name"));
        };
        let (repository, tag) = name.rsplit_once(':').context("an image without a tag")?;
        let sha256 = digest.trim_start_matches("sha256:").to_owned();
        let blob = layout.join("blobs/sha256").join(&sha256);
        let place = format!("manifests/{repository}");
        insert(&mut tree, &format!("{place}/reference/{tag}"), &blob)?;
        // The file name has `-` in place of `:`.
        insert(&mut tree, &format!("{place}/digest/sha256-{sha256}"), &blob)?;
        manifests.insert(sha256);
    }
    for sha256 in blobs(layout)? {
        if !manifests.contains(&sha256) {
            let blob = layout.join("blobs/sha256").join(&sha256);
            insert(&mut tree, &format!("blob/sha256-{sha256}"), &blob)?;
        }
    }
    Ok(tree)
}

/// The digests of a layout's blobs, in order.
fn blobs(layout: &Path) -> Result<BTreeSet<String>> {
    let dir = layout.join("blobs/sha256");
    let entries = fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

fn plain(kind: Kind) -> Node {
    let mode = match kind {
        Kind::Directory => 0o755,
        _ => 0o644,
    };
    Node {
        kind,
        mode,
        uid: 0,
        gid: 0,
    }
}

/// Adds a file and its missing parent directories.
fn insert(tree: &mut Tree, path: &str, file: &Path) -> Result<()> {
    for (end, _) in path.match_indices('/') {
        let parent = path.get(..end).unwrap_or_default();
        if tree.get(parent).is_none() {
            tree.insert(parent.to_owned(), plain(Kind::Directory))?;
        }
    }
    tree.insert(path.to_owned(), plain(Kind::File(file.to_owned())))
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
