//! The JSON of an OCI image (Image Specification 1.1): descriptors, configuration, manifest, index.

use std::path::Path;

use corten_steps::calendar;
use corten_steps::error::Result;
use serde_json::{Value, json};

use super::{Release, bytes, checksums, output};

/// The media type of an image's manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an image's configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The media type of an uncompressed layer: its container or its content is compressed.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// The file that marks a directory as an image layout.
pub const LAYOUT: (&str, &[u8]) = ("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);

/// The digest and the size of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

impl Blob {
    /// The blob of bytes in memory.
    pub fn of_bytes(data: &[u8]) -> Self {
        Self {
            sha256: checksums::of_bytes(data),
            size: bytes::size(data.len()),
        }
    }

    /// The blob of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(path: &Path) -> Result<Self> {
        Ok(Self {
            sha256: checksums::of_file(path)?,
            size: output::size_of(path)?,
        })
    }

    /// The digest in OCI's form, `sha256:HEX`.
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }

    /// The descriptor of this content with the media type `kind`.
    pub fn descriptor(&self, kind: &str) -> Value {
        json!({"mediaType": kind, "digest": self.digest(), "size": self.size})
    }
}

/// The configuration of an image of one layer; `run` is the configuration of its containers.
pub fn config(release: &Release, layer: &Blob, run: &Value) -> Vec<u8> {
    let created = calendar::rfc3339(release.epoch);
    json!({
        "created": created,
        "architecture": release.arch.names().oci,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [layer.digest()]},
        "history": [{"created": created, "created_by": "mkimage"}],
    })
    .to_string()
    .into_bytes()
}

/// The manifest of an image of one layer.
pub fn manifest(config: &Blob, layer: &Blob, annotations: &Value) -> Vec<u8> {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(CONFIG),
        "layers": [layer.descriptor(LAYER)],
        "annotations": annotations,
    })
    .to_string()
    .into_bytes()
}

/// The index of a layout: each manifest with the annotations that name it.
pub fn index<'a>(
    release: &Release,
    manifests: impl IntoIterator<Item = (&'a Blob, Value)>,
) -> String {
    let platform = json!({"architecture": release.arch.names().oci, "os": "linux"});
    let manifests = manifests.into_iter().map(|(manifest, annotations)| {
        let mut described = manifest.descriptor(MANIFEST);
        if let Some(fields) = described.as_object_mut() {
            fields.insert("platform".into(), platform.clone());
            fields.insert("annotations".into(), annotations);
        }
        described
    });
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests.collect::<Vec<_>>(),
    })
    .to_string()
}
