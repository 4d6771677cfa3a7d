//! The container images of a build: `rootfs/kubernetes/images.toml`, and their layout on disk.
//!
//! An image has one layer: its parts, which are file manifests in the form of
//! [`manifest`](super::manifest), its programs, and its bill of materials. It depends on its pins
//! alone, never on the release or the date of the build.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Remedy as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubernetes::DIRECTORY;
use super::manifest::Manifest;
use super::tree::{Kind, Node, Tree};
use crate::image::Release;
use crate::image::oci::{self, Blob};
use crate::image::tarball::Tarball;

/// The definition of the images, relative to the repository.
pub const IMAGES: &str = "rootfs/kubernetes/images.toml";
/// The purpose of packages that are locked for images alone.
pub const PURPOSE: &str = "images";
/// The annotation with an image's full name for containerd.
const FULL_NAME: &str = "io.containerd.image.name";
/// The annotation with an image's full name for other tools.
const REFERENCE: &str = "org.opencontainers.image.ref.name";
/// The version of this module's build steps; must be raised when the images' content changes.
pub const RECIPE: &str = "1";

/// Every image, and the registry in their names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// A host name that does not exist: only a node's own cache serves these images.
    pub registry: String,
    /// The images in file order.
    #[serde(rename = "image")]
    pub images: Vec<Image>,
}

/// One image.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The name below the registry.
    pub name: String,
    /// The tag.
    pub version: String,
    /// The Go module whose version is the tag; `None` for our own program.
    pub module: Option<String>,
    /// The entrypoint of its containers.
    pub entrypoint: Vec<String>,
    /// Paths of programs; the last component is the program's name.
    pub programs: Vec<String>,
    /// File manifests below `rootfs/kubernetes/images`.
    #[serde(default)]
    pub parts: Vec<String>,
    /// The user of its containers as `uid:gid`; root if absent.
    pub user: Option<String>,
}

impl Images {
    /// Reads `rootfs/kubernetes/images.toml` of a source tree.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn read(source: &Path) -> Result<Self> {
        let path = source.join(IMAGES);
        let remedy = "restore it from version control";
        let text = fs::read_to_string(&path)
            .or_fail(format!("cannot read the list of images {IMAGES}"), remedy)?;
        toml::from_str(&text).or_fail(format!("the list of images {IMAGES} is not valid"), remedy)
    }

    /// The version of an image.
    ///
    /// # Errors
    /// The image does not exist.
    pub fn version(&self, name: &str) -> Result<&str> {
        let found = self.images.iter().find(|image| image.name == name);
        found.map(|image| image.version.as_str()).ok_or_else(|| {
            Failure::new(
                format!("{IMAGES} has no image {name}"),
                "restore it from version control",
            )
        })
    }
}

impl Image {
    /// The manifest of its files, without the bill of materials.
    ///
    /// # Errors
    /// A part is missing, or the combined parts are invalid.
    pub fn manifest(&self, source: &Path, arch: Arch) -> Result<Manifest> {
        let mut text = String::new();
        for part in &self.parts {
            let path = source
                .join(DIRECTORY)
                .join("images")
                .join(format!("{part}.toml"));
            text += &fs::read_to_string(&path).or_fail(
                format!("cannot read the file manifest {}", path.display()),
                format!("correct `parts` of {} in {IMAGES}", self.name),
            )?;
            text.push('\n');
        }
        for path in &self.programs {
            let name = path.rsplit('/').next().unwrap_or(path);
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "[[entry]]\npath = \"{path}\"\nfrom = \"go:{name}\"\nmode = \"0755\"\n\n"
            );
        }
        Manifest::parse(&text, arch).or_fail(
            format!("the files of the image {} are not valid", self.name),
            format!("correct it in {IMAGES}, or its parts"),
        )
    }

    /// OCI's `config` of its containers: entrypoint and user.
    pub fn run(&self) -> Value {
        let mut run = json!({
            "Entrypoint": self.entrypoint,
            "Env": ["PATH=/usr/local/bin:/usr/bin:/opt/bin"],
            "WorkingDir": "/",
            "Labels": self.annotations(),
        });
        if let (Some(fields), Some(user)) = (run.as_object_mut(), &self.user) {
            fields.insert("User".into(), json!(user));
        }
        run
    }

    /// Annotations of its manifest.
    pub fn annotations(&self) -> Value {
        json!({
            "org.opencontainers.image.title": self.name,
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.vendor": "Corten",
        })
    }
}

/// Adds the images' inputs in the repository to a step's key.
///
/// # Errors
/// A file cannot be read.
pub fn key(source: &Path, key: KeyBuilder) -> Result<KeyBuilder> {
    key.add("recipe", RECIPE)
        .add("revision", super::REVISION)
        .file(&source.join(IMAGES))?
        .tree(&source.join(DIRECTORY).join("images"))?
        .tree(&source.join(DIRECTORY).join("etc"))?
        .file(&source.join("rootfs/etc/nsswitch.conf"))
}

/// The programs of a tree, in the form of `rootfs/executables.txt`. An image has no such file of
/// its own: its golden listing shows its programs.
pub fn executables(tree: &Tree) -> String {
    let programs = tree
        .nodes()
        .filter(|(_, node)| matches!(node.kind, Kind::File(_)) && node.mode & 0o111 != 0);
    programs.map(|(path, _)| format!("/{path}\n")).collect()
}

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
#[path = "images_tests.rs"]
mod tests;
