//! The cgroups of a cluster: a group below the root of this machine's hierarchy. It has a child for each node, and one
//! for the processes that started the nodes. The groups find and end every process of the cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use corten_sys::cgroup;
use corten_sys::mount_table::{self, Mount};

/// Group of the processes that started the nodes.
const STARTERS: &str = "starters";
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];
/// Time for killed processes to disappear.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// The cgroups of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    root: PathBuf,
    cluster: String,
}

impl Groups {
    /// # Errors
    /// This machine has no cgroup v2 hierarchy.
    pub(super) fn of(cluster: String) -> anyhow::Result<Groups> {
        let root = root(mount_table::read()?).context(
            "this machine has no cgroup v2 mount: run `mount -t cgroup2 none /sys/fs/cgroup`",
        )?;
        Ok(Groups { root, cluster })
    }

    /// Makes the groups of the cluster and of its nodes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn make<'a>(&self, nodes: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        nodes.chain([STARTERS]).try_for_each(|name| self.add(name))
    }

    fn add(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        cgroup::create(&self.root, &path, &CONTROLLERS)
            .with_context(|| format!("making the cgroup {path}"))
    }

    /// Recreates the cgroup of a node that has ended. The groups of its pods outlive it, and no process may enter a
    /// group that gives controllers to others (cgroups(7), "no internal processes").
    ///
    /// # Errors
    /// A process of the node does not end, or the kernel refuses.
    pub(super) fn renew(&self, node: &str) -> anyhow::Result<()> {
        self.end_group(&self.path(node))?;
        self.add(node)
    }

    /// Controllers that nodes need and this machine's hierarchy lacks.
    ///
    /// # Errors
    /// The kernel does not list its controllers.
    pub(super) fn missing(&self) -> anyhow::Result<Vec<&'static str>> {
        let missing = cgroup::missing(&self.root, &CONTROLLERS);
        missing.with_context(|| format!("reading the controllers of {}", self.root.display()))
    }

    /// Whether the cluster has groups.
    pub(super) fn exist(&self) -> bool {
        self.root.join(&self.cluster).exists()
    }

    /// Moves the calling process into the group of the starters.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn enter_starters(&self) -> io::Result<()> {
        cgroup::enter(&self.root, &self.path(STARTERS), 0)
    }

    /// Moves the calling process into the node's group.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn enter_node(&self, node: &str) -> io::Result<()> {
        cgroup::enter(&self.root, &self.path(node), 0)
    }

    /// Whether any process of the node runs.
    pub(super) fn runs(&self, node: &str) -> bool {
        cgroup::is_populated(&self.root, &self.path(node))
    }

    /// Kills all processes of the cluster, and removes its groups. Idempotent: missing groups are fine.
    ///
    /// # Errors
    /// A process does not end, or a group cannot be removed.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        self.end_group(&self.cluster)
    }

    fn end_group(&self, group: &str) -> anyhow::Result<()> {
        let directory = self.root.join(group);
        if !directory.exists() {
            return Ok(());
        }
        cgroup::kill(&self.root, group)
            .with_context(|| format!("killing the processes of {}", directory.display()))?;
        let deadline = Instant::now() + PATIENCE;
        while cgroup::is_populated(&self.root, group) {
            if Instant::now() >= deadline {
                return Err(anyhow!(
                    "processes of {group} do not end: {} lists them; destroy the cluster when they have ended",
                    directory.join("cgroup.procs").display()
                ));
            }
            sleep(PAUSE);
        }
        // The kernel frees the group of a killed process a moment later.
        loop {
            match remove(&directory) {
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    sleep(PAUSE);
                }
                removed => {
                    return removed
                        .with_context(|| format!("removing the cgroup {}", directory.display()));
                }
            }
        }
    }

    fn path(&self, group: &str) -> String {
        format!("{}/{group}", self.cluster)
    }
}

/// Removes a group and its children.
fn remove(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

/// Mount point of cgroup v2.
fn root(mounts: Vec<Mount>) -> Option<PathBuf> {
    let mut mounts = mounts.into_iter();
    let found = mounts.find(|mount| mount.kind == "cgroup2")?;
    Some(PathBuf::from(found.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v2_mount_is_found_beside_v1_mounts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let expected = Some(PathBuf::from("/sys/fs/cgroup/unified"));
        assert_eq!(root(mount_table::parse(mounts)), expected);
        assert_eq!(root(mount_table::parse("proc /proc proc rw 0 0\n")), None);
    }
}
