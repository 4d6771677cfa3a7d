//! Images for tests.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

/// Media type of an uncompressed layer.
pub const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";

/// A member of a layer: path, type, permission bits, content or target.
pub type Member<'a> = (&'a str, EntryType, u32, &'a [u8]);

/// A world-readable file.
#[must_use]
pub fn file<'a>(path: &'a str, content: &'a str) -> Member<'a> {
    node(path, EntryType::Regular, 0o644, content)
}

/// A member of any type.
#[must_use]
pub fn node<'a>(path: &'a str, kind: EntryType, mode: u32, content: &'a str) -> Member<'a> {
    (path, kind, mode, content.as_bytes())
}

/// The bytes of a layer.
#[must_use]
pub fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, kind, mode, content) in members {
        let mut header = Header::new_ustar();
        // Written as bytes, because the crate refuses hostile names.
        let name = &mut header.as_ustar_mut().unwrap().name;
        name.iter_mut()
            .zip(path.as_bytes())
            .for_each(|(to, from)| *to = *from);
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        let data: &[u8] = if kind.is_file() { content } else { b"" };
        if !kind.is_file() && !content.is_empty() {
            header.set_link_name_literal(content).unwrap();
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        tar.append(&header, data).unwrap();
    }
    tar.into_inner().unwrap()
}

/// The digest of a blob, with `sha256:`.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

/// Images to be written as an archive or a content store.
#[derive(Debug, Default)]
pub struct Image {
    /// All blobs: layers, configs, manifests.
    pub blobs: Vec<Vec<u8>>,
    /// Descriptors of the images for the index.
    pub manifests: Vec<Value>,
}

impl Image {
    /// Adds an image for an architecture, made of layers with their media types; returns its digest.
    pub fn add(&mut self, architecture: &str, layers: &[(&str, Vec<u8>)]) -> String {
        let described: Vec<Value> = layers
            .iter()
            .map(|(kind, bytes)| descriptor(kind, bytes))
            .collect();
        // Digests of the unpacked layers; correct for uncompressed ones.
        let unpacked: Vec<String> = layers.iter().map(|(_, bytes)| digest(bytes)).collect();
        let settings = json!({
            "architecture": architecture,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": unpacked},
        });
        let settings = settings.to_string().into_bytes();
        let config = descriptor("application/vnd.oci.image.config.v1+json", &settings);
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": described});
        let manifest = manifest.to_string().into_bytes();
        let mut shown = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        if let Some(shown) = shown.as_object_mut() {
            let platform = json!({"architecture": architecture, "os": "linux"});
            shown.insert("platform".to_owned(), platform);
        }
        self.manifests.push(shown);
        self.blobs
            .extend(layers.iter().map(|(_, bytes)| bytes.clone()));
        self.blobs.push(settings);
        self.blobs.push(manifest.clone());
        digest(&manifest)
    }

    /// An OCI archive of all images.
    #[must_use]
    pub fn archive(&self) -> Vec<u8> {
        let index = json!({"schemaVersion": 2, "manifests": self.manifests}).to_string();
        let mut tar = tar::Builder::new(Vec::new());
        let mut append = |name: String, bytes: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, bytes).unwrap();
        };
        append("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#);
        append("./index.json".into(), index.as_bytes());
        for blob in &self.blobs {
            append(format!("blobs/{}", digest(blob).replace(':', "/")), blob);
        }
        tar.into_inner().unwrap()
    }

    /// Writes all blobs below the directory in the layout of containerd's content store.
    pub fn store(&self, directory: &Path) {
        for blob in &self.blobs {
            let path = directory.join("blobs").join(digest(blob).replace(':', "/"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, blob).unwrap();
        }
    }
}
