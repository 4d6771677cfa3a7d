//! Finds the processes that own sockets.

use std::collections::HashMap;
use std::path::Path;

use corten_api::machine as api;
use corten_api::machine::connect_record::Process;
use procfs::process::{self, FDTarget, all_processes_with_root};

/// Sets the owner of every socket. If several processes share one, the oldest counts: the others inherited it, if only
/// between fork and exec. A process may end meanwhile.
pub(super) fn name(proc: &Path, records: &mut [api::ConnectRecord]) {
    let mut wanted: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, record) in records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.inode != 0)
    {
        wanted.entry(record.inode).or_default().push(at);
    }
    // Process ids wrap around, so the lowest is not always the oldest.
    let mut processes: Vec<_> = all_processes_with_root(proc)
        .into_iter()
        .flatten()
        .filter_map(|process| {
            let stat = process.ok()?.stat().ok()?;
            Some((stat.starttime, stat.pid, stat.comm))
        })
        .collect();
    processes.sort_unstable();
    for (_, pid, name) in processes {
        if wanted.is_empty() {
            return;
        }
        let process = process::Process::new_with_root(proc.join(pid.to_string()));
        let descriptors = process.and_then(|process| process.fd());
        for descriptor in descriptors.into_iter().flatten().flatten() {
            let FDTarget::Socket(inode) = descriptor.target else {
                continue;
            };
            for at in wanted.remove(&inode).unwrap_or_default() {
                if let Some(record) = records.get_mut(at) {
                    record.process = Some(Process {
                        pid: pid.cast_unsigned(),
                        name: name.clone(),
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn oldest_of_several_processes_owns_a_socket() {
        let proc = tempfile::tempdir().unwrap();
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, own) = own.rsplit_once(") ").unwrap();
        // The process ids wrapped around between the two; only the second owns the other socket.
        for (pid, began, sockets) in [(300, 100, &[77][..]), (5, 900, &[77, 78])] {
            let directory = proc.path().join(pid.to_string());
            fs::create_dir_all(directory.join("fd")).unwrap();
            let mut fields: Vec<_> = own.split(' ').collect();
            let began = began.to_string();
            // starttime is field 22, and the state is field 3 (proc_pid_stat(5)).
            fields[22 - 3] = &began;
            let stat = format!("{pid} (of {pid}) {}", fields.join(" "));
            fs::write(directory.join("stat"), stat).unwrap();
            for (number, inode) in sockets.iter().enumerate() {
                let descriptor = directory.join(format!("fd/{number}"));
                symlink(format!("socket:[{inode}]"), descriptor).unwrap();
            }
        }
        let record = |inode| api::ConnectRecord {
            inode,
            ..api::ConnectRecord::default()
        };
        let mut records = [77, 78, 79, 0].map(record);
        name(proc.path(), &mut records);
        let owners = records.map(|record| record.process.map(|owner| (owner.pid, owner.name)));
        let of = |pid: u32| Some((pid, format!("of {pid}")));
        assert_eq!(owners, [of(300), of(5), None, None]);
    }
}
