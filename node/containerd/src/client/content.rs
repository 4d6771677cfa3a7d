//! Reads manifests and configurations of images from containerd's content store.

use containerd_client::services::v1::ReadContentRequest;
use tonic::{Code, Status};

use super::{Session, client};

/// Size limit of a manifest or an index in bytes (distribution spec, "Pushing Manifests": registries accept at least 4
/// MiB).
const LARGEST_MANIFEST: usize = 4 << 20;

/// Content by its digest; `None` if it is absent or larger than any manifest.
pub(super) async fn content(session: &Session, digest: &str) -> Result<Option<Vec<u8>>, Status> {
    let request = ReadContentRequest {
        digest: digest.to_owned(),
        ..ReadContentRequest::default()
    };
    let answer = client!(session, content_client::ContentClient)
        .read(request)
        .await;
    let mut chunks = match answer {
        Ok(answer) => answer.into_inner(),
        Err(status) if status.code() == Code::NotFound => return Ok(None),
        Err(status) => return Err(status),
    };
    let mut bytes = Vec::new();
    loop {
        match chunks.message().await {
            Ok(Some(chunk)) if bytes.len() + chunk.data.len() <= LARGEST_MANIFEST => {
                bytes.extend_from_slice(&chunk.data);
            }
            Ok(Some(_)) => return Ok(None),
            Ok(None) => return Ok(Some(bytes)),
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(status),
        }
    }
}
