//! System extensions as OCI archives.

use std::fs;
use std::path::Path;

use corten_extension::archive::testing::{Image, Member, PLAIN, file, tar};
use serde_json::json;

use crate::images;

/// The image of an extension with the file `/usr/local/share/NAME`, whose content is its name, and with these members.
/// Returns it with its digest.
#[must_use]
pub fn image(name: &str, more: &[Member<'_>]) -> (Image, String) {
    let manifest = format!("version: v1alpha1\nmetadata: {{name: {name}, version: v1.2.3}}\n");
    let own = format!("rootfs/usr/local/share/{name}");
    let mut members = vec![file("manifest.yaml", &manifest), file(&own, name)];
    members.extend(more);
    let mut image = Image::default();
    let architecture = images::builder_arch().names().oci;
    let digest = image.add(architecture, &[(PLAIN, tar(&members))]);
    (image, digest)
}

/// Writes the archive of an extension without more members than its own file, under a name in a registry if there is
/// one. Returns its digest.
///
/// # Panics
/// The file cannot be written.
pub fn archive(path: &Path, name: &str, image_name: Option<&str>) -> String {
    let (mut image, digest) = image(name, &[]);
    if let (Some(image_name), Some(shown)) = (image_name, image.manifests.first_mut()) {
        shown["annotations"] = json!({"io.containerd.image.name": image_name});
    }
    fs::write(path, image.archive()).expect("an archive");
    digest
}
