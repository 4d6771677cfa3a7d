//! The table of the node's cgroups.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::available_parallelism;

use corten_base::console;
use corten_supervisor::extension::EXTENSIONS_CGROUP;
use corten_supervisor::kubernetes::{ETCD_CGROUP, KUBELET_CGROUP};
use corten_sys::cgroup;

/// Mount point of the hierarchy.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The group of all pods.
pub const PODS: &str = "kubepods";

/// The top-level groups of everything except machined itself.
pub const ALL_BUT_INIT: [&str; 3] = ["system", "podruntime", PODS];

/// machined's own group.
const INIT: &str = "init";

const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// A cgroup, and its memory protection and limit in MiB; 0 keeps the kernel's default.
#[derive(Clone, Copy)]
struct Entry {
    path: &'static str,
    /// Protection from any reclaim.
    min: u64,
    /// Protection from reclaim while other groups have reclaimable memory.
    low: u64,
    /// Memory limit. It applies as it is on a machine with at least `machine` MiB; a smaller machine gets the same
    /// share of its memory. A service that is killed restarts; a node without memory does not recover. 0: unlimited.
    max: u64,
    machine: u64,
    /// Weight in thousandths of a processor, which counts when the processors are busy.
    cpu: u64,
    /// Whether the group's memory may be swapped out. Essential services must not wait for a disk.
    swap: bool,
    tasks: Tasks,
}

/// Limit of the group's processes and threads. Above it, fork fails.
#[derive(Clone, Copy)]
enum Tasks {
    /// No limit beyond that of the parent group.
    Any,
    /// An absolute limit, far above the normal use of a service.
    Most(u64),
    /// A share of the kernel's limit, in percent.
    Part(u64),
}

const ENTRY: Entry = Entry {
    path: "",
    min: 0,
    low: 0,
    max: 0,
    machine: 4,
    cpu: 0,
    swap: false,
    tasks: Tasks::Any,
};

/// The protections together fit a node of 512 MiB several times over: they are the minimum of our own daemons, not
/// their limit. The services of `podruntime` declare their own.
///
/// The task limits leave a tenth of the kernel's tasks free: whichever group forks without end, machined can restart
/// services. Within `system`, the daemons keep a part, whatever containerd and extensions do.
const TABLE: [Entry; 14] = [
    Entry {
        path: INIT,
        min: 24,
        low: 48,
        cpu: 2000,
        ..ENTRY
    },
    Entry {
        path: "system",
        min: 64,
        low: 128,
        cpu: 1500,
        swap: true,
        tasks: Tasks::Part(30),
        ..ENTRY
    },
    Entry {
        // Includes the shims of all pods, with a dozen threads each.
        path: "system/runtime",
        min: 32,
        low: 64,
        cpu: 500,
        tasks: Tasks::Part(15),
        ..ENTRY
    },
    Entry {
        path: EXTENSIONS_CGROUP,
        swap: true,
        tasks: Tasks::Part(10),
        ..ENTRY
    },
    Entry {
        path: "system/udevd",
        min: 4,
        low: 16,
        cpu: 250,
        tasks: Tasks::Most(64),
        ..ENTRY
    },
    Entry {
        path: "system/syslogd",
        min: 8,
        low: 16,
        max: 64,
        cpu: 250,
        tasks: Tasks::Most(64),
        ..ENTRY
    },
    Entry {
        // All connections and calls at their limits fit (`services/apid/src/lib.rs`).
        path: "system/apid",
        min: 8,
        low: 32,
        max: 512,
        cpu: 500,
        tasks: Tasks::Most(64),
        ..ENTRY
    },
    Entry {
        path: "system/registryd",
        low: 8,
        max: 64,
        cpu: 250,
        tasks: Tasks::Most(64),
        ..ENTRY
    },
    Entry {
        path: "system/trustd",
        min: 8,
        low: 16,
        max: 128,
        cpu: 250,
        tasks: Tasks::Most(64),
        ..ENTRY
    },
    Entry {
        // The repair of a file system needs much memory, and runs before most of the node.
        path: "system/tools",
        max: 8192,
        machine: 2,
        cpu: 500,
        swap: true,
        tasks: Tasks::Most(128),
        ..ENTRY
    },
    Entry {
        path: "podruntime",
        cpu: 4000,
        swap: true,
        tasks: Tasks::Part(10),
        ..ENTRY
    },
    Entry {
        path: ETCD_CGROUP,
        cpu: 2000,
        tasks: Tasks::Part(3),
        ..ENTRY
    },
    Entry {
        path: KUBELET_CGROUP,
        cpu: 1000,
        tasks: Tasks::Part(7),
        ..ENTRY
    },
    Entry {
        // The kubelet replaces this limit by the allocatable resources of the node.
        path: PODS,
        swap: true,
        tasks: Tasks::Part(50),
        ..ENTRY
    },
];

/// Resources of the machine.
struct Machine {
    /// Memory in MiB.
    memory: u64,
    /// Limit of processes and threads.
    tasks: u64,
    /// Number of processors.
    cores: u64,
}

impl Entry {
    /// Control files and their values (Documentation/admin-guide/cgroup-v2.rst of the kernel).
    fn settings(&self, machine: &Machine) -> Vec<(&'static str, u64)> {
        let max = self.max.min(machine.memory / self.machine);
        let bytes = [
            ("memory.min", self.min),
            ("memory.low", self.low),
            ("memory.max", max),
        ];
        let bytes = bytes.map(|(file, mebibytes)| (file, mebibytes << 20));
        let tasks = match self.tasks {
            Tasks::Any => 0,
            Tasks::Most(tasks) => tasks,
            Tasks::Part(percent) => machine.tasks.saturating_mul(percent) / 100,
        };
        let weight = weight(self.cpu.min(machine.cores * 1000));
        let others = [("pids.max", tasks), ("cpu.weight", weight)];
        let set = bytes
            .into_iter()
            .chain(others)
            .filter(|(_, value)| *value > 0);
        let swap = (!self.swap).then_some(("memory.swap.max", 0));
        set.chain(swap).collect()
    }
}

/// The cgroup v2 weight, 1 to 10,000, that container runtimes derive from thousandths of a processor. They convert by
/// way of the shares of cgroup v1: 1024 for a processor, from 2 to 262,144. 0 for none, which keeps the kernel's
/// default.
fn weight(thousandths: u64) -> u64 {
    let shares = (thousandths * 1024 / 1000).clamp(2, 262_144);
    if thousandths == 0 {
        0
    } else {
        1 + (shares - 2) * 9999 / 262_142
    }
}

/// Makes the groups of the table, and moves machined into its own. A protection or limit that cannot be set is logged
/// and skipped.
///
/// # Errors
/// A group cannot be made.
pub fn make_all(root: &Path) -> io::Result<()> {
    let machine = Machine {
        memory: memory() >> 20,
        tasks: tasks(Path::new("/proc/sys/kernel")),
        cores: available_parallelism().map_or(1, |cores| cores.get() as u64),
    };
    // A group with processes cannot enable controllers for its children, unless it is the root of the whole hierarchy.
    cgroup::create(root, INIT, &[])?;
    cgroup::enter(root, INIT, std::process::id())?;
    // Where the kernel does not list its controllers, each setting tells.
    let missing = cgroup::missing(root, &CONTROLLERS).unwrap_or_default();
    if !missing.is_empty() {
        console::warn(&format!(
            "this node lacks the cgroup controllers {}: their limits do not apply",
            missing.join(", ")
        ));
    }
    for entry in &TABLE {
        cgroup::create(root, entry.path, &CONTROLLERS)?;
        for (file, value) in entry.settings(&machine) {
            let controller = file.split('.').next().unwrap_or_default();
            if missing.contains(&controller) {
                continue;
            }
            if let Err(error) = cgroup::set(root, entry.path, file, &value.to_string()) {
                console::warn(&format!(
                    "cannot set {file} of cgroup {}: {error}",
                    entry.path
                ));
            }
        }
    }
    Ok(())
}

/// Memory of the machine, in bytes.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// The kernel's limit of processes and threads (proc_sys_kernel(5)); 0 if unknown.
fn tasks(sysctls: &Path) -> u64 {
    let read = |name: &str| {
        let text = fs::read_to_string(sysctls.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let bounds = ["pid_max", "threads-max"].into_iter().filter_map(read);
    bounds.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use corten_supervisor::{ApiMode, TOOLS_CGROUP, table, trustd};

    use super::*;

    fn entry(path: &str) -> &'static Entry {
        let found = TABLE.iter().find(|entry| entry.path == path);
        found.unwrap_or_else(|| panic!("{path}"))
    }

    fn part(path: &str) -> u64 {
        match entry(path).tasks {
            Tasks::Part(percent) => percent,
            Tasks::Any | Tasks::Most(_) => panic!("{path}"),
        }
    }

    #[test]
    fn every_service_has_its_cgroup() {
        for spec in table(ApiMode::Secure).into_iter().chain([trustd()]) {
            assert_eq!(entry(&spec.cgroup).path, spec.cgroup, "{}", spec.id);
        }
        assert!(entry(TOOLS_CGROUP).max > 0);
    }

    #[test]
    fn memory_protections_are_consistent_and_fit_a_small_node() {
        let children: u64 = TABLE
            .iter()
            .filter(|e| e.path.starts_with("system/"))
            .map(|e| e.min)
            .sum();
        let system = entry("system").min;
        assert!(children <= system, "{children} > {system}");
        let top: u64 = TABLE
            .iter()
            .filter(|entry| !entry.path.contains('/'))
            .map(|entry| entry.min)
            .sum();
        assert!(top <= 128, "{top} MiB of 512");
    }

    #[test]
    fn fork_bomb_leaves_machined_and_the_daemons_tasks_for_restarts() {
        let others: u64 = ALL_BUT_INIT.into_iter().map(part).sum();
        assert!(others <= 90, "{others} %");
        assert!(matches!(entry("init").tasks, Tasks::Any));
        let strangers = part("system/runtime") + part(EXTENSIONS_CGROUP);
        // A machine of 512 MiB has about 4,000 tasks.
        let left = (part("system") - strangers) * 4000 / 100;
        let daemons = TABLE.iter().filter(|entry| entry.path.contains('/'));
        for daemon in daemons {
            match daemon.tasks {
                Tasks::Most(most) => assert!(most <= left, "{}", daemon.path),
                Tasks::Part(_) => {}
                Tasks::Any => panic!("{} has no bound", daemon.path),
            }
        }
    }

    #[test]
    fn memory_limit_is_a_share_on_small_machines_and_absolute_on_large_ones() {
        let small = Machine {
            memory: 512,
            tasks: 4000,
            cores: 1,
        };
        let apid = entry("system/apid").settings(&small);
        assert_eq!(
            apid[2..],
            [
                ("memory.max", 128 << 20),
                ("pids.max", 64),
                ("cpu.weight", 20),
                ("memory.swap.max", 0)
            ]
        );
        let tools = entry("system/tools").settings(&small);
        let tools_weight = ("cpu.weight", 20);
        assert_eq!(
            tools,
            [("memory.max", 256 << 20), ("pids.max", 128), tools_weight]
        );
        let pods = entry("kubepods").settings(&small);
        assert_eq!(pods, [("pids.max", 2000)]);
        let large = Machine {
            memory: 64 << 10,
            tasks: 32_768,
            cores: 64,
        };
        let apid = entry("system/apid").settings(&large);
        assert_eq!(apid[2], ("memory.max", 512 << 20));
        let tools = entry("system/tools").settings(&large);
        assert_eq!(tools[0], ("memory.max", 8 << 30));
    }

    #[test]
    fn processors_are_shared_by_weight() {
        // The reference's values for init, system, apid, podruntime.
        assert_eq!([2000, 1500, 500, 4000].map(weight), [79, 59, 20, 157]);
        assert_eq!([0, 1, 10_000_000].map(weight), [0, 1, 10_000]);
        let init = |cores| {
            let machine = Machine {
                memory: 512,
                tasks: 4000,
                cores,
            };
            let settings = entry("init").settings(&machine);
            settings
                .iter()
                .find(|(file, _)| *file == "cpu.weight")
                .map(|(_, weight)| *weight)
        };
        assert_eq!((init(1), init(64)), (Some(39), Some(79)));
    }

    #[test]
    fn essential_services_are_not_swapped_out() {
        let machine = Machine {
            memory: 4096,
            tasks: 4000,
            cores: 2,
        };
        let swapped = TABLE.iter().filter(|entry| {
            let settings = entry.settings(&machine);
            !settings.contains(&("memory.swap.max", 0))
        });
        let swapped: Vec<_> = swapped.map(|entry| entry.path).collect();
        let pods_and_guests = [
            "system",
            EXTENSIONS_CGROUP,
            "system/tools",
            "podruntime",
            "kubepods",
        ];
        assert_eq!(swapped, pods_and_guests);
    }

    #[test]
    fn smaller_task_limit_of_the_kernel_counts() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(tasks(directory.path()), 0);
        put("pid_max", "32768\n");
        put("threads-max", "3941\n");
        assert_eq!(tasks(directory.path()), 3941);
        assert!(tasks(Path::new("/proc/sys/kernel")) > 0);
    }
}
