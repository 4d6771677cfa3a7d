//! Finds mounts that keep a file system in use after its unmount: pods bind a volume in their own mount namespaces, so
//! its unmount succeeds although they hold it. A mount that such a namespace receives by propagation goes with the
//! node's own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

const PROC: &str = "/proc";

/// A line of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)). Paths keep their escapes.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    id: &'a str,
    parent: &'a str,
    /// `MAJOR:MINOR`.
    device: &'a str,
    /// Directory of the file system that is mounted.
    root: &'a str,
    target: &'a str,
    /// Peer group, whose members receive each other's mounts.
    shared: Option<&'a str>,
    /// Peer group whose mounts it receives.
    master: Option<&'a str>,
}

/// Whether the file system at this mount point stays mounted elsewhere when it is unmounted there. Not every user is
/// found, such as a namespace without processes: whoever unmounts must still check that the device is free.
pub(super) fn survive(target: &str) -> bool {
    let proc = Path::new(PROC);
    let Some(own) = table_of(&proc.join("self")) else {
        return false;
    };
    let others = others(proc);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    does_survive(target, &own, &others)
}

/// The mount tables of all other namespaces that have a process.
fn others(proc: &Path) -> Vec<String> {
    let namespace = |process: &Path| -> Option<OsString> {
        let link = fs::read_link(process.join("ns/mnt")).ok()?;
        Some(link.into_os_string())
    };
    let mut seen = BTreeSet::from_iter(namespace(&proc.join("self")));
    let mut tables = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // A process that ends meanwhile has no namespace, or its table cannot be read.
        if is_process
            && let Some(found) = namespace(&entry.path())
            && !seen.contains(&found)
            && let Some(table) = table_of(&entry.path())
        {
            seen.insert(found);
            tables.push(table);
        }
    }
    tables
}

fn table_of(process: &Path) -> Option<String> {
    let bytes = fs::read(process.join("mountinfo")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn does_survive(target: &str, own: &str, others: &[&str]) -> bool {
    let own = parse(own);
    let others: Vec<Vec<Line<'_>>> = others.iter().map(|text| parse(text)).collect();
    let Some(mount) = own.iter().rfind(|line| line.target == target) else {
        return false;
    };
    let place = place(mount, &own);
    let group = parent(mount, &own).and_then(|parent| parent.shared);
    let groups = receivers(group, std::iter::once(&own).chain(&others));
    let goes = |line: &Line<'_>, table: &[Line<'_>]| {
        let receives = parent(line, table).is_some_and(|parent| {
            let mut from = parent.shared.iter().chain(&parent.master);
            from.any(|group| groups.contains(group))
        });
        receives && self::place(line, table) == place
    };
    let is_other = |line: &&Line<'_>| line.device == mount.device;
    let mut here = own.iter().filter(is_other);
    let stays_here = here.any(|line| line.id != mount.id && !goes(line, &own));
    let stays_there = |table: &Vec<Line<'_>>| {
        let mut there = table.iter().filter(is_other);
        there.any(|line| !goes(line, table))
    };
    stays_here || others.iter().any(stays_there)
}

/// The peer groups that receive the mounts and unmounts of this one, itself included.
fn receivers<'a>(
    group: Option<&'a str>,
    tables: impl Iterator<Item = &'a Vec<Line<'a>>> + Clone,
) -> BTreeSet<&'a str> {
    let mut groups = BTreeSet::from_iter(group);
    loop {
        let before = groups.len();
        for line in tables.clone().flatten() {
            if line.master.is_some_and(|master| groups.contains(master)) {
                groups.extend(line.shared);
            }
        }
        if groups.len() == before {
            return groups;
        }
    }
}

fn parent<'a, 'b>(line: &Line<'_>, table: &'b [Line<'a>]) -> Option<&'b Line<'a>> {
    table.iter().find(|other| other.id == line.parent)
}

/// The mount point as a path in the file system of the parent mount.
fn place(line: &Line<'_>, table: &[Line<'_>]) -> Option<String> {
    let parent = parent(line, table)?;
    let below = line
        .target
        .strip_prefix(parent.target.trim_end_matches('/'))?;
    Some(format!("{}{below}", parent.root.trim_end_matches('/')))
}

/// Parses a table and skips malformed lines.
fn parse(text: &str) -> Vec<Line<'_>> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Line<'_>> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    let (id, parent, device) = (next()?, next()?, next()?);
    let (root, target, _options) = (next()?, next()?, next()?);
    let mut found = Line {
        id,
        parent,
        device,
        root,
        target,
        shared: None,
        master: None,
    };
    for tag in fields.take_while(|tag| *tag != "-") {
        match tag.split_once(':') {
            Some(("shared", group)) => found.shared = Some(group),
            Some(("master", group)) => found.master = Some(group),
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "\
        1 0 0:2 / / rw shared:1 - tmpfs tmpfs rw\n\
        20 1 252:5 / /var rw shared:2 - xfs /dev/vda5 rw\n\
        30 20 252:17 / /var/mnt/data rw shared:3 - xfs /dev/vdb1 rw\n";
    const TARGET: &str = "/var/mnt/data";

    fn survives(others: &[&str]) -> bool {
        does_survive(TARGET, NODE, others)
    }

    #[test]
    fn a_bind_in_a_pod_survives_the_unmount() {
        assert!(!survives(&[]));
        let other = "100 99 0:50 / / rw master:9 - overlay overlay rw\n\
                     101 100 252:5 /log /log rw - xfs /dev/vda5 rw\n";
        assert!(!survives(&[other, "", "words\n"]));
        // Only a directory of the volume, and with a mark of the volume's own peer group.
        let pod = format!("{other}102 100 252:17 /a /data rw master:3 - xfs /dev/vdb1 rw\n");
        assert!(survives(&[other, &pod]));
        // The volume is the root of its namespace.
        assert!(survives(&[
            "1 0 252:17 / / rw shared:2 - xfs /dev/vdb1 rw\n"
        ]));
    }

    #[test]
    fn a_bind_in_the_nodes_namespace_survives_the_unmount() {
        let path = "/var/lib/kubelet/pods/x/volume-subpaths/data/app/0";
        let more = format!("40 20 252:17 /sub {path} rw shared:4 - xfs /dev/vdb1 rw\n");
        assert!(does_survive(TARGET, &format!("{NODE}{more}"), &[]));
        assert!(!does_survive("/var/mnt/other", NODE, &[]));
    }

    /// A pod that sees the node's files with `mountPropagation: HostToContainer` loses the mount with the node.
    #[test]
    fn a_propagated_mount_goes_with_the_nodes_own() {
        let pod = |tag: &str| {
            format!(
                "100 99 0:50 / / rw master:9 - overlay overlay rw\n\
                 101 100 252:5 /mnt /host rw {tag}- xfs /dev/vda5 rw\n\
                 102 101 252:17 / /host/data rw master:3 - xfs /dev/vdb1 rw\n"
            )
        };
        assert!(!survives(&[&pod("master:2 ")]));
        assert!(!survives(&[&pod("shared:2 ")]));
        assert!(survives(&[&pod("")]));
        assert!(survives(&[&pod("master:7 ")]));
        // The pod receives from a namespace that receives from the node's.
        let between = "1 0 252:5 / /var rw shared:7 master:2 - xfs /dev/vda5 rw\n";
        assert!(!survives(&[&pod("master:7 "), between]));
        // The same group, but another directory.
        let elsewhere = pod("master:2 ").replace("/host/data", "/host/copy");
        assert!(survives(&[&elsewhere]));
    }

    #[test]
    fn the_tables_of_this_machine_are_read() {
        let own = table_of(&Path::new(PROC).join("self")).unwrap();
        let lines = parse(&own);
        assert!(lines.iter().any(|line| line.target == "/"), "{lines:?}");
        assert!(!survive("/no/such/mount/point"));
        // Every mount of every namespace has its own ID.
        assert!(!others(Path::new(PROC)).contains(&own));
    }
}
