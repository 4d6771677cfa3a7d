//! Which process has which socket: `/proc/<pid>/fd/<n>` is a link to `socket:[<inode>]`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use corten_api::machine as api;
use corten_api::machine::connect_record::Process;

/// Names the owner of every socket that has one. Of several, it is the one with the lowest number, which is
/// the oldest as a rule. A process may end while it is looked at.
pub(super) fn name(proc: &Path, records: &mut [api::ConnectRecord]) {
    let mut wanted: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, record) in records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.inode != 0)
    {
        wanted.entry(record.inode).or_default().push(at);
    }
    let numbers = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        if wanted.is_empty() {
            return;
        }
        let process = proc.join(pid.to_string());
        for descriptor in fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let Some(found) = socket(&descriptor.path()).and_then(|inode| wanted.remove(&inode))
            else {
                continue;
            };
            let command = fs::read(process.join("comm")).unwrap_or_default();
            let owner = Process {
                pid,
                name: String::from_utf8_lossy(&command).trim_end().to_owned(),
            };
            for at in found {
                if let Some(record) = records.get_mut(at) {
                    record.process = Some(owner.clone());
                }
            }
        }
    }
}

/// The inode of a socket.
fn socket(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}
