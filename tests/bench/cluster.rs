//! A cluster of one node, beside kubeadm on the minimal Debian: the same kernel, containerd, kubelet and images, in the
//! same QEMU. Ours takes the images from its image cache. Debian's containerd pulls them from `registryd` in the machine,
//! which serves the same image cache.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ::tests::chaos::{self, Agent};
use ::tests::client::generate_config_with;
use ::tests::kubectl::Kubectl;
use ::tests::node::{Node, SOON};
use ::tests::{images, workspace};
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qemu::{Accel, DirectBoot, Disk, DiskMode, Machine, Running};
use serde_json::Value;

use crate::coldplug::{self, padded};
use crate::debian::Image;
use crate::document::Section;
use crate::measure::{self, Memory, shared_parameters};
use crate::report::mib;

/// The title of the section.
pub const TITLE: &str = "A cluster of one node, beside kubeadm";
/// Subdirectory of the images for the images with a cache.
const SUBDIRECTORY: &str = "cluster";
const SCRIPT: &str = include_str!("kubeadm.sh");
/// The prefix of a result on the console.
const MARK: &str = "kubeadm: ";
/// The port of the Kubernetes API, in the machine and on this host.
const PORT: u16 = 16443;
const MEMORY_MIB: u32 = 4096;
/// Size of the disk for containers, in MiB.
const DISK_MIB: u64 = 16384;
/// Timeout of a step on an emulated machine and a busy host.
const DEADLINE: Duration = Duration::from_secs(1800);
/// The goal for the memory of what is not Kubernetes' own, in sizes of kubeadm's machine.
const MEMORY_GOAL: f64 = 0.5;
/// The start of the names of the container runtime's processes, which are the same program on both systems.
const RUNTIME: &str = "containerd";
/// Kubernetes' own processes, which both systems run. The kernel shortens a name to 15 bytes.
const KUBERNETES: [&str; 9] = [
    "coredns",
    "etcd",
    "flanneld",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
    "pause",
];

/// The measurements of one system.
#[derive(Debug)]
struct Needed {
    /// Seconds from QEMU's start until the node is Ready.
    ready: f64,
    /// The processes of the idle node.
    memory: Vec<Memory>,
    /// Bytes in use on its disks, with the kernel and without the image cache.
    disk: u64,
}

impl Needed {
    /// PSS in KiB of what is not Kubernetes' own: all of it, only the container runtime's, or only the other.
    fn rest(&self, runtime: Option<bool>) -> u64 {
        let is_meant = |name: &str| {
            !is_kubernetes(name)
                && runtime.is_none_or(|runtime| name.starts_with(RUNTIME) == runtime)
        };
        let rest = self.memory.iter().filter(|one| is_meant(&one.name));
        rest.map(|one| one.pss_kib).sum()
    }
}

fn is_kubernetes(name: &str) -> bool {
    let is_it = |own: &str| [own, own.get(..15).unwrap_or(own)].contains(&name);
    KUBERNETES.into_iter().any(is_it)
}

/// Measures both systems, idle for `idle` seconds after the last pod has started.
pub fn measure(debian: &Image, directory: &Path, idle: u64) -> anyhow::Result<Section> {
    let kubectl = build()?;
    let theirs = kubeadm(debian, directory, &kubectl, idle)?;
    eprintln!("kubeadm: Ready after {:.1} s", theirs.ready);
    let ours = corten(&kubectl, idle)?;
    eprintln!("Corten: Ready after {:.1} s", ours.ready);
    Ok(Section {
        title: TITLE.to_owned(),
        text: text(&ours, &theirs, idle),
    })
}

/// The directory of the images with a cache.
fn out() -> PathBuf {
    images::directory().join(SUBDIRECTORY)
}

/// Builds images and programs; returns kubectl.
pub fn build() -> anyhow::Result<PathBuf> {
    printed("tests/bench/cluster-images", &[])
}

/// The path that a script of the repository prints.
pub fn printed(script: &str, arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(workspace::root().join(script));
    command.args(arguments).env("OUT", out());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| script.to_owned())?;
    ensure!(output.status.success(), "{script}: {}", output.status);
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

/// The parameters of our kernel in an emulated machine.
fn parameters(append: &str) -> String {
    let more = Accel::probe().accel.kernel_parameters();
    [&[append], more].concat().join(" ")
}

fn machine(machine: Machine) -> Machine {
    machine.memory_mib(MEMORY_MIB).cpus(2).forward(PORT, PORT)
}

/// A cluster of one node of ours.
pub struct Cluster {
    /// The node. It has the agent.
    pub node: Node,
    /// Seconds from QEMU's start until the node is Ready.
    ready: f64,
}

/// Starts a node of ours from its raw disk image, bootstrapped as by `make run`; returns after the start of its last pod.
pub fn start(
    name: &str,
    kubectl: &Path,
    more: impl FnOnce(Machine) -> Machine,
) -> anyhow::Result<Cluster> {
    // Builds the client before the clock starts.
    let _client = workspace::cortenctl();
    let image = images::other(SUBDIRECTORY, ".raw");
    let boot = chaos::boot(
        &workspace::target()
            .join("vm")
            .join(format!("{name}-initramfs")),
    );
    let append = parameters(&boot.append);
    let node = Node::start(name, |shape| {
        let disk = Disk::raw(image).mode(DiskMode::Overlay).enlarged(DISK_MIB);
        let shape = machine(shape).second_serial().disk(disk);
        more(shape.direct(DirectBoot { append, ..boot }))
    });
    let patch = workspace::root().join("qemu/cluster.yaml");
    let patch = format!("@{}", patch.display());
    let port = format!("cluster: {{controlPlane: {{localAPIServerPort: {PORT}}}}}");
    let bundled = ["--kubernetes-images", "bundled"];
    let patches = ["--config-patch", &patch, "--config-patch", &port];
    let more = [&bundled[..], &patches].concat();
    generate_config_with(node.configs(), &format!("https://127.0.0.1:{PORT}"), &more);
    node.configure();
    let admin = node.admin();
    node.ask(&admin, &["bootstrap"], SOON);
    let kubeconfig = node.vm.dir().join("kubeconfig");
    let path = kubeconfig.to_str().context("a path")?;
    admin.must(&["kubeconfig", path, "--force", "--merge=false"]);
    let cluster = client(kubeconfig, kubectl);
    let ready = until_ready(&node.vm, &cluster)?;
    node.until("the last pod", DEADLINE, || {
        cluster.available("kube-system", "coredns")
    });
    Ok(Cluster { node, ready })
}

fn corten(kubectl: &Path, idle: u64) -> anyhow::Result<Needed> {
    let Cluster { node, ready } = start("bench-cluster", kubectl, |machine| machine)?;
    std::thread::sleep(Duration::from_secs(idle));
    let memory = measure::memory(&mut Agent::connect(&node.vm));
    let mounts = node.admin().must(&["mounts", "-o", "json"]);
    let installed = images::direct();
    let initrd = installed.initrd.context("the bundle's initramfs")?;
    let system = fs::metadata(installed.kernel)?.len() + fs::metadata(initrd)?.len();
    Ok(Needed {
        ready,
        memory,
        disk: used(&mounts)? + system,
    })
}

/// Bytes in use on `/var`, from the answer of `mounts -o json`.
fn used(mounts: &str) -> anyhow::Result<u64> {
    let all = serde_json::Deserializer::from_str(mounts).into_iter::<Value>();
    let all: Vec<Value> = all.collect::<Result<_, _>>()?;
    let nodes = all.iter().flat_map(|value| match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    });
    let mut mounts = nodes.filter_map(|node| node.get("mounts")?.as_array());
    let of = |mount: &Value, field: &str| mount.get(field).and_then(Value::as_u64);
    let used = mounts.find_map(|mounts| {
        let var = mounts
            .iter()
            .find(|mount| mount.get("mountedOn").is_some_and(|place| place == "/var"))?;
        of(var, "size")?.checked_sub(of(var, "available")?)
    });
    used.context("the use of /var")
}

/// The Debian machine, where the script runs kubeadm.
fn kubeadm(debian: &Image, directory: &Path, kubectl: &Path, idle: u64) -> anyhow::Result<Needed> {
    let ours = images::direct();
    let initrd = ours.initrd.as_deref().context("the bundle's initramfs")?;
    let file = |name: &str| directory.join(name);
    fs::write(
        file("node.raw"),
        padded(coldplug::root_file_system(initrd)?),
    )?;
    fs::write(file("kubeadm.raw"), padded(SCRIPT.as_bytes().to_vec()))?;
    let data = file("data.raw");
    let mut mkfs = Command::new("mkfs.xfs");
    mkfs.args(["-q", "-f", "-d"])
        .arg(format!("file,name={},size={DISK_MIB}m", data.display()));
    ensure!(mkfs.status()?.success(), "mkfs.xfs failed");
    let append = format!(
        "{} root=/dev/vda rootfstype=xfs rw systemd.run=\"/bin/bash /dev/vdc {PORT} {idle}\"",
        parameters(&shared_parameters(&ours.append))
    );
    let boot = DirectBoot {
        kernel: ours.kernel.clone(),
        initrd: None,
        append,
    };
    let vm = machine(measure::machine("bench-kubeadm")).direct(boot);
    let vm = [
        debian.disk.clone(),
        file("node.raw"),
        file("kubeadm.raw"),
        images::other(SUBDIRECTORY, "-image-cache.squashfs"),
        out().join("programs.squashfs"),
        data,
    ]
    .into_iter()
    .fold(vm, |vm, disk| vm.disk(Disk::raw(disk)))
    .start()?;
    vm.wait_console(&format!("{MARK}initialised"), DEADLINE)?;
    let kubeconfig = vm.dir().join("kubeconfig");
    let encoded = results(&vm.console().text(), "kubeconfig").concat();
    fs::write(&kubeconfig, STANDARD.decode(encoded)?)?;
    let ready = until_ready(&vm, &client(kubeconfig, kubectl))?;
    vm.wait_console(&format!("{MARK}done"), DEADLINE)?;
    let console = vm.console().text();
    let memory = results(&console, "memory").into_iter().map(|line| {
        let (pss, name) = line.split_once(' ').context("a line about a process")?;
        let pss_kib = pss.parse()?;
        let name = name.to_owned();
        Ok(Memory { name, pss_kib })
    });
    let disks = results(&console, "disk").into_iter().map(str::parse::<u64>);
    let disks: Vec<u64> = disks.collect::<Result<_, _>>()?;
    ensure!(disks.len() == 2, "{}", vm.report());
    Ok(Needed {
        ready,
        memory: memory.collect::<anyhow::Result<_>>()?,
        disk: disks.iter().sum::<u64>() + fs::metadata(&ours.kernel)?.len(),
    })
}

/// The results of a kind on the console.
fn results<'a>(console: &'a str, kind: &str) -> Vec<&'a str> {
    let result = |line: &'a str| {
        let rest = line.trim().strip_prefix(MARK)?.strip_prefix(kind)?;
        rest.strip_prefix(' ')
    };
    console.lines().filter_map(result).collect()
}

fn client(kubeconfig: PathBuf, kubectl: &Path) -> Kubectl {
    Kubectl::new(kubeconfig)
        .at(format!("https://127.0.0.1:{PORT}"))
        .by(kubectl.to_owned())
}

/// Waits for the node; returns the seconds since QEMU's start.
fn until_ready(vm: &Running, cluster: &Kubectl) -> anyhow::Result<f64> {
    vm.wait_for("a node that is Ready", DEADLINE, || cluster.nodes_ready(1))?;
    Ok(vm.started().elapsed().as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn text(ours: &Needed, theirs: &Needed, idle: u64) -> String {
    let probe = Accel::probe();
    let mut text = format!(
        "The time from the power-on of a machine with 2 CPUs and {MEMORY_MIB} MiB, offline, until its node is Ready. \
         Memory and\ndisk are those {idle} s after the last pod has started. Both boot the same kernel and run the same \
         containerd, kubelet\nand images of Kubernetes, without a leader election. Ours writes its disk at the first start, \
         and takes the images from\nits image cache. The minimal Debian starts `kubeadm init` by itself. Its containerd pulls \
         the images from the same image\ncache (`registryd` in the machine, not counted). Accelerator: {} ({}).\n\n| measure | Corten | kubeadm on Debian 13 | \
         |\n|---|---|---|---|\n",
        probe.accel.option(),
        probe.reason
    );
    let ratio = ours.ready / theirs.ready;
    let _infallible = writeln!(
        text,
        "| power-on to node Ready | {:.1} s | {:.1} s | {ratio:.2} × |",
        ours.ready, theirs.ready
    );
    for (what, of) in [
        ("PSS of what is not Kubernetes' own", None),
        ("of it, containerd and its shims", Some(true)),
        ("of it, the rest", Some(false)),
    ] {
        let [ours, theirs] = [ours, theirs].map(|needed| mib(needed.rest(of) * 1024));
        let ratio = ours / theirs;
        // The goal is none of the promises: both run the same containerd, which is most of it.
        let verdict = match of {
            None if ratio > MEMORY_GOAL => format!("{ratio:.2} ×; the goal is {MEMORY_GOAL} ×"),
            _ => format!("{ratio:.2} ×"),
        };
        let _infallible = writeln!(
            text,
            "| {what} | {ours:.1} MiB | {theirs:.1} MiB | {verdict} |"
        );
    }
    let _infallible = writeln!(
        text,
        "| disk in use, without the image cache | {:.1} MiB | {:.1} MiB | {:.2} × |",
        mib(ours.disk),
        mib(theirs.disk),
        ours.disk as f64 / theirs.disk as f64
    );
    text.push_str("\nNot Kubernetes' own, each with its PSS in MiB:\n\n");
    for (name, needed) in [("Corten", ours), ("Debian", theirs)] {
        let _infallible = writeln!(text, "- {name}: {}", programs(&needed.memory));
    }
    text
}

/// The programs that are not Kubernetes' own, the largest first, each with its PSS in MiB and the number of its
/// processes.
fn programs(memory: &[Memory]) -> String {
    let mut programs: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for one in memory {
        if !is_kubernetes(&one.name) && one.pss_kib > 0 {
            let (processes, pss) = programs.entry(&one.name).or_default();
            *processes += 1;
            *pss += one.pss_kib;
        }
    }
    let mut programs: Vec<_> = programs.into_iter().collect();
    programs.sort_by_key(|(_, (_, pss))| Reverse(*pss));
    let lines = programs.iter().map(|(name, (processes, pss))| {
        let count = match processes {
            1 => String::new(),
            several => format!("{several} × "),
        };
        format!("{count}{name} {:.1}", mib(pss * 1024))
    });
    lines.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(ready: f64, processes: &[(&str, u64)]) -> Needed {
        let memory = processes.iter().map(|(name, mib)| Memory {
            name: (*name).to_owned(),
            pss_kib: mib * 1024,
        });
        Needed {
            ready,
            memory: memory.collect(),
            disk: 1 << 30,
        }
    }

    #[test]
    fn memory_of_kubernetes_itself_is_not_compared() {
        let ours = needed(100.0, &[("init", 20), ("kubelet", 70), ("containerd", 40)]);
        let theirs = needed(
            200.0,
            &[("systemd", 30), ("kube-controller", 90), ("containerd", 40)],
        );
        let text = text(&ours, &theirs, 30);
        assert!(
            text.contains("own | 60.0 MiB | 70.0 MiB | 0.86 ×; the goal is 0.5 × |"),
            "{text}"
        );
        assert!(
            text.contains("shims | 40.0 MiB | 40.0 MiB | 1.00 × |"),
            "{text}"
        );
        assert!(
            text.contains("rest | 20.0 MiB | 30.0 MiB | 0.67 × |"),
            "{text}"
        );
        assert!(text.contains("| 100.0 s | 200.0 s | 0.50 × |"), "{text}");
    }

    #[test]
    fn processes_of_one_program_are_one_entry() {
        let shim = ("containerd-shim", 6);
        let node = needed(1.0, &[shim, ("pause", 1), ("init", 9), shim]);
        let programs = programs(&node.memory);
        assert_eq!(programs, "2 × containerd-shim 12.0, init 9.0");
    }

    #[test]
    fn results_are_lines_of_their_kind() {
        let console = "kubeadm: disk 5\r\nnoise\nkubeadm: memory 7 systemd\nkubeadm: disks 6\n";
        assert_eq!(results(console, "disk"), ["5"]);
        assert_eq!(results(console, "memory"), ["7 systemd"]);
    }

    #[test]
    fn use_of_var_is_read_from_the_answer_of_a_node() {
        let mounts = r#"{"node": "n", "mounts": [{"mountedOn": "/", "size": 1, "available": 0},
            {"mountedOn": "/var", "size": 100, "available": 40}]}"#;
        assert_eq!(used(mounts).unwrap(), 60);
        assert_eq!(used(&format!("[{mounts}]")).unwrap(), 60);
        used("{}").unwrap_err();
    }
}
