//! Memory: `/proc/meminfo`.

use corten_api::machine as api;
use corten_base::proc;
use tonic::Status;

use crate::Paths;

/// The kernel's account of memory, in KiB as in `/proc/meminfo`.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn memory(paths: &Paths) -> Result<api::MemoryResponse, Status> {
    let memory = api::Memory {
        metadata: None,
        meminfo: Some(proc::memory::info(&paths.proc)?),
    };
    Ok(api::MemoryResponse {
        messages: vec![memory],
    })
}
