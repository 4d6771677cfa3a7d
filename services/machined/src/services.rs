//! The services of a node, as a table. A service is what this table says, and nothing else starts one.

use std::fmt::{self, Write};
use std::time::Duration;

use corten_sys::child::CapabilitySet;

use crate::image_cache::IMAGE_CACHE;
use crate::supervisor::policy::{Backoff, Limits};

/// A service's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its name in the API; also its log's name.
    pub id: &'static str,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Services that must be up before this one starts. They are stopped after it.
    pub depends_on: &'static [&'static str],
    /// What else must be there before it starts.
    pub needs: &'static [Condition],
    /// How long it may take to start and stop, and when it comes back.
    pub limits: Limits,
    /// User and group id; no supplementary groups.
    pub uid: u32,
    /// What it may ever do; a user other than root holds exactly these.
    pub capabilities: CapabilitySet,
    /// It can gain nothing through setuid files.
    pub no_new_privs: bool,
    /// `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Its cgroup, below the root of the hierarchy.
    pub cgroup: &'static str,
    /// Environment on top of [`ENVIRONMENT`].
    pub env: &'static [(&'static str, &'static str)],
    /// All it sees of the node beside its own program, read-only, and then it also has the system calls of
    /// a plain server only; `None`: it sees everything and may call everything.
    pub sandbox: Option<&'static [&'static str]>,
}

/// Something a service needs before it starts that no service gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The files apid serves with in this mode.
    ApiFiles(ApiMode),
    /// trustd's files.
    TrustdFiles,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::ApiFiles(_) => "the API's certificate",
            Condition::TrustdFiles => "trustd's certificate",
        })
    }
}

/// What every service has in its environment, and all it has.
pub const ENVIRONMENT: [(&str, &str); 1] = [("PATH", "/usr/bin:/opt/cni/bin")];

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

/// The reference waits 5 s before every restart; a node without its API or its device manager for so
/// long is worse than the little work a quick first try costs. A crash loop still ends at 5 s.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
    forgiven_after: Duration::from_secs(10),
};

/// Generous: a busy machine without KVM needs half a minute for a daemon that else takes half a second.
const READY: Duration = Duration::from_secs(120);
/// containerd loads some sixty plug-ins; one that is killed while it does never gets further.
const CONTAINERD_READY: Duration = Duration::from_secs(300);

const fn limits(ready: Duration, stop_seconds: u64) -> Limits {
    Limits {
        ready: Some(ready),
        stop: Duration::from_secs(stop_seconds),
        backoff: BACKOFF,
    }
}

/// The id of the image cache's service.
pub const REGISTRYD: &str = "registryd";
/// Services that run only when the machine config asks for them; without them nothing is amiss.
pub const OPTIONAL: [&str; 1] = [REGISTRYD];

/// Hears what the others say as they end, and ends after them.
const LISTENER: &str = "syslogd";

/// How apid serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiMode {
    /// No machine config: anyone may read and hand over a config.
    Maintenance,
    /// Only clients with a certificate of the config's authority.
    Secure,
}

/// Every process service of any node, in an order in which each comes after those it depends on.
#[must_use]
pub fn table(mode: ApiMode) -> Vec<ServiceSpec> {
    vec![udevd(), syslogd(), apid(mode), registryd(), containerd()]
}

/// What a node that can sign certificates runs beside those of [`table`].
#[must_use]
pub fn trustd() -> ServiceSpec {
    ServiceSpec {
        id: "trustd",
        argv: strings(&[
            "/usr/bin/trustd",
            "--pki",
            TRUSTD_PKI,
            "--listen",
            "[::]:50001",
        ]),
        depends_on: &[],
        needs: &[Condition::TrustdFiles],
        limits: limits(READY, 15),
        uid: TRUSTD_UID,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: -998,
        cgroup: "system/trustd",
        env: &[],
        // Whoever takes it over has the authority, but nothing else of the node.
        sandbox: Some(&[TRUSTD_PKI]),
    }
}

fn udevd() -> ServiceSpec {
    ServiceSpec {
        id: "udevd",
        argv: strings(&["/usr/bin/udevd"]),
        depends_on: &[],
        needs: &[],
        limits: limits(READY, 10),
        uid: 0,
        // Load modules, make and own links and nodes, rename network links, ask disks for their serial.
        capabilities: CapabilitySet::SYS_MODULE
            .union(CapabilitySet::MKNOD)
            .union(CapabilitySet::CHOWN)
            .union(CapabilitySet::FOWNER)
            .union(CapabilitySet::DAC_OVERRIDE)
            .union(CapabilitySet::NET_ADMIN)
            .union(CapabilitySet::SYS_RAWIO)
            .union(CapabilitySet::SYS_ADMIN),
        no_new_privs: true,
        oom_score_adj: -998,
        cgroup: "system/udevd",
        env: &[],
        sandbox: None,
    }
}

fn syslogd() -> ServiceSpec {
    ServiceSpec {
        id: "syslogd",
        argv: strings(&[
            "/usr/bin/syslogd",
            "--dev-log",
            DEV_LOG_SOCKET,
            "--socket",
            SYSLOGD_SOCKET,
            "--config",
            LOGGING_CONFIG,
        ]),
        depends_on: &[],
        needs: &[],
        limits: limits(READY, 5),
        uid: SYSLOGD_UID,
        // Read the kernel's log (`kernel.dmesg_restrict`).
        capabilities: CapabilitySet::SYSLOG,
        no_new_privs: true,
        oom_score_adj: -998,
        cgroup: "system/syslogd",
        env: &[],
        sandbox: None,
    }
}

fn apid(mode: ApiMode) -> ServiceSpec {
    let mut argv = strings(&[
        "/usr/bin/apid",
        "--pki",
        APID_PKI,
        "--machined",
        MACHINED_SOCKET,
        "--listen",
        "[::]:50000",
    ]);
    if mode == ApiMode::Maintenance {
        argv.push("--maintenance".to_owned());
    }
    ServiceSpec {
        id: "apid",
        argv,
        depends_on: &[],
        needs: match mode {
            ApiMode::Maintenance => &[Condition::ApiFiles(ApiMode::Maintenance)],
            ApiMode::Secure => &[Condition::ApiFiles(ApiMode::Secure)],
        },
        limits: limits(READY, 15),
        uid: APID_UID,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: -998,
        cgroup: "system/apid",
        env: &[],
        // Whoever takes it over gets what its callers may do, and no more.
        sandbox: Some(&[APID_PKI, MACHINED_SOCKET]),
    }
}

fn registryd() -> ServiceSpec {
    ServiceSpec {
        id: REGISTRYD,
        argv: strings(&["/usr/bin/registryd", "--root", IMAGE_CACHE]),
        depends_on: &[],
        needs: &[],
        limits: limits(READY, 5),
        uid: REGISTRYD_UID,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: -500,
        cgroup: "system/registryd",
        env: &[],
        // Pods on the host's network reach it too.
        sandbox: Some(&[IMAGE_CACHE]),
    }
}

fn containerd() -> ServiceSpec {
    ServiceSpec {
        id: "containerd",
        argv: strings(&[
            "/usr/bin/containerd",
            "--address",
            "/run/containerd/containerd.sock",
            "--state",
            "/run/containerd",
            "--root",
            "/var/lib/containerd",
        ]),
        depends_on: &["udevd"],
        needs: &[],
        limits: limits(CONTAINERD_READY, 10),
        uid: 0,
        // What it starts may need anything but these: modules are udevd's, the machine is machined's.
        capabilities: CapabilitySet::all()
            .difference(CapabilitySet::SYS_MODULE)
            .difference(CapabilitySet::SYS_BOOT),
        // Containers decide for themselves (`allowPrivilegeEscalation`).
        no_new_privs: false,
        oom_score_adj: -999,
        cgroup: "system/runtime",
        env: &[],
        sandbox: None,
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The order of an orderly stop: all of one wave at once, and each wave only when the one before has
/// ended. Nothing is stopped while something that depends on it still runs.
#[must_use]
pub fn stop_waves(specs: &[ServiceSpec]) -> Vec<Vec<&'static str>> {
    let mut left: Vec<&ServiceSpec> = specs.iter().collect();
    let mut waves = Vec::new();
    while !left.is_empty() {
        let needed = |id: &str| {
            left.iter()
                .any(|spec| spec.depends_on.contains(&id) || (id == LISTENER && spec.id != id))
        };
        let wave: Vec<&'static str> = left
            .iter()
            .map(|spec| spec.id)
            .filter(|id| !needed(id))
            .collect();
        if wave.is_empty() {
            // A cycle, which the table's test excludes: stop the rest together rather than never.
            waves.push(left.iter().map(|spec| spec.id).collect());
            break;
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
        let _ = writeln!(
            text,
            "{:<11} uid {:<3} oom {:<5} {:<15} after [{}]  {}",
            spec.id,
            spec.uid,
            spec.oom_score_adj,
            spec.cgroup,
            spec.depends_on.join(", "),
            spec.argv.join(" "),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_comes_after_those_it_depends_on() {
        let specs = table(ApiMode::Secure);
        for (place, spec) in specs.iter().enumerate() {
            for needed in spec.depends_on {
                let at = specs.iter().position(|other| other.id == *needed);
                assert!(
                    at.is_some_and(|at| at < place),
                    "{} needs {needed}",
                    spec.id
                );
            }
        }
    }

    #[test]
    fn stopping_reverses_the_dependencies() {
        let mut specs = table(ApiMode::Maintenance);
        specs.push(trustd());
        let waves = stop_waves(&specs);
        assert_eq!(
            waves,
            [
                vec!["apid", "registryd", "containerd", "trustd"],
                vec!["udevd"],
                vec!["syslogd"]
            ]
        );
    }

    #[test]
    fn only_containerd_may_start_something_stronger_than_itself() {
        for spec in table(ApiMode::Secure).into_iter().chain([trustd()]) {
            assert_eq!(spec.no_new_privs, spec.id != "containerd", "{}", spec.id);
            assert!(
                !spec.capabilities.contains(CapabilitySet::SYS_BOOT),
                "{}",
                spec.id
            );
            let loads_modules = spec.capabilities.contains(CapabilitySet::SYS_MODULE);
            assert_eq!(loads_modules, spec.id == "udevd", "{}", spec.id);
        }
    }

    #[test]
    fn what_the_network_talks_to_is_in_a_sandbox() {
        let specs = table(ApiMode::Secure);
        let seeing = |id: &str| specs.iter().find(|spec| spec.id == id).unwrap().sandbox;
        assert_eq!(
            seeing("apid"),
            Some(["/run/apid", "/run/machined/machined.sock"].as_slice())
        );
        assert_eq!(seeing("registryd"), Some([IMAGE_CACHE].as_slice()));
        assert_eq!(trustd().sandbox, Some(["/run/trustd"].as_slice()));
    }

    #[test]
    fn only_a_node_without_config_serves_strangers() {
        let serves_strangers = |mode| apid(mode).argv.iter().any(|word| word == "--maintenance");
        assert!(serves_strangers(ApiMode::Maintenance));
        assert!(!serves_strangers(ApiMode::Secure));
    }
}
