//! machine.StorageService: how full file systems are.

use corten_api::machine as api;
use corten_api::machine::storage_service_server::StorageService;
use tonic::{Request, Response, Status, async_trait};

use super::files::{absolute, refused};

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
        tokio::task::spawn_blocking(move || statfs(&path))
            .await
            .map_err(|_| Status::internal("measuring the file system failed"))?
            .map(Response::new)
    }
}

/// Sizes in bytes.
fn statfs(path: &str) -> Result<api::StorageServiceStatfsResponse, Status> {
    let path = absolute(path);
    let usage =
        rustix::fs::statvfs(&path).map_err(|error| refused("path", &path, &error.into()))?;
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
