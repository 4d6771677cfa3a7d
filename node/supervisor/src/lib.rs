//! The services of a node.
//!
//! Owns: their declarations and stop order, tools, the supervisor (a pure policy in a thin shell), health checks.
//! Never: starts a service that neither this crate nor an extension declares.

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

/// Id of a service in the API and in conditions; also the name of its log.
pub type Id = Arc<str>;

/// Declaration of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Id of the service.
    pub id: Id,
    /// Kind of the service and its settings.
    pub runner: Runner,
    /// Services that must be up before this one starts. They stop after it.
    pub depends_on: Vec<Id>,
    /// Other conditions that must hold before it starts.
    pub needs: Vec<Condition>,
    /// Timeouts, health check and restart policy.
    pub limits: Limits,
    /// Value of `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Cgroup, relative to the root of the hierarchy.
    pub cgroup: String,
}

/// Kind of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// A program of the image as a child process of machined. The service is up when it notifies so
    /// (`supervisor/notify.rs`).
    Process(Process),
    /// A container of containerd. The service is up once the container has started.
    Container(Box<Container>),
    /// A task inside machined. The service is up when the task reports so.
    Task(Task),
    /// An invalid declaration, with the reason.
    Unusable(String),
}

/// A program of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// User and group id; no supplementary groups.
    pub uid: u32,
    /// Upper limit of its capabilities; a user other than root holds exactly these.
    pub capabilities: CapabilitySet,
    /// Whether setuid files give it no privileges (`no_new_privs`).
    pub no_new_privs: bool,
    /// Environment on top of [`corten_types::environment::ENVIRONMENT`].
    pub env: Vec<(String, String)>,
    /// System calls permitted to it and all its descendants.
    pub system_calls: SystemCalls,
    /// Its sandbox; `None` shows it the whole node.
    pub sandbox: Option<Sandbox>,
}

/// System call filter of a process ([`corten_sys::seccomp`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCalls {
    /// No filter.
    All,
    /// Only the calls that a server on sockets and files needs.
    Server,
    /// Only the calls that a tool on one device or directory needs.
    Tool,
    /// All calls but those that affect the machine as a whole.
    Daemon,
    /// As `Daemon`, and kernel modules can be loaded.
    ModuleLoader,
}

/// A private, read-only root with the process's own program and a few paths of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and directories of the node.
    pub sees: &'static [Part],
    /// Symbolic links in the root, as path and target.
    pub links: &'static [(&'static str, &'static str)],
    /// Empty files in the root.
    pub empty: &'static [&'static str],
}

/// A file or directory of the node, at the same path in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Absolute path.
    pub path: &'static str,
    /// Permitted access.
    pub access: Access,
    /// Whether the process also sees mounts below the path, including later ones.
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

    /// A path that the process reads.
    const fn reads(path: &'static str) -> Part {
        Part::new(path, Access::Read)
    }

    /// A path that the process writes.
    const fn writes(path: &'static str) -> Part {
        Part::new(path, Access::Write)
    }

    /// A directory in which the process opens and creates device nodes.
    const fn devices(path: &'static str) -> Part {
        Part::new(path, Access::Devices)
    }

    /// A path that the process reads, and from which it executes programs and libraries.
    const fn runs(path: &'static str) -> Part {
        Part::new(path, Access::Run)
    }
}

/// Sandbox of module loaders: the program, libkmod, and the modules, including those of extensions that appear later.
/// It also has the kernel's list of loaded modules, and the node's files and parameters about modules.
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

/// A container of the node itself. It gains no privileges through setuid files and never has system calls that affect
/// the machine as a whole (`containerd/seccomp.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Root file system.
    pub root: Root,
    /// Whether it may write to its root; the writes are lost with the container.
    pub writable_root: bool,
    /// Whether it shares the node's PID namespace.
    pub host_processes: bool,
    /// Whether it may write to `/sys`.
    pub writable_sysfs: bool,
    /// Program in the root, and arguments.
    pub args: Vec<String>,
    /// Environment variables: `NAME=value`.
    pub environment: Vec<String>,
    /// A file of the node with more variables, one per line; read at every start.
    pub environment_file: Option<PathBuf>,
    /// Mounts in addition to `/proc`, `/dev`, `/sys` and the like.
    pub mounts: Vec<Mount>,
    /// Hidden paths; replaces the default list.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths; replaces the default list.
    pub readonly_paths: Option<Vec<String>>,
    /// Mount propagation of the root (mount_namespaces(7)), such as `rslave`.
    pub propagation: String,
    /// User and group id.
    pub uid: u32,
    /// Upper limit of its capabilities.
    pub capabilities: CapabilitySet,
    /// Memory limit in bytes, enforced by the OOM killer.
    pub memory_max: Option<i64>,
    /// Whether its output also goes to the console.
    pub log_to_console: bool,
}

/// Root file system of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// A directory of the node, read-only for the container; writes go to memory.
    Directory(PathBuf),
    /// An image by full name with tag or digest. It must have been pulled before ([`Condition::Image`]).
    Image(String),
}

/// A mount of a container (OCI runtime spec, config.md, "Mounts").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Absolute path in the container.
    pub destination: String,
    /// Source: a path of the node for bind mounts, otherwise specific to the type.
    pub source: String,
    /// File system type; `bind` for a path of the node.
    pub kind: String,
    /// Mount options in the form of mount(8).
    pub options: Vec<String>,
}

/// A precondition of a service that is not another service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The files that apid needs in this mode.
    ApiFiles(ApiMode),
    /// The files that trustd needs.
    TrustdFiles,
    /// A path of the node exists.
    Path(PathBuf),
    /// A part of the network is ready.
    Network(NetworkPart),
    /// The clock is synchronized.
    Time,
    /// The machine config has an `ExtensionServiceConfig` of this name.
    Configuration(String),
    /// The image of this name is unpacked.
    Image(String),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self {
            Condition::ApiFiles(_) => "the API's certificate",
            Condition::TrustdFiles => "trustd's certificate",
            Condition::Path(path) => return write!(f, "the path {}", path.display()),
            Condition::Network(NetworkPart::Addresses) => "an address",
            Condition::Network(NetworkPart::Connectivity) => "network connectivity",
            Condition::Network(NetworkPart::Hostname) => "the host name",
            Condition::Network(NetworkPart::EtcFiles) => "/etc/hosts and /etc/resolv.conf",
            Condition::Time => "time synchronisation",
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

/// Mount point of the image cache.
pub const IMAGE_CACHE: &str = "/system/imagecache";
/// Environment variable with the socket for the service's readiness notification.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// User id of apid, which also owns the API's socket.
pub const APID_UID: u32 = 50;
/// User id of trustd.
pub const TRUSTD_UID: u32 = 51;
/// User id of syslogd.
pub const SYSLOGD_UID: u32 = 52;
/// User id of registryd.
pub const REGISTRYD_UID: u32 = 53;

/// Directory of apid's certificates.
pub const APID_PKI: &str = "/run/apid";
/// Directory of trustd's CA, token and certificate.
pub const TRUSTD_PKI: &str = "/run/trustd";
/// Path of machined's gRPC socket.
pub const MACHINED_SOCKET: &str = "/run/machined/machined.sock";
/// Path of syslogd's gRPC socket.
pub const SYSLOGD_SOCKET: &str = "/run/syslogd/syslogd.sock";
/// Mount point for the roots of sandboxes, each in its own mount namespace.
pub const SANDBOX_STAGE: &str = "/run/sandbox";
/// Settings of syslogd from the machine config, written by `logging`.
pub const LOGGING_CONFIG: &str = "/run/logging/config.json";
/// Socket behind /dev/log, which is a link to it: syslogd may not write to /dev.
pub const DEV_LOG_SOCKET: &str = "/run/syslogd/dev-log";

/// Directory of `/etc/hosts` and similar files, which change while the node runs.
pub const NAMES: &str = "/run/names";
/// Directory of the kubelet's files, which it sees as `/etc/kubernetes` and also writes to.
pub const KUBELET_FILES: &str = "/etc/kubernetes";
/// Directory of the CAs that the kubelet trusts.
pub const KUBELET_PKI: &str = "/etc/kubernetes/pki";
/// Id of the container runtime.
pub const CONTAINERD: &str = "containerd";
/// Content store of containerd (containerd, `docs/content-flow.md`).
pub const CONTENT: &str = "/var/lib/containerd/io.containerd.content.v1.content";
/// Path of containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Id of machined's own API, to which apid forwards calls.
pub const MACHINED: &str = "machined";
/// Id of the image cache's service.
pub const REGISTRYD: &str = "registryd";
/// Services that run only when the machine config asks for them; their absence is no failure.
pub const OPTIONAL: [&str; 1] = [REGISTRYD];

/// Services that stop last, in this order: the client that requested the stop still gets its answer, and logs still
/// arrive.
const LAST: [&str; 3] = ["apid", MACHINED, "syslogd"];

/// Whether a service stops only after all ordinary services.
#[must_use]
pub fn outlives_others(id: &str) -> bool {
    LAST.contains(&id)
}

/// Mode of apid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiMode {
    /// Without a machine config: anyone may read, and may submit a config.
    Maintenance,
    /// Only clients with a certificate of the config's CA are served.
    Secure,
}

/// The order of an orderly stop. All services of a wave stop at once, and a wave starts only when the one before has
/// ended. No service stops while one of its dependents runs.
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
            // A dependency cycle, which only extensions can declare. Its members stop together; the node's own services
            // keep their order.
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

/// The table in human-readable form.
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
