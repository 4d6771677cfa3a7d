//! Processors: `/proc/loadavg`, `/proc/stat`, `/proc/cpuinfo`.

use corten_api::machine as api;
use corten_base::proc::{self, cpu};
use tonic::Status;

use crate::Paths;

/// The load averages of the last 1, 5 and 15 minutes: processes that run or wait.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn load(paths: &Paths) -> Result<api::LoadAvgResponse, Status> {
    let text = proc::text(&paths.proc, "loadavg")?;
    let mut averages = text
        .split_whitespace()
        .map(|field| field.parse().unwrap_or_default());
    let mut next = || averages.next().unwrap_or_default();
    let load = api::LoadAvg {
        metadata: None,
        load1: next(),
        load5: next(),
        load15: next(),
    };
    Ok(api::LoadAvgResponse {
        messages: vec![load],
    })
}

/// The counters of the kernel since boot: times of processors in seconds, processes, interrupts, context switches.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn system_stat(paths: &Paths) -> Result<api::SystemStatResponse, Status> {
    Ok(api::SystemStatResponse {
        messages: vec![cpu::stat(&paths.proc)?],
    })
}

/// Model, features and frequency of each processor.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn info(paths: &Paths) -> Result<api::CpuInfoResponse, Status> {
    let info = api::CpUsInfo {
        metadata: None,
        cpu_info: cpu::processors(&paths.proc)?,
    };
    Ok(api::CpuInfoResponse {
        messages: vec![info],
    })
}
