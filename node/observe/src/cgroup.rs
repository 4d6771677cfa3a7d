//! Resource usage of a process's cgroup (kernel: Documentation/admin-guide/cgroup-v2.rst).

use std::fs;

use crate::Paths;

/// Resource use of all processes of a cgroup together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory in bytes.
    pub memory: u64,
    /// CPU time of all processors in nanoseconds.
    pub cpu: u64,
}

/// The usage of the cgroup of process `pid` (`memory.current` and `cpu.stat`). `None` if the process has ended, or its
/// cgroup has no such files.
#[must_use]
pub fn usage(paths: &Paths, pid: u32) -> Option<Usage> {
    let cgroup = fs::read_to_string(paths.proc.join(pid.to_string()).join("cgroup")).ok()?;
    let below = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = paths.cgroups.join(below);
    let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let microseconds: u64 = text("cpu.stat")?
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?
        .parse()
        .ok()?;
    Some(Usage {
        memory: text("memory.current")?.trim().parse().ok()?,
        cpu: microseconds.saturating_mul(1000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_usage_comes_from_the_cgroup() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths {
            proc: root.path().join("proc"),
            cgroups: root.path().join("cgroup"),
            ..Paths::default()
        };
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/7/cgroup", "0::/pods/x\n");
        assert_eq!(usage(&paths, 7), None);
        put("cgroup/pods/x/memory.current", "4096\n");
        put("cgroup/pods/x/cpu.stat", "usage_usec 12\nuser_usec 3\n");
        let used = Usage {
            memory: 4096,
            cpu: 12_000,
        };
        assert_eq!(usage(&paths, 7), Some(used));
        assert_eq!(usage(&paths, 8), None);
    }
}
