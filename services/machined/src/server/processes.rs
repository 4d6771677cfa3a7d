//! Processes, from `/proc`. Times are seconds, sizes bytes.

use std::fs;

use corten_api::machine as api;
use procfs::process::{Process, all_processes_with_root};
use tonic::Status;

use super::Paths;
use crate::proc::cpu::TICKS_PER_SECOND;

pub(super) fn processes(paths: &Paths) -> Result<api::ProcessesResponse, Status> {
    let all = all_processes_with_root(&paths.proc)
        .map_err(|error| Status::internal(format!("cannot list processes: {error}")))?;
    // A process may end while it is looked at: it is simply not listed.
    let mut processes: Vec<_> = all
        .filter_map(|process| describe(paths, &process.ok()?))
        .collect();
    processes.sort_by_key(|process| process.pid);
    Ok(api::ProcessesResponse {
        messages: vec![api::Process {
            metadata: None,
            processes,
        }],
    })
}

fn describe(paths: &Paths, process: &Process) -> Option<api::ProcessInfo> {
    let stat = process.stat().ok()?;
    let page = rustix::param::page_size() as u64;
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 ticks are three million years"
    )]
    let cpu_time = stat.utime.saturating_add(stat.stime) as f64 / TICKS_PER_SECOND;
    let label = fs::read(paths.proc.join(format!("{}/attr/current", stat.pid)));
    Some(api::ProcessInfo {
        pid: stat.pid,
        ppid: stat.ppid,
        state: stat.state.to_string(),
        threads: i32::try_from(stat.num_threads).unwrap_or(i32::MAX),
        cpu_time,
        virtual_memory: stat.vsize,
        resident_memory: stat.rss.saturating_mul(page),
        // Kernel threads have neither an executable nor arguments.
        executable: process
            .exe()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        args: process
            .cmdline()
            .map(|args| args.join(" "))
            .unwrap_or_default(),
        command: stat.comm,
        label: label.map(|bytes| printable(&bytes)).unwrap_or_default(),
    })
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches(['\0', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_them() {
        let reply = processes(&Paths::default()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = reply.messages[0]
            .processes
            .iter()
            .find(|p| p.pid == own)
            .unwrap();
        assert!(found.resident_memory > 0 && found.resident_memory <= found.virtual_memory);
        assert!(found.threads >= 1 && !found.executable.is_empty() && !found.state.is_empty());
    }
}
