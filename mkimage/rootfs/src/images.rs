//! The container images of a build: `rootfs/kubernetes/images.toml`.
//!
//! An image has one layer: its parts (file manifests as in [`manifest`](super::manifest)), its programs, its bill of
//! materials and licence texts. It depends on its pins alone, never on the release or the date of the build.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Remedy as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubernetes::DIRECTORY;
use super::manifest::Manifest;
use super::tree::{Kind, Tree};

/// The definition of the images, relative to the repository.
pub const IMAGES: &str = "rootfs/kubernetes/images.toml";
/// The purpose of packages that are locked for images alone.
pub const PURPOSE: &str = "images";
/// The version of this module's build steps; must be raised when the images' content changes.
pub const RECIPE: &str = "2";

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

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
