//! Lists images with their sizes, and removes images.

use std::collections::HashSet;
use std::time::SystemTime;

use containerd_client::services::v1::{
    DeleteImageRequest, GetImageRequest, Image as Record, ListImagesRequest,
};
use prost_types::Timestamp;
use serde::Deserialize;
use tonic::{Code, Status};

use super::content::content;
use super::transfer::{EXTENSION, INSTALLER};
use super::{Containerd, SYSTEM, Session, client};

/// Depth limit: an index refers to manifests, which refer to blobs.
const DEPTH: u32 = 3;

/// An image in containerd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Name, with tag or digest.
    pub name: String,
    /// Digest of the manifest or index.
    pub digest: String,
    /// Total size of the image's parts on this node, in bytes.
    pub size: i64,
    /// Time of the first arrival on this node.
    pub created: SystemTime,
    /// Time of the last pull or import.
    pub updated: SystemTime,
    /// Labels.
    pub labels: std::collections::HashMap<String, String>,
}

impl Image {
    /// Whether the node has pulled it for an upgrade or an installation. An operator has pulled or imported any other.
    #[must_use]
    pub fn is_pulled_installer(&self) -> bool {
        self.labels.contains_key(INSTALLER)
    }
}

/// The references of a manifest or an index (image spec, "Image Manifest", "Image Index").
#[derive(Debug, Default, Deserialize)]
struct Manifest {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: i64,
}

impl Containerd {
    /// The images of a namespace, sorted by name.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn images(&self, namespace: &'static str) -> Result<Vec<Image>, Status> {
        let session = self.connect(namespace).await?;
        let mut records = client!(session, images_client::ImagesClient)
            .list(ListImagesRequest::default())
            .await?
            .into_inner()
            .images;
        records.sort_by(|a, b| a.name.cmp(&b.name));
        let mut images = Vec::new();
        for record in records {
            images.push(image(&session, record).await?);
        }
        Ok(images)
    }

    /// Whether an image with this digest exists, under any name.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn has_image(&self, namespace: &'static str, digest: &str) -> Result<bool, Status> {
        let session = self.connect(namespace).await?;
        Ok(!with_digest(&session, digest).await?.is_empty())
    }

    /// The image of this name; `None` if it does not exist.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn image(
        &self,
        namespace: &'static str,
        name: &str,
    ) -> Result<Option<Image>, Status> {
        let session = self.connect(namespace).await?;
        let get = GetImageRequest {
            name: name.to_owned(),
        };
        let found = client!(session, images_client::ImagesClient).get(get).await;
        let record = match found {
            Err(status) if status.code() == Code::NotFound => None,
            found => found?.into_inner().image,
        };
        match record {
            Some(record) => Ok(Some(image(&session, record).await?)),
            None => Ok(None),
        }
    }

    /// Whether an image of this name exists with all layers unpacked.
    pub async fn is_unpacked(&self, namespace: &'static str, name: &str) -> bool {
        match self.connect(namespace).await {
            Ok(session) => super::snapshots::is_unpacked(&session, name).await,
            Err(_) => false,
        }
    }

    /// Removes pulled extensions, including those of earlier boots, except for these digests.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn remove_other_extensions(&self, wanted: &[&str]) -> Result<(), Status> {
        let session = self.connect(SYSTEM).await?;
        let records = client!(session, images_client::ImagesClient)
            .list(ListImagesRequest {
                filters: vec![format!("labels.\"{EXTENSION}\"")],
            })
            .await?;
        for record in records.into_inner().images {
            let target = record.target.unwrap_or_default();
            if !wanted.contains(&target.digest.as_str()) {
                self.remove_image(SYSTEM, &record.name).await?;
            }
        }
        Ok(())
    }

    /// Removes all images with this digest, except for these names.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn remove_digest(
        &self,
        namespace: &'static str,
        digest: &str,
        kept: &[String],
    ) -> Result<(), Status> {
        let session = self.connect(namespace).await?;
        for record in with_digest(&session, digest).await? {
            if kept.contains(&record.name) {
                continue;
            }
            match self.remove_image(namespace, &record.name).await {
                Err(status) if status.code() == Code::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Removes an image name; containerd's garbage collection later removes the unused content.
    ///
    /// # Errors
    /// The image does not exist, or containerd does not answer.
    pub async fn remove_image(&self, namespace: &'static str, name: &str) -> Result<(), Status> {
        let session = self.connect(namespace).await?;
        let removed = client!(session, images_client::ImagesClient)
            .delete(DeleteImageRequest {
                name: name.to_owned(),
                sync: true,
                ..DeleteImageRequest::default()
            })
            .await;
        match removed {
            Err(status) if status.code() == Code::NotFound => Err(Status::not_found(format!(
                "no image {name:?} in the namespace {namespace:?}; the image list names all"
            ))),
            other => other.map(|_| ()),
        }
    }
}

async fn with_digest(session: &Session, digest: &str) -> Result<Vec<Record>, Status> {
    let list = ListImagesRequest {
        filters: vec![format!("target.digest=={digest}")],
    };
    let records = client!(session, images_client::ImagesClient)
        .list(list)
        .await?;
    Ok(records.into_inner().images)
}

async fn image(session: &Session, record: Record) -> Result<Image, Status> {
    let target = record.target.unwrap_or_default();
    let root = Descriptor {
        digest: target.digest.clone(),
        size: target.size,
    };
    Ok(Image {
        size: size(session, root).await?,
        digest: target.digest,
        name: record.name,
        created: time(record.created_at),
        updated: time(record.updated_at),
        labels: record.labels,
    })
}

fn time(at: Option<Timestamp>) -> SystemTime {
    at.and_then(|at| SystemTime::try_from(at).ok())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Total size of the content below `root`, each part counted once.
async fn size(session: &Session, root: Descriptor) -> Result<i64, Status> {
    let mut total: i64 = 0;
    let mut seen = HashSet::new();
    let mut level = vec![root];
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        for manifest in level {
            if !seen.insert(manifest.digest.clone()) {
                continue;
            }
            // For a multi-platform image, only this machine's manifest is present.
            let Some(read) = read(session, &manifest.digest).await? else {
                continue;
            };
            total = total.saturating_add(manifest.size);
            for blob in read.config.iter().chain(&read.layers) {
                if seen.insert(blob.digest.clone()) {
                    total = total.saturating_add(blob.size);
                }
            }
            below.extend(read.manifests);
        }
        level = below;
    }
    Ok(total)
}

/// A manifest from the content store; `None` if it is absent or not a manifest.
async fn read(session: &Session, digest: &str) -> Result<Option<Manifest>, Status> {
    let bytes = content(session, digest).await?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}
