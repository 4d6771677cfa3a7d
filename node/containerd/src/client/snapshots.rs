//! Root file system of a container from an image: a writable snapshot over the image's layers.

use containerd_client::services::v1::GetImageRequest;
use containerd_client::services::v1::snapshots::{
    PrepareSnapshotRequest, RemoveSnapshotRequest, StatSnapshotRequest,
};
use containerd_client::types::Mount;
use oci_spec::image::{Arch, ImageConfiguration, ImageIndex, ImageManifest};
use sha2::{Digest as _, Sha256};
use tonic::{Code, Response, Status};

use super::content::content;
use super::{Session, client};

/// Snapshotter that mounts layer directories over each other.
pub(super) const SNAPSHOTTER: &str = "overlayfs";

/// Creates a writable snapshot named `key` over the layers of an unpacked image, and returns its mounts. It replaces an
/// existing snapshot of this name.
pub(super) async fn prepare(
    session: &Session,
    key: &str,
    image: &str,
) -> Result<Vec<Mount>, Status> {
    let parent = chain(&layers(session, image).await?);
    match discard(session, key).await {
        Err(status) if status.code() != Code::NotFound => return Err(status),
        _ => {}
    }
    let request = PrepareSnapshotRequest {
        snapshotter: SNAPSHOTTER.to_owned(),
        key: key.to_owned(),
        parent,
        ..PrepareSnapshotRequest::default()
    };
    let prepared = client!(session, snapshots::snapshots_client::SnapshotsClient)
        .prepare(request)
        .await;
    match prepared {
        Err(status) if status.code() == Code::NotFound => {
            Err(Status::failed_precondition(format!(
                "the image {image} is not unpacked; the node pulls it again before the next start"
            )))
        }
        other => other.map(|answer| answer.into_inner().mounts),
    }
}

/// Whether the snapshot of all the image's layers exists.
pub(super) async fn is_unpacked(session: &Session, image: &str) -> bool {
    let Ok(layers) = layers(session, image).await else {
        return false;
    };
    let request = StatSnapshotRequest {
        snapshotter: SNAPSHOTTER.to_owned(),
        key: chain(&layers),
    };
    let found = client!(session, snapshots::snapshots_client::SnapshotsClient)
        .stat(request)
        .await;
    found.is_ok()
}

/// Removes the snapshot of this name; fails with `NOT_FOUND` if there is none.
pub(super) async fn discard(session: &Session, key: &str) -> Result<Response<()>, Status> {
    let request = RemoveSnapshotRequest {
        snapshotter: SNAPSHOTTER.to_owned(),
        key: key.to_owned(),
    };
    client!(session, snapshots::snapshots_client::SnapshotsClient)
        .remove(request)
        .await
}

/// Digests of the uncompressed layers, the lowest first (image spec, config.md, `rootfs.diff_ids`).
async fn layers(session: &Session, image: &str) -> Result<Vec<String>, Status> {
    let broken = |what: &str| {
        Status::failed_precondition(format!("the image {image} cannot be used: {what}"))
    };
    let get = GetImageRequest {
        name: image.to_owned(),
    };
    let record = client!(session, images_client::ImagesClient).get(get).await;
    let record = match record {
        Err(status) if status.code() == Code::NotFound => {
            return Err(broken(
                "it is not on this node, which pulls it again before the next start",
            ));
        }
        other => other?.into_inner().image,
    };
    let digest = record
        .and_then(|record| record.target)
        .map(|target| target.digest)
        .ok_or_else(|| broken("containerd has no content for it"))?;
    let bytes = content(session, &digest).await?;
    let bytes = bytes.ok_or_else(|| broken("its manifest is missing"))?;
    let manifest = match ImageManifest::from_reader(&*bytes) {
        Ok(manifest) => manifest,
        Err(_) => {
            let index = ImageIndex::from_reader(&*bytes);
            let index = index.map_err(|_| broken("its content is neither manifest nor index"))?;
            let ours = index.manifests().iter().find(|descriptor| {
                let platform = descriptor.platform().as_ref();
                platform.is_some_and(|platform| *platform.architecture() == architecture())
            });
            let ours = ours.ok_or_else(|| broken("it has no manifest for this architecture"))?;
            let bytes = content(session, ours.digest().as_ref()).await?;
            let bytes = bytes.ok_or_else(|| broken("its manifest is missing"))?;
            ImageManifest::from_reader(&*bytes).map_err(|_| broken("its manifest is malformed"))?
        }
    };
    let bytes = content(session, manifest.config().digest().as_ref()).await?;
    let bytes = bytes.ok_or_else(|| broken("its configuration is missing"))?;
    let configuration = ImageConfiguration::from_reader(&*bytes);
    let configuration = configuration.map_err(|_| broken("its configuration is malformed"))?;
    Ok(configuration.rootfs().diff_ids().clone())
}

fn architecture() -> Arch {
    match corten_api::ARCH {
        "arm64" => Arch::ARM64,
        _ => Arch::Amd64,
    }
}

/// Name of the snapshot of all layers (image spec, config.md, "Layer ChainID").
fn chain(layers: &[String]) -> String {
    let mut layers = layers.iter();
    let first = layers.next().cloned().unwrap_or_default();
    layers.fold(first, |below, layer| {
        let digest = Sha256::digest(format!("{below} {layer}"));
        format!("sha256:{}", hex::encode(digest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_id_covers_all_layers() {
        let layers = ["sha256:aa", "sha256:bb", "sha256:cc"].map(str::to_owned);
        assert_eq!(chain(&layers[..1]), "sha256:aa");
        // `printf 'sha256:aa sha256:bb'
        // sha256sum`, then the same with the next layer.
        assert_eq!(
            chain(&layers[..2]),
            "sha256:b68ad689d6d1ec110ea1c13617437ad6f3766d4b3b309f6a603a222e07a0164f"
        );
        assert_eq!(
            chain(&layers),
            "sha256:ced946a3b9b1c697ead0fa9bf9ad36e03198566077f3950076f64a4760acde1b"
        );
    }
}
