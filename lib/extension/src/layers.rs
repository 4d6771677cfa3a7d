//! The layers of a running node. Each layer carries its own manifest, so the list matches the mounted layers.
//!
//! A layer that `init` could not mount is not in the root, and so not in the list.

use std::fs;
use std::io;
use std::path::Path;

use crate::{Manifest, Problem};

/// Directory of the layers' manifests (`<layer>.yaml`), without the leading `/`. The rules allow no extension a file
/// there, so none can forge another's manifest.
pub const DIRECTORY: &str = "usr/lib/corten/extensions";

/// One layer, of the root or over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Name of its file in the initramfs, which also gives the order of the layers; or the image it was loaded from.
    pub image: String,
    /// Manifest of the layer.
    pub manifest: Manifest,
}

/// Path of the manifest of the layer in the file `image`, without the leading `/`.
#[must_use]
pub fn manifest_path(image: &str) -> String {
    let stem = image.strip_suffix(".squashfs").unwrap_or(image);
    format!("{DIRECTORY}/{stem}.yaml")
}

/// The layers of the root file system at `root`, lowest first, and the problems of unreadable ones.
///
/// # Errors
/// The directory exists but cannot be read.
pub fn list(root: &Path) -> io::Result<(Vec<Layer>, Vec<Problem>)> {
    let entries = match fs::read_dir(root.join(DIRECTORY)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    paths.sort();
    let (mut layers, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        match read(&path) {
            Ok(manifest) => layers.push(Layer {
                image: format!("{stem}.squashfs"),
                manifest,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    Ok((layers, problems))
}

/// Reads a manifest file.
///
/// # Errors
/// The file cannot be read, or is not a manifest.
pub fn read(path: &Path) -> Result<Manifest, Problem> {
    let bytes = fs::read(path).map_err(|error| {
        let remedy = "the image is damaged: write it again";
        Problem::new(path.display().to_string(), error.to_string(), remedy)
    })?;
    Manifest::parse(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_listed_bottom_first_and_broken_layers_are_reported() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(list(root.path()).unwrap(), Default::default());
        fs::create_dir_all(root.path().join(DIRECTORY)).unwrap();
        for (image, name) in [
            ("01-b.squashfs", "b"),
            ("00-a.squashfs", "a"),
            ("02-c.squashfs", "/"),
        ] {
            let text = format!("version: v1alpha1\nmetadata: {{name: {name}, version: '1'}}\n");
            fs::write(root.path().join(manifest_path(image)), text).unwrap();
        }
        let (layers, problems) = list(root.path()).unwrap();
        let images: Vec<_> = layers.iter().map(|layer| layer.image.as_str()).collect();
        assert_eq!(images, ["00-a.squashfs", "01-b.squashfs"]);
        assert_eq!(layers[1].manifest.metadata.name, "b");
        assert_eq!(problems.len(), 1);
    }
}
