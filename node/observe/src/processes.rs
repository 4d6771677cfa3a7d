//! Lists processes from `/proc`. Times are seconds, sizes bytes.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use corten_api::machine as api;
use corten_base::bulkhead::Bulkhead;
use corten_base::proc::cpu::TICKS_PER_SECOND;
use procfs::process::{Process, all_processes_with_root};
use tonic::Status;

use crate::Paths;

/// Limit of concurrent lists.
const LISTS: usize = 8;
/// Timeout of a list. A machine without KVM needs seconds for thousands of processes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Limit of one command line in bytes; a program may have 6 MiB (execve(2)).
const LONGEST_ARGUMENTS: usize = 4096;
/// Limit of all command lines and paths in bytes, so that ten thousand processes cannot fill process 1's memory.
const MOST_TEXT: usize = 4 << 20;
/// Marks truncated text.
const CUT: &str = "…";

/// Lists processes on threads of its own, because reading a hung process may hang, too. Clones share the threads.
#[derive(Debug, Clone)]
pub struct Processes(Bulkhead);

impl Default for Processes {
    fn default() -> Processes {
        Processes(Bulkhead::new(LISTS, PATIENCE))
    }
}

impl Processes {
    /// All processes by their ids. Command lines are cut at 4 KiB, and left out beyond 4 MiB in total.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED after 20 s, RESOURCE_EXHAUSTED while 8 lists are under way, INTERNAL if procfs is unreadable.
    pub async fn list(&self, paths: &Paths) -> Result<api::ProcessesResponse, Status> {
        let paths = paths.clone();
        self.0.run(move || within(&paths, MOST_TEXT)).await?
    }
}

/// Processes with higher ids have no command line once `room` is used up.
fn within(paths: &Paths, mut room: usize) -> Result<api::ProcessesResponse, Status> {
    let all = all_processes_with_root(&paths.proc)
        .map_err(|error| Status::internal(format!("cannot list processes: {error}")))?;
    // A process that ends meanwhile is not listed.
    let mut processes: Vec<_> = all
        .filter_map(|process| describe(paths, &process.ok()?, &mut room))
        .collect();
    processes.sort_by_key(|process| process.pid);
    Ok(api::ProcessesResponse {
        messages: vec![api::Process {
            metadata: None,
            processes,
        }],
    })
}

fn describe(paths: &Paths, process: &Process, room: &mut usize) -> Option<api::ProcessInfo> {
    let stat = process.stat().ok()?;
    let page = rustix::param::page_size() as u64;
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 ticks are three million years"
    )]
    let cpu_time = stat.utime.saturating_add(stat.stime) as f64 / TICKS_PER_SECOND;
    let directory = paths.proc.join(stat.pid.to_string());
    let label = fs::read(directory.join("attr/current"));
    // Kernel threads have neither an executable nor arguments.
    let executable = process.exe();
    let executable = executable.map(|path| path.display().to_string());
    let executable = fitting(executable.unwrap_or_default(), room);
    let args = fitting(arguments(&directory, *room), room);
    Some(api::ProcessInfo {
        pid: stat.pid,
        ppid: stat.ppid,
        state: stat.state.to_string(),
        threads: i32::try_from(stat.num_threads).unwrap_or(i32::MAX),
        cpu_time,
        virtual_memory: stat.vsize,
        resident_memory: stat.rss.saturating_mul(page),
        executable,
        args,
        command: stat.comm,
        label: label.map(|bytes| printable(&bytes)).unwrap_or_default(),
    })
}

/// The command line, up to the limit.
fn arguments(directory: &Path, room: usize) -> String {
    let most = LONGEST_ARGUMENTS.min(room);
    let mut bytes = Vec::new();
    let read = File::open(directory.join("cmdline")).and_then(|file| {
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit).read_to_end(&mut bytes)
    });
    if read.is_err() {
        return String::new();
    }
    let is_cut = bytes.len() > most;
    bytes.truncate(most);
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    if is_cut { text + CUT } else { text }
}

/// The text if it fits in `room`, else an empty one.
fn fitting(text: String, room: &mut usize) -> String {
    match room.checked_sub(text.len()) {
        Some(left) => {
            *room = left;
            text
        }
        None => {
            *room = 0;
            String::new()
        }
    }
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches(['\0', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn process_list_contains_this_process() {
        let processes = Processes::default();
        let reply = processes.list(&Paths::default()).await.unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = reply.messages[0]
            .processes
            .iter()
            .find(|p| p.pid == own)
            .unwrap();
        assert!(found.resident_memory > 0 && found.resident_memory <= found.virtual_memory);
        assert!(found.threads >= 1 && !found.executable.is_empty() && !found.state.is_empty());
    }

    #[test]
    fn command_lines_are_bounded_individually_and_in_total() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo; read line", "name", &"x".repeat(100_000)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // A process that still starts has an empty command line: `spawn` may return before the kernel has set it.
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let of = |room: usize| within(&Paths::default(), room).unwrap().messages.remove(0);
        let all = of(MOST_TEXT);
        let found = all.processes.iter().find(|p| p.pid == pid).unwrap();
        assert_eq!(found.args.len(), LONGEST_ARGUMENTS + CUT.len());
        let head = "/bin/sh -c echo; read line name xxx";
        assert!(found.args.starts_with(head), "{}", found.args);
        assert!(found.args.ends_with(CUT), "{}", found.args);
        for room in [0, 10, 1000] {
            let processes = of(room).processes;
            assert!(processes.iter().any(|p| p.pid == pid));
            let texts = processes.iter().map(|p| p.executable.len() + p.args.len());
            assert!(texts.sum::<usize>() <= room);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
