//! Returns the code with which containerd and the shims have started to the kernel. Code of the image is in memory a second
//! time, compressed. Owns: the moment, once for each process.
//! Never: touches other memory than the program files of these processes: the files of pods stay.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_sys::memory::page_out;
use procfs::process::{MMPermissions, MMapPath, Process};
use procfs::{ProcError, ProcResult};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::boot::cgroups::ROOT;

/// containerd and the shims of all pods.
const PROCESSES: &str = "system/runtime/cgroup.procs";
/// Interval at which processes are looked up.
const ROUND: Duration = Duration::from_secs(60);
/// Rounds after which a process has started. Kubernetes starts meanwhile, and uses the same code.
const STARTED: u32 = 5;

/// Returns the code of each process once. Runs until machined ends, or until the kernel refuses.
pub(super) async fn follow() {
    let mut seen = Seen::default();
    loop {
        sleep(ROUND).await;
        let round = spawn_blocking(move || {
            seen.round(&Path::new(ROOT).join(PROCESSES), return_code)
                .map(|()| seen)
        });
        seen = match round.await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => {
                return console::say(&format!(
                    "code that containerd no longer uses stays until memory is short: {error}"
                ));
            }
            Err(_panic) => return,
        };
    }
}

/// The processes of the last round by number and start, with the rounds that have seen them.
#[derive(Debug, Default)]
struct Seen(BTreeMap<(i32, u64), u32>);

impl Seen {
    /// Looks the processes of a `cgroup.procs` up, and returns the code of those that have just started.
    fn round(
        &mut self,
        processes: &Path,
        mut return_code: impl FnMut(&Process) -> io::Result<()>,
    ) -> io::Result<()> {
        let text = match fs::read_to_string(processes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut now = BTreeMap::new();
        for number in text.lines().filter_map(|line| line.parse().ok()) {
            // A process that has ended meanwhile has no code.
            let Ok(process) = Process::new(number) else {
                continue;
            };
            let Ok(stat) = process.stat() else {
                continue;
            };
            let key = (number, stat.starttime);
            let rounds = self
                .0
                .get(&key)
                .map_or(1, |rounds| rounds.saturating_add(1));
            if rounds == STARTED {
                return_code(&process)?;
            }
            now.insert(key, rounds);
        }
        self.0 = now;
        Ok(())
    }
}

/// Returns the pages of a process's program files that no other process has mapped. A process that has ended is no error.
fn return_code(process: &Process) -> io::Result<()> {
    let addresses = match code(process) {
        Err(ProcError::NotFound(_)) => return Ok(()),
        addresses => addresses.map_err(io::Error::other)?,
    };
    for range in addresses {
        match page_out(process.pid, &range) {
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => break,
            done => done?,
        }
    }
    Ok(())
}

/// The addresses of files that a process has mapped and cannot write.
fn code(process: &Process) -> ProcResult<Vec<Range<u64>>> {
    let maps = process.maps()?;
    let is_code = |map: &procfs::process::MemoryMap| {
        matches!(map.pathname, MMapPath::Path(_)) && !map.perms.contains(MMPermissions::WRITE)
    };
    Ok(maps
        .into_iter()
        .filter(is_code)
        .map(|map| map.address.0..map.address.1)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_process_returns_once_after_its_start() {
        let process = Process::myself().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let processes = directory.path().join("cgroup.procs");
        fs::write(&processes, format!("{}\n", process.pid)).unwrap();
        let mut seen = Seen::default();
        let returned: Vec<_> = (0..2 * STARTED)
            .filter(|_| {
                let mut is_returned = false;
                let returns = |_: &Process| {
                    is_returned = true;
                    Ok(())
                };
                seen.round(&processes, returns).unwrap();
                is_returned
            })
            .collect();
        assert_eq!(returned, [STARTED - 1]);
    }

    #[test]
    fn ended_process_is_forgotten() {
        let mut seen = Seen(BTreeMap::from([((i32::MAX, 1), STARTED)]));
        let processes = Path::new("/nonexistent/cgroup.procs");
        seen.round(processes, |_| Ok(())).unwrap();
        assert!(seen.0.is_empty(), "{seen:?}");
    }

    #[test]
    fn code_is_what_the_process_maps_of_files_and_cannot_write() {
        let process = Process::myself().unwrap();
        let code = code(&process).unwrap();
        let is_code = |address: usize| {
            let address = u64::try_from(address).unwrap();
            code.iter().any(|range| range.contains(&address))
        };
        let on_heap = Box::new(1);
        assert!(is_code("a constant".as_ptr().addr()));
        assert!(!is_code((&raw const *on_heap).addr()));
    }
}
