//! The services of a node.
//!
//! Owns: what a service is declared by, and in which order services stop (the root of this crate); tools, which run once
//! and end (`tools`); what starts and restarts them (`supervisor`: a pure policy and a thin shell); whether they work
//! (`health`).
//! Never does: start a service that is not declared here or by an extension.
//! Talks to: the kernel (processes, cgroups); syslogd's socket (lines out); containers through a runtime it is given.
//! On a laptop: `cargo test -p corten-services`.

pub mod environment;
pub mod extension;
mod fitted;
pub mod health;
pub mod kubernetes;
pub mod supervisor;
mod table;
mod tools;
pub mod view;

use std::fmt::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use corten_extension::service::NetworkPart;
use corten_sys::child::CapabilitySet;
use corten_sys::sandbox::Access;

use crate::supervisor::limits::Limits;
pub use crate::supervisor::task::Task;
pub use corten_base::mounts::CONTAINERS;
pub(crate) use fitted::fitted;
pub use fitted::runs_in;
pub use table::{containerd, machined, table, trustd};
pub use tools::{Argument, TOOLS_CGROUP, Tool, tool};

/// A service's name in the API and in conditions; also its log's name.
pub type Id = Arc<str>;

/// A service's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its name.
    pub id: Id,
    /// What it is, and what runs it.
    pub runner: Runner,
    /// Services that must be up before this one starts. They are stopped after it.
    pub depends_on: Vec<Id>,
    /// What else must be there before it starts.
    pub needs: Vec<Condition>,
    /// How long it may take to start and stop, how its health is checked, and when it comes back.
    pub limits: Limits,
    /// `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Its cgroup, below the root of the hierarchy.
    pub cgroup: String,
}

/// What runs a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// A child of machined, of a program of the image. It is up when it says so (`supervisor/notify.rs`).
    Process(Process),
    /// A container of containerd's. It is up when it has started.
    Container(Box<Container>),
    /// A task of machined itself. It is up when it says so.
    Task(Task),
    /// Nothing can: somebody declared it wrongly, as this says.
    Unusable(String),
}

/// A program of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// User and group id; no supplementary groups.
    pub uid: u32,
    /// What it may ever do; a user other than root holds exactly these.
    pub capabilities: CapabilitySet,
    /// It can gain nothing through setuid files.
    pub no_new_privs: bool,
    /// Environment on top of [`corten_types::environment::ENVIRONMENT`].
    pub env: Vec<(String, String)>,
    /// The system calls it, and all it starts, may make.
    pub system_calls: SystemCalls,
    /// `None`: it sees everything.
    pub sandbox: Option<Sandbox>,
}

/// The system calls that a process may make ([`corten_sys::seccomp`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCalls {
    /// All.
    All,
    /// What a server on sockets and files needs, and nothing else.
    Server,
    /// What a tool on one device or directory needs, and nothing else.
    Tool,
    /// All but those that work on the machine as a whole.
    Daemon,
    /// The same, and modules can be loaded.
    ModuleLoader,
}

/// A root of its own, read-only, and what the process sees in it beside its own program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and directories of the node.
    pub sees: &'static [Part],
    /// Symbolic links in its root, and where each leads.
    pub links: &'static [(&'static str, &'static str)],
    /// Empty files in its root.
    pub empty: &'static [&'static str],
}

/// A file or directory of the node in a sandbox, at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where it is: absolute.
    pub path: &'static str,
    /// What the process may do with it.
    pub access: Access,
    /// It sees also what the node has mounted below it, and what the node mounts there later.
    pub follows: bool,
}

impl Part {
    const fn new(path: &'static str, access: Access) -> Part {
        Part {
            path,
            access,
            follows: false,
        }
    }

    /// It is read.
    const fn reads(path: &'static str) -> Part {
        Part::new(path, Access::Read)
    }

    /// It is written to.
    const fn writes(path: &'static str) -> Part {
        Part::new(path, Access::Write)
    }

    /// It is a directory of devices, which are opened and made.
    const fn devices(path: &'static str) -> Part {
        Part::new(path, Access::Devices)
    }

    /// It is read, and its programs and libraries are run.
    const fn runs(path: &'static str) -> Part {
        Part::new(path, Access::Run)
    }
}

/// What a loader of modules sees: itself, libkmod and the modules, those of extensions that come later included; what
/// the kernel has loaded; and what the node's files and parameters say about modules.
const MODULE_LOADER: Sandbox = Sandbox {
    sees: &[
        Part {
            follows: true,
            ..Part::runs("/usr")
        },
        Part::reads("/sys"),
        Part::reads("/proc/cmdline"),
        Part::reads("/etc/modprobe.d"),
    ],
    links: &[("/lib", "usr/lib"), ("/lib64", "usr/lib64")],
    empty: &[],
};

/// A container of the node's own. It can gain nothing through setuid files, and never has the system calls
/// that work on the machine as a whole (`containerd/seccomp.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// What it sees as `/`.
    pub root: Root,
    /// It may write to its root; what it writes is lost with the container.
    pub writable_root: bool,
    /// It sees the node's processes, and they can be its.
    pub host_processes: bool,
    /// It may write to `/sys`.
    pub writable_sysfs: bool,
    /// Program in the root, and arguments.
    pub args: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    /// A file of the node with more of them, a line each; read at every start.
    pub environment_file: Option<PathBuf>,
    /// On top of `/proc`, `/dev`, `/sys` and the like.
    pub mounts: Vec<Mount>,
    /// Paths hidden from it, in place of the usual ones.
    pub masked_paths: Option<Vec<String>>,
    /// Paths it cannot write to, in place of the usual ones.
    pub readonly_paths: Option<Vec<String>>,
    /// How its mounts and the node's see each other: a name of mount_namespaces(7) such as `rslave`.
    pub propagation: String,
    /// User and group id.
    pub uid: u32,
    /// What it may ever do.
    pub capabilities: CapabilitySet,
    /// In bytes; it is killed above.
    pub memory_max: Option<i64>,
    /// What it says is shown on the console, too.
    pub log_to_console: bool,
}

/// A container's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// A directory of the node, which the container cannot change; what it writes lies in memory.
    Directory(PathBuf),
    /// The image of this full name, with tag or digest, which was pulled before ([`Condition::Image`]).
    Image(String),
}

/// A mount of a container (OCI runtime spec, config.md, "Mounts").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where in the container: an absolute path.
    pub destination: String,
    /// What is mounted: a path of the node for binds, else what the type wants.
    pub source: String,
    /// The file system; `bind` for a part of the node.
    pub kind: String,
    /// As mount(8) takes them.
    pub options: Vec<String>,
}

/// Something a service needs before it starts that no service gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The files apid serves with in this mode.
    ApiFiles(ApiMode),
    /// trustd's files.
    TrustdFiles,
    /// This path of the node.
    Path(PathBuf),
    /// This part of the network.
    Network(NetworkPart),
    /// The right time.
    Time,
    /// An `ExtensionServiceConfig` of this name in the machine config.
    Configuration(String),
    /// The image of this name, unpacked.
    Image(String),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self {
            Condition::ApiFiles(_) => "the API's certificate",
            Condition::TrustdFiles => "trustd's certificate",
            Condition::Path(path) => return write!(f, "the path {}", path.display()),
            Condition::Network(NetworkPart::Addresses) => "an address",
            Condition::Network(NetworkPart::Connectivity) => "the network to reach others",
            Condition::Network(NetworkPart::Hostname) => "the node's name",
            Condition::Network(NetworkPart::EtcFiles) => "/etc/hosts and /etc/resolv.conf",
            Condition::Time => "the time to be known",
            Condition::Image(name) => return write!(f, "the image {name}"),
            Condition::Configuration(name) => {
                return write!(
                    f,
                    "an ExtensionServiceConfig named {name} in the machine config"
                );
            }
        };
        f.write_str(part)
    }
}

/// Where the cache is mounted.
pub const IMAGE_CACHE: &str = "/system/imagecache";
/// Names the socket to say there that it is up.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// User id of apid, which also owns the API's socket.
pub const APID_UID: u32 = 50;
/// User id of trustd.
pub const TRUSTD_UID: u32 = 51;
/// User id of syslogd.
pub const SYSLOGD_UID: u32 = 52;
/// User id of registryd.
pub const REGISTRYD_UID: u32 = 53;

/// Where apid finds its certificates.
pub const APID_PKI: &str = "/run/apid";
/// Where trustd finds the authority, the token and its certificate.
pub const TRUSTD_PKI: &str = "/run/trustd";
/// machined's gRPC socket.
pub const MACHINED_SOCKET: &str = "/run/machined/machined.sock";
/// syslogd's gRPC socket.
pub const SYSLOGD_SOCKET: &str = "/run/syslogd/syslogd.sock";
/// Where services in a sandbox get their roots, each in its own namespace.
pub const SANDBOX_STAGE: &str = "/run/sandbox";
/// What the config asks of syslogd, as `logging` writes it.
pub const LOGGING_CONFIG: &str = "/run/logging/config.json";
/// syslogd's end of /dev/log, which is a link to it: syslogd may not write to /dev.
pub const DEV_LOG_SOCKET: &str = "/run/syslogd/dev-log";

/// Where `/etc/hosts` and its like lie, which are replaced by renaming.
pub const NAMES: &str = "/run/names";
/// The kubelet's files, which it sees as `/etc/kubernetes`; it writes there, too.
pub const KUBELET_FILES: &str = "/etc/kubernetes";
/// The authorities that the kubelet believes.
pub const KUBELET_PKI: &str = "/etc/kubernetes/pki";
/// What runs containers.
pub const CONTAINERD: &str = "containerd";
/// Where containerd keeps what it pulled (containerd, `docs/content-flow.md`).
pub const CONTENT: &str = "/var/lib/containerd/io.containerd.content.v1.content";
/// containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// machined's own API, which apid passes calls to.
pub const MACHINED: &str = "machined";
/// The id of the image cache's service.
pub const REGISTRYD: &str = "registryd";
/// Services that run only when the machine config asks for them; without them nothing is amiss.
pub const OPTIONAL: [&str; 1] = [REGISTRYD];

/// End after all others, in this order: who asked for the end is told of it, and what is said is heard.
const LAST: [&str; 3] = ["apid", MACHINED, "syslogd"];

/// Whether a service ends after all others that are not like it.
#[must_use]
pub fn outlives_others(id: &str) -> bool {
    LAST.contains(&id)
}

/// How apid serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiMode {
    /// No machine config: anyone may read and hand over a config.
    Maintenance,
    /// Only clients with a certificate of the config's authority.
    Secure,
}

/// The order of an orderly stop: all of one wave at once, and each wave only when the one before has
/// ended. Nothing is stopped while something that depends on it still runs.
#[must_use]
pub fn stop_waves(specs: &[ServiceSpec]) -> Vec<Vec<Id>> {
    let mut left: Vec<&ServiceSpec> = specs.iter().collect();
    let mut waves = Vec::new();
    let rank = |id: &Id| LAST.iter().position(|last| **id == **last);
    while !left.is_empty() {
        let needed = |id: &Id| {
            left.iter()
                .any(|spec| spec.depends_on.contains(id) || rank(&spec.id) < rank(id))
        };
        let ids = || left.iter().map(|spec| spec.id.clone());
        let mut wave: Vec<Id> = ids().filter(|id| !needed(id)).collect();
        if wave.is_empty() {
            // A circle, which only extensions can declare. They stop together rather than never; the node's
            // own services keep their order.
            wave = ids().filter(|id| extension::is_one(id)).collect();
        }
        if wave.is_empty() {
            wave = ids().collect();
        }
        left.retain(|spec| !wave.contains(&spec.id));
        waves.push(wave);
    }
    waves
}

/// The table for people.
#[must_use]
pub fn describe(specs: &[ServiceSpec]) -> String {
    let mut text = String::new();
    for spec in specs {
        let (uid, words) = match &spec.runner {
            Runner::Process(process) => (process.uid, process.argv.join(" ")),
            Runner::Container(container) => (container.uid, container.args.join(" ")),
            Runner::Task(_) => (0, "a task of machined".to_owned()),
            Runner::Unusable(why) => (0, why.clone()),
        };
        let _ = writeln!(
            text,
            "{:<11} uid {:<3} oom {:<5} {:<15} after [{}]  {}",
            spec.id,
            uid,
            spec.oom_score_adj,
            spec.cgroup,
            spec.depends_on.join(", "),
            words,
        );
    }
    text
}
