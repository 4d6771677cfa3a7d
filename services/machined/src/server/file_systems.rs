//! machine.StorageService: how full file systems are.

use std::path::Path;

use corten_api::machine as api;
use corten_api::machine::storage_service_server::StorageService;
use tonic::{Request, Response, Status, async_trait};

/// The service; it keeps nothing.
#[derive(Debug)]
pub(super) struct FileSystems;

#[async_trait]
impl StorageService for FileSystems {
    async fn statfs(
        &self,
        request: Request<api::StorageServiceStatfsRequest>,
    ) -> Result<Response<api::StorageServiceStatfsResponse>, Status> {
        let path = request.into_inner().path;
        tokio::task::spawn_blocking(move || statfs(Path::new(&path)))
            .await
            .map_err(|_| Status::internal("measuring the file system failed"))?
            .map(Response::new)
    }
}

/// Sizes in bytes.
fn statfs(path: &Path) -> Result<api::StorageServiceStatfsResponse, Status> {
    let usage = rustix::fs::statvfs(path).map_err(|error| {
        let text = format!("path: {}: {error}", path.display());
        if error == rustix::io::Errno::NOENT {
            Status::not_found(text)
        } else {
            Status::failed_precondition(text)
        }
    })?;
    let bytes = |blocks: u64| blocks.saturating_mul(usage.f_frsize);
    Ok(api::StorageServiceStatfsResponse {
        size: bytes(usage.f_blocks),
        used: bytes(usage.f_blocks.saturating_sub(usage.f_bfree)),
        available: bytes(usage.f_bavail),
        inodes: usage.f_files,
        inodes_used: usage.f_files.saturating_sub(usage.f_ffree),
        inodes_free: usage.f_ffree,
    })
}
