//! Memory: `/proc/meminfo`.

use corten_api::machine as api;
use corten_base::proc;
use tonic::Status;

use super::Paths;

pub(super) fn memory(paths: &Paths) -> Result<api::MemoryResponse, Status> {
    let memory = api::Memory {
        metadata: None,
        meminfo: Some(proc::memory::info(&paths.proc)?),
    };
    Ok(api::MemoryResponse {
        messages: vec![memory],
    })
}
