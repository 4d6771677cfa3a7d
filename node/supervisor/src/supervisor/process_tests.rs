//! The kernel's view of children started from the declarations of the table.

use std::collections::BTreeMap;
use std::fs;

use corten_base::testing::skip;
use corten_sys::child::CapabilitySet;
use corten_sys::process::{Signal, signal};
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::{ApiMode, Part, Runner, SystemCalls, table, trustd};

/// Stands in for the service's files, which exist only on a node.
const DATA: &str = "/var";
const PARTS: &[Part] = &[Part {
    path: DATA,
    access: Access::Read,
    follows: false,
}];
/// Libraries of a dynamically linked program; those of the image are static.
const LIBRARIES: [&str; 3] = ["/usr", "/lib", "/lib64"];
const PROGRAM: &str = "/usr/bin/sleep";

struct Started {
    pid: u32,
    oom_score_adj: i32,
    directory: tempfile::TempDir,
}

impl Started {
    /// A child confined like the service, except for its program and files; `None` if the test's user may not confine.
    fn by(mut spec: ServiceSpec) -> Option<Started> {
        let Runner::Process(declared) = &mut spec.runner else {
            panic!("{spec:?}")
        };
        declared.argv = vec![PROGRAM.to_owned()];
        let serves = declared.system_calls == SystemCalls::Server;
        if let Some(sandbox) = declared.sandbox.as_mut().filter(|_| serves) {
            sandbox.sees = PARTS;
        }
        // The boot creates it on a node.
        fs::create_dir_all("/run/udev").unwrap();
        let process = declared.clone();
        // An unprivileged user may only raise a score, so the test raises it by the same amount.
        if !may_lower_scores() {
            spec.oom_score_adj = spec.oom_score_adj.abs();
        }
        let directory = tempfile::tempdir().unwrap();
        let places = Places {
            cgroups: directory.path().join("cgroup"),
            notify: directory.path().to_owned(),
            stage: directory.path().join("stage"),
            containers: directory.path().join("containers"),
        };
        fs::create_dir_all(places.cgroups.join(&spec.cgroup)).unwrap();
        fs::create_dir(&places.stage).unwrap();
        let procs = places.cgroups.join(&spec.cgroup).join("cgroup.procs");
        fs::write(&procs, "").unwrap();
        fs::write(places.notify_socket(&spec.id), "").unwrap();
        let mut confinement = confinement(&spec, &process, &places).unwrap();
        let libraries = LIBRARIES.map(|path| Bind::new(path, Access::Run));
        if let Some(root) = confinement.root.as_mut().filter(|_| serves) {
            root.binds.splice(..0, libraries);
        }
        let (streams, _) = streams().unwrap();
        let arguments = ["1000".into()];
        let started = child::start(&PROGRAM.into(), &arguments, &[], streams, &confinement);
        // A user who may not create namespaces gets an error instead of an unconfined child.
        if !rustix::process::geteuid().is_root() {
            assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            skip("root, to confine a child");
            return None;
        }
        let pid = started.unwrap();
        assert_eq!(fs::read_to_string(procs).unwrap(), "0", "its cgroup");
        Some(Started {
            pid,
            oom_score_adj: spec.oom_score_adj,
            directory,
        })
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap()
    }

    fn status(&self) -> BTreeMap<String, String> {
        let text = self.read("status");
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        fields
            .map(|(name, value)| (name.to_owned(), words(value)))
            .collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = signal(self.pid, Signal::KILL);
        let pid = nix::unistd::Pid::from_raw(self.pid.cast_signed());
        let _ = nix::sys::wait::waitpid(pid, None);
    }
}

/// Whether the process has `CAP_SYS_RESOURCE` (proc_pid_oom_score_adj(5)).
fn may_lower_scores() -> bool {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    held.contains(CapabilitySet::SYS_RESOURCE)
}

fn process(spec: &ServiceSpec) -> &Process {
    let Runner::Process(process) = &spec.runner else {
        panic!("{spec:?}")
    };
    process
}

/// Services on the network.
fn sandboxed() -> impl Iterator<Item = ServiceSpec> {
    let all = table(ApiMode::Secure).into_iter().chain([trustd()]);
    all.filter(|spec| process(spec).system_calls == SystemCalls::Server)
}

/// Services with a broader filter than a server's.
fn filtered() -> impl Iterator<Item = ServiceSpec> {
    let all = table(ApiMode::Secure).into_iter();
    all.filter(|spec| {
        let calls = process(spec).system_calls;
        matches!(calls, SystemCalls::Daemon | SystemCalls::ModuleLoader)
    })
}

/// Output of a shell script on both outputs, confined like the service.
async fn said(spec: &ServiceSpec, process: &Process, script: &str) -> [String; 2] {
    let directory = tempfile::tempdir().unwrap();
    let places = Places {
        cgroups: directory.path().join("cgroup"),
        notify: directory.path().to_owned(),
        stage: directory.path().join("stage"),
        containers: directory.path().join("containers"),
    };
    fs::create_dir(&places.stage).unwrap();
    fs::write(places.notify_socket(&spec.id), "").unwrap();
    // The boot creates it on a node.
    fs::create_dir_all("/run/udev").unwrap();
    let mut confinement = confinement(spec, process, &places).unwrap();
    (confinement.cgroup_procs, confinement.oom_score_adj) = (None, 0);
    let (streams, outputs) = streams().unwrap();
    let words = ["-c", script].map(OsString::from);
    let path = [("PATH".into(), "/usr/bin".into())];
    let shell = OsString::from("/usr/bin/sh");
    let pid = child::start(&shell, &words, &path, streams, &confinement).unwrap();
    let mut texts = [String::new(), String::new()];
    for (text, mut pipe) in texts.iter_mut().zip(outputs) {
        pipe.read_to_string(text).await.unwrap();
    }
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::wait::waitpid(pid, None).unwrap();
    texts
}

#[tokio::test]
async fn filtered_service_has_only_its_declared_capabilities() {
    let mut seen = Vec::new();
    for spec in filtered() {
        let (id, declared) = (spec.id.clone(), process(&spec).capabilities.bits());
        let Some(started) = Started::by(spec) else {
            return;
        };
        let status = started.status();
        let of = |field: &str| status.get(field).map_or("", String::as_str);
        let user = if *id == *"udevd" {
            "0 0 0 0"
        } else {
            "52 52 52 52"
        };
        for (field, wanted) in [
            ("Uid", user),
            ("Gid", user),
            ("Groups", ""),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert_eq!(of(field), wanted, "{id}: {field}");
        }
        for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let held = u64::from_str_radix(of(field), 16).unwrap();
            // The test's user may have fewer capabilities than the node.
            assert_eq!(held & !declared, 0, "{id}: {field} {held:x}");
        }
        seen.push(id.to_string());
    }
    assert_eq!(seen, ["udevd", "syslogd"]);
}

#[tokio::test]
async fn filtered_system_calls_fail_and_all_others_work() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to confine a child");
    }
    let script = "unshare --net true && echo alone; echo x > /dev/null && true | cat && echo works";
    for spec in filtered() {
        let (id, declared) = (&spec.id, process(&spec));
        let [words, complaint] = said(&spec, declared, script).await;
        assert_eq!(words, "works\n", "{id}: {complaint}");
        assert!(complaint.contains("not implemented"), "{id}: {complaint}");
        // If the capabilities alone would permit the call, the filter is what refuses it.
        if declared.capabilities.contains(CapabilitySet::SYS_ADMIN) {
            let unfiltered = Process {
                system_calls: SystemCalls::All,
                ..declared.clone()
            };
            let [words, complaint] = said(&spec, &unfiltered, script).await;
            assert_eq!(words, "alone\nworks\n", "{id}: {complaint}");
        }
    }
}

#[tokio::test]
async fn sandboxed_service_has_no_capabilities_and_its_own_user() {
    let mut seen = Vec::new();
    for spec in sandboxed() {
        let id = spec.id.clone();
        let oom_score_adj = spec.oom_score_adj;
        let Some(started) = Started::by(spec) else {
            return;
        };
        let status = started.status();
        let uid = match &*id {
            "apid" => "50 50 50 50",
            "trustd" => "51 51 51 51",
            _ => "53 53 53 53",
        };
        let none = "0000000000000000";
        for (field, wanted) in [
            ("Uid", uid),
            ("Gid", uid),
            ("Groups", ""),
            ("CapInh", none),
            ("CapPrm", none),
            ("CapEff", none),
            ("CapBnd", none),
            ("CapAmb", none),
            ("NoNewPrivs", "1"),
            // Value 2 means a filter (proc_pid_status(5)).
            ("Seccomp", "2"),
        ] {
            assert_eq!(
                status.get(field).map(String::as_str),
                Some(wanted),
                "{id}: {field}"
            );
        }
        let score = started.oom_score_adj.to_string();
        assert_eq!(started.read("oom_score_adj").trim(), score, "{id}");
        seen.push((id.to_string(), oom_score_adj));
    }
    let wanted = [("apid", -998), ("registryd", -500), ("trustd", -998)];
    assert_eq!(seen, wanted.map(|(id, score)| (id.to_owned(), score)));
}

#[tokio::test]
async fn sandboxed_service_has_a_sealed_root_with_declared_paths_only() {
    for spec in sandboxed() {
        let id = spec.id.clone();
        let links = process(&spec).sandbox.unwrap().links;
        let Some(started) = Started::by(spec) else {
            return;
        };
        for (path, target) in links {
            let link = format!("/proc/{}/root{path}", started.pid);
            assert_eq!(
                fs::read_link(link).unwrap().as_os_str(),
                *target,
                "{id}: {path}"
            );
        }
        let notify = started.directory.path().join(format!("{id}.sock"));
        let mut wanted: Vec<&str> = LIBRARIES.to_vec();
        wanted.extend(["/", DATA, PROGRAM, notify.to_str().unwrap()]);
        wanted.sort_unstable();
        // proc_pid_mountinfo(5): the fifth field is the mount point, the sixth the options.
        let mounts = started.read("mountinfo");
        let mut places = Vec::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let has = |option: &str| fields[5].split(',').any(|other| other == option);
            assert!(has("ro") && has("nosuid") && has("nodev"), "{id}: {line}");
            let runs = fields[4] == PROGRAM || LIBRARIES.contains(&fields[4]);
            assert_eq!(has("noexec"), !runs, "{id}: {line}");
            // Mounts do not propagate in either direction (mount_namespaces(7)).
            assert!(
                !line.contains("shared:") && !line.contains("master:"),
                "{id}: {line}"
            );
            places.push(fields[4]);
        }
        places.sort_unstable();
        assert_eq!(places, wanted, "{id}");
    }
}

#[tokio::test]
async fn udevd_sees_devices_and_its_database_but_no_node_data() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to confine a child");
    }
    let mut all = table(ApiMode::Secure).into_iter();
    let spec = all.find(|spec| *spec.id == *"udevd").unwrap();
    let later = format!("/dev/corten-test-{}", std::process::id());
    let make = tokio::task::spawn_blocking({
        let later = later.clone();
        move || {
            use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
            std::thread::sleep(std::time::Duration::from_millis(300));
            let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
            mknodat(CWD, &later, kind, mode, makedev(1, 3)).unwrap();
        }
    });
    let script = format!(
        "ls / /etc /proc /run; echo x > /run/udev/{0} && rm /run/udev/{0} && echo keeps; \
         for i in $(seq 600); do test -e {later} && break; sleep 0.1; done; echo x > {later} && echo opens; \
         echo x > /usr/lib/x; ls -d /sys/class /proc/sys/kernel; ls /system /var /run/machined",
        std::process::id()
    );
    let [words, complaint] = said(&spec, process(&spec), &script).await;
    fs::remove_file(&later).unwrap();
    make.await.unwrap();
    // /tmp contains the notify socket.
    let wanted = "/:\ndev\netc\nlib\nlib64\nproc\nrun\nsys\ntmp\nusr\n\n/etc:\nmodprobe.d\n\n\
                  /proc:\ncmdline\nsys\n\n/run:\nudev\nkeeps\nopens\n/proc/sys/kernel\n/sys/class\n";
    assert_eq!(words, wanted, "{complaint}");
    assert!(complaint.contains("/usr/lib/x: Read-only"), "{complaint}");
    for path in ["/system", "/var", "/run/machined"] {
        let absent = format!("'{path}': No such file or directory");
        assert!(complaint.contains(&absent), "{path}: {complaint}");
    }
}
