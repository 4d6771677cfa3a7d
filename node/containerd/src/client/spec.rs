//! Converts a container's declaration to a runtime spec (OCI runtime spec 1.2, config.md, config-linux.md).

use std::path::Path;

use corten_supervisor::supervisor::container::Bundle;
use corten_supervisor::{Container, Mount};
use corten_sys::child::CapabilitySet;
use serde_json::{Value, json};

use super::seccomp;

/// Paths masked by default: they reveal or control the whole machine.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];

/// Paths read-only by default.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The runtime spec of a container. Its root is mounted at `rootfs` in containerd's directory for the container. The
/// container has no capability outside `held`, as the runtime refuses a container with more than its own capabilities.
pub(super) fn runtime_spec(bundle: &Bundle, held: CapabilitySet) -> Value {
    let container = &bundle.container;
    let capabilities = container.capabilities & held;
    let capabilities: Vec<String> = capabilities
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect();
    let mut mounts = usual_mounts(container);
    mounts.extend(container.mounts.iter().map(mount));
    let mut namespaces = vec!["mount", "uts"];
    if !container.host_processes {
        namespaces.push("pid");
    }
    // The container serves the node, so it shares the node's network.
    let namespaces = namespaces.iter().map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": "rootfs", "readonly": !container.writable_root },
        "process": {
            "user": { "uid": container.uid, "gid": container.uid },
            "args": container.args,
            "env": bundle.environment,
            "cwd": "/",
            "noNewPrivileges": true,
            "oomScoreAdj": bundle.oom_score_adj,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
                // Needed for users other than root to hold capabilities.
                "inheritable": if container.uid == 0 { &[] } else { &capabilities[..] },
                "ambient": if container.uid == 0 { &[] } else { &capabilities[..] },
            },
        },
        "mounts": mounts,
        "linux": {
            "cgroupsPath": format!("/{}", bundle.cgroup),
            "rootfsPropagation": container.propagation,
            "maskedPaths": paths(container.masked_paths.as_deref(), &MASKED),
            "readonlyPaths": paths(container.readonly_paths.as_deref(), &READ_ONLY),
            "namespaces": namespaces.collect::<Vec<Value>>(),
            "seccomp": seccomp::filter(),
            "resources": resources(container),
        },
    })
}

/// Resource limits. All devices are allowed: the visible device files restrict them.
fn resources(container: &Container) -> Value {
    let mut resources = json!({ "devices": [{ "allow": true, "access": "rwm" }] });
    if let Some(bytes) = container.memory_max
        && let Some(resources) = resources.as_object_mut()
    {
        // The limit includes swap, so the container gets none.
        let memory = json!({ "limit": bytes, "swap": bytes });
        resources.insert("memory".to_owned(), memory);
    }
    resources
}

fn paths(own: Option<&[String]>, usual: &[&str]) -> Value {
    own.map_or_else(|| json!(usual), |own| json!(own))
}

fn mount(mount: &Mount) -> Value {
    let Mount {
        destination,
        source,
        kind,
        options,
    } = mount;
    json!({ "destination": destination, "type": kind, "source": source, "options": options })
}

/// The default mounts (config-linux.md, "Default Filesystems") and a private `/run`, except where the declaration
/// mounts something itself.
fn usual_mounts(container: &Container) -> Vec<Value> {
    let strict = ["nosuid", "noexec", "nodev"];
    let declared = |path: &str| {
        let mut destinations = container.mounts.iter().map(|mount| &*mount.destination);
        destinations.any(|destination| Path::new(path).starts_with(destination))
    };
    let of = |destination: &str, kind: &str, options: &[&str], more: &[&str]| {
        let options = [options, more].concat();
        let mount =
            json!({ "destination": destination, "type": kind, "source": kind, "options": options });
        (!declared(destination)).then_some(mount)
    };
    let sysfs = if container.writable_sysfs { "rw" } else { "ro" };
    let devices = ["nosuid", "noexec", "newinstance"];
    let mounts = [
        of("/proc", "proc", &strict, &[]),
        of("/dev", "tmpfs", &["nosuid"], &["mode=755", "size=65536k"]),
        of(
            "/dev/pts",
            "devpts",
            &devices,
            &["ptmxmode=0666", "mode=0620"],
        ),
        of("/dev/shm", "tmpfs", &strict, &["mode=1777", "size=65536k"]),
        of("/dev/mqueue", "mqueue", &strict, &[]),
        of("/sys", "sysfs", &strict, &[sysfs]),
        of("/run", "tmpfs", &["nosuid"], &["mode=755", "size=65536k"]),
    ];
    mounts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use corten_supervisor::Root;

    use super::*;

    fn bundle(container: Container) -> Bundle {
        Bundle {
            container,
            environment: vec!["A=1".to_owned()],
            oom_score_adj: -600,
            cgroup: "system/extensions/x".to_owned(),
            upper: PathBuf::from("/run/containers/ext-x/upper"),
            work: PathBuf::from("/run/containers/ext-x/work"),
            output: PathBuf::from("/run/containers/ext-x/output"),
        }
    }

    fn strict() -> Container {
        Container {
            root: Root::Directory("/usr/local/lib/containers/x".into()),
            writable_root: false,
            host_processes: false,
            writable_sysfs: false,
            args: vec!["/x".to_owned(), "--now".to_owned()],
            environment: Vec::new(),
            environment_file: None,
            mounts: Vec::new(),
            masked_paths: None,
            readonly_paths: None,
            propagation: "rslave".to_owned(),
            uid: 60,
            capabilities: CapabilitySet::NET_BIND_SERVICE,
            memory_max: Some(64 << 20),
            log_to_console: false,
        }
    }

    fn bind(destination: &str, source: &str) -> Mount {
        Mount {
            destination: destination.to_owned(),
            source: source.to_owned(),
            kind: "bind".to_owned(),
            options: vec!["rbind".to_owned(), "ro".to_owned()],
        }
    }

    /// A declaration with every restriction lifted.
    fn loose() -> Container {
        Container {
            writable_root: true,
            host_processes: true,
            writable_sysfs: true,
            mounts: vec![bind("/host", "/var"), bind("/dev", "/dev")],
            masked_paths: Some(Vec::new()),
            readonly_paths: Some(Vec::new()),
            propagation: "rshared".to_owned(),
            uid: 0,
            capabilities: CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN,
            memory_max: None,
            ..strict()
        }
    }

    /// `UPDATE=1 cargo test -p corten-containerd runtime_specs` rewrites the files.
    #[test]
    fn runtime_specs_match_the_golden_files() {
        for (name, container) in [("strict", strict()), ("loose", loose())] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/client/golden");
            let path = directory.join(format!("{name}.json"));
            // Identical on every architecture.
            let spec = format!(
                "{:#}\n",
                runtime_spec(&bundle(container), CapabilitySet::all())
            )
            .replace("SCMP_ARCH_AARCH64", "SCMP_ARCH_X86_64");
            if std::env::var_os("UPDATE").is_some() {
                fs::create_dir_all(&directory).unwrap();
                fs::write(&path, &spec).unwrap();
            }
            let agreed = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(spec, agreed, "UPDATE=1 writes {}", path.display());
        }
    }

    #[test]
    fn container_gets_no_capability_that_the_node_lacks() {
        let spec = runtime_spec(&bundle(loose()), CapabilitySet::NET_ADMIN);
        let sets = &spec["process"]["capabilities"];
        for set in ["bounding", "effective", "permitted"] {
            assert_eq!(sets[set], json!(["CAP_NET_ADMIN"]), "{set}");
        }
    }

    #[test]
    fn containers_gain_no_privileges_and_have_no_machine_wide_system_calls() {
        for container in [strict(), loose()] {
            let spec = runtime_spec(&bundle(container), CapabilitySet::all());
            assert_eq!(spec["process"]["noNewPrivileges"], true);
            let refused = spec["linux"]["seccomp"]["syscalls"][0]["names"].to_string();
            for call in ["reboot", "kexec_load", "finit_module", "keyctl"] {
                assert!(refused.contains(call), "{refused}");
            }
        }
    }
}
