//! Processors: `/proc/loadavg`, `/proc/stat`, `/proc/cpuinfo`.

use corten_api::machine as api;
use corten_base::proc::{self, cpu};
use tonic::Status;

use super::Paths;

pub(super) fn load(paths: &Paths) -> Result<api::LoadAvgResponse, Status> {
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

pub(super) fn system_stat(paths: &Paths) -> Result<api::SystemStatResponse, Status> {
    Ok(api::SystemStatResponse {
        messages: vec![cpu::stat(&paths.proc)?],
    })
}

pub(super) fn info(paths: &Paths) -> Result<api::CpuInfoResponse, Status> {
    let info = api::CpUsInfo {
        metadata: None,
        cpu_info: cpu::processors(&paths.proc)?,
    };
    Ok(api::CpuInfoResponse {
        messages: vec![info],
    })
}
