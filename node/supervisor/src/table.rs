//! The node's own services.

mod on_demand;

use std::net::Ipv4Addr;
use std::time::Duration;

use corten_api::PORT;
use corten_sys::child::CapabilitySet;

use super::{
    APID_PKI, APID_UID, ApiMode, CONTAINERD, CONTAINERD_SOCKET, Condition, DEV_LOG_SOCKET,
    LOGGING_CONFIG, MACHINED, MACHINED_SOCKET, MODULE_LOADER, NAMES, Part, Process, Runner,
    SYSLOGD_SOCKET, SYSLOGD_UID, Sandbox, ServiceSpec, SystemCalls, Task,
};
use crate::health::{HealthCheck, Probe};
use crate::supervisor::limits::{Backoff, Limits, Restart, Start};
use on_demand::registryd;
pub use on_demand::trustd;

/// The reference waits 5 s before every restart. A node that long without its API or device manager is worse than the
/// cost of a quick first retry. A crash loop still ends at 5 s.
pub(super) const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
    forgiven_after: Duration::from_secs(10),
};

/// Generous: a busy machine without KVM needs half a minute to start a daemon that normally takes half a second.
pub(super) const READY: Duration = Duration::from_secs(120);
/// containerd loads some sixty plug-ins; a timeout during that would kill it at every start.
const CONTAINERD_READY: Duration = Duration::from_secs(300);

/// Garbage that containerd keeps, in percent of its live memory (Go, `runtime`, GOGC). Its default of 100 costs a control
/// plane node 7 MiB more.
const CONTAINERD_GOGC: u8 = 25;

/// The reference checks every 5 s with a timeout of 0.5 s. No caller waits for these checks, and a node without KVM
/// that pulls an image may take seconds to answer.
/// A service on demand ends between two checks, since its idle time is shorter (`lib/daemon/src/on_demand.rs`).
const CHECK_EVERY: Duration = Duration::from_secs(10);
const CHECK_PATIENCE: Duration = Duration::from_secs(10);
/// Consecutive failures before a restart: two to four minutes, as long as a start may take.
const CHECKS: u32 = 12;

/// Socket on which udevd answers while it still handles events (`services/udevd/src/daemon.rs`).
const UDEVD_HEALTH: &str = "/run/udev/health";

pub(super) const UDEVD: &str = "udevd";
pub(super) const SYSLOGD: &str = "syslogd";

/// Paths of the node in apid's sandbox.
const APID_SEES: &[Part] = &[
    Part::reads(APID_PKI),
    Part::reads(MACHINED_SOCKET),
    Part::reads(NAMES),
];

/// Paths of the node in udevd's sandbox: devices, sysfs, its database, and rules including those of extensions that
/// appear later. `/proc/sys` is for `SYSCTL{}` rules.
const UDEVD_SEES: &[Part] = &[
    Part {
        follows: true,
        ..Part::runs("/usr")
    },
    Part::devices("/dev"),
    Part::writes("/sys"),
    Part::writes("/run/udev"),
    Part::writes("/proc/sys"),
    Part::reads("/proc/cmdline"),
    Part::reads("/etc/modprobe.d"),
];

/// Adds a health check to a service that may be interrupted at any time; failures restart it.
fn checked(probe: Probe, limits: Limits) -> Limits {
    let health = Some(HealthCheck {
        probe,
        initial_delay: CHECK_EVERY,
        interval: CHECK_EVERY,
        timeout: CHECK_PATIENCE,
        restart_after: Some(CHECKS),
    });
    Limits { health, ..limits }
}

/// Disables the restart on failed checks, for services that a restart does not improve.
fn told_only(limits: Limits) -> Limits {
    let health = limits.health.map(|health| HealthCheck {
        restart_after: None,
        ..health
    });
    Limits { health, ..limits }
}

fn port(port: u16) -> Probe {
    Probe::Tcp((Ipv4Addr::LOCALHOST, port).into())
}

const fn limits(ready: Duration, stop_seconds: u64) -> Limits {
    Limits {
        start: Start::AtOnce,
        ready: Some(ready),
        health: None,
        stop: Duration::from_secs(stop_seconds),
        restart: Restart::Always,
        backoff: BACKOFF,
    }
}

/// All process services of any node, each after its dependencies.
#[must_use]
pub fn table(mode: ApiMode) -> Vec<ServiceSpec> {
    vec![udevd(), syslogd(), apid(mode), registryd(), containerd()]
}

/// The service of machined's own API.
#[must_use]
pub fn machined(task: Task) -> ServiceSpec {
    ServiceSpec {
        id: MACHINED.into(),
        runner: Runner::Task(task),
        depends_on: Vec::new(),
        needs: Vec::new(),
        limits: checked(Probe::Unix(MACHINED_SOCKET.into()), limits(READY, 15)),
        // The service is part of process 1.
        oom_score_adj: 0,
        cgroup: "init".to_owned(),
    }
}

fn udevd() -> ServiceSpec {
    ServiceSpec {
        id: UDEVD.into(),
        runner: Runner::Process(Process {
            argv: strings(&["/usr/bin/udevd"]),
            uid: 0,
            // It loads modules, creates and owns links and nodes, and renames network links. SYS_ADMIN is for protected
            // attributes that a rule writes, such as `provisioning_mode` of a SCSI disk.
            capabilities: CapabilitySet::SYS_MODULE
                .union(CapabilitySet::MKNOD)
                .union(CapabilitySet::CHOWN)
                .union(CapabilitySet::FOWNER)
                .union(CapabilitySet::DAC_OVERRIDE)
                .union(CapabilitySet::NET_ADMIN)
                .union(CapabilitySet::SYS_ADMIN),
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::ModuleLoader,
            // It accesses files as root, but its sandbox contains neither the content of disks nor secrets of the node.
            sandbox: Some(Sandbox {
                sees: UDEVD_SEES,
                ..MODULE_LOADER
            }),
        }),
        depends_on: Vec::new(),
        needs: Vec::new(),
        // No restart: a device or driver that blocks it would block its successor as well.
        limits: told_only(checked(Probe::Unix(UDEVD_HEALTH.into()), limits(READY, 10))),
        oom_score_adj: -998,
        cgroup: "system/udevd".to_owned(),
    }
}

fn syslogd() -> ServiceSpec {
    ServiceSpec {
        id: SYSLOGD.into(),
        runner: Runner::Process(Process {
            argv: strings(&[
                "/usr/bin/syslogd",
                "--dev-log",
                DEV_LOG_SOCKET,
                "--socket",
                SYSLOGD_SOCKET,
                "--config",
                LOGGING_CONFIG,
            ]),
            uid: SYSLOGD_UID,
            // It reads the kernel log (`kernel.dmesg_restrict`).
            capabilities: CapabilitySet::SYSLOG,
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::Daemon,
            sandbox: None,
        }),
        depends_on: Vec::new(),
        needs: Vec::new(),
        limits: checked(Probe::Unix(SYSLOGD_SOCKET.into()), limits(READY, 5)),
        oom_score_adj: -998,
        cgroup: "system/syslogd".to_owned(),
    }
}

fn apid(mode: ApiMode) -> ServiceSpec {
    let mut argv = strings(&[
        "/usr/bin/apid",
        "--pki",
        APID_PKI,
        "--machined",
        MACHINED_SOCKET,
    ]);
    if mode == ApiMode::Maintenance {
        argv.push("--maintenance".to_owned());
    }
    ServiceSpec {
        id: "apid".into(),
        runner: Runner::Process(Process {
            argv,
            uid: APID_UID,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::Server,
            // An attacker who takes apid over has the rights of the clients whose certificates pass through it:
            // machined verifies them (docs/decisions/0005-apid-is-a-process.md).
            sandbox: Some(Sandbox {
                sees: APID_SEES,
                links: &[
                    ("/etc/hosts", "/run/names/hosts"),
                    ("/etc/resolv.conf", "/run/names/resolv.conf"),
                ],
                empty: &[],
            }),
        }),
        depends_on: Vec::new(),
        needs: match mode {
            ApiMode::Maintenance => vec![Condition::ApiFiles(ApiMode::Maintenance)],
            ApiMode::Secure => vec![Condition::ApiFiles(ApiMode::Secure)],
        },
        limits: checked(port(PORT), limits(READY, 15)),
        oom_score_adj: -998,
        cgroup: "system/apid".to_owned(),
    }
}

/// The container runtime.
#[must_use]
pub fn containerd() -> ServiceSpec {
    // No restart: the work of a start would make a slow containerd slower.
    let limits = told_only(checked(
        Probe::Grpc(CONTAINERD_SOCKET.into()),
        limits(CONTAINERD_READY, 10),
    ));
    ServiceSpec {
        id: CONTAINERD.into(),
        runner: Runner::Process(Process {
            argv: strings(&[
                "/usr/bin/containerd",
                "--address",
                CONTAINERD_SOCKET,
                "--state",
                "/run/containerd",
                "--root",
                "/var/lib/containerd",
            ]),
            uid: 0,
            // Containers may need any capability but these: only udevd loads modules, and only machined reboots the
            // machine.
            capabilities: CapabilitySet::all()
                .difference(CapabilitySet::SYS_MODULE)
                .difference(CapabilitySet::SYS_BOOT),
            // Containers choose for themselves (`allowPrivilegeEscalation`).
            no_new_privs: false,
            env: vec![("GOGC".to_owned(), CONTAINERD_GOGC.to_string())],
            system_calls: SystemCalls::All,
            sandbox: None,
        }),
        depends_on: vec![UDEVD.into()],
        needs: Vec::new(),
        limits,
        oom_score_adj: -999,
        cgroup: "system/runtime".to_owned(),
    }
}

const fn sees(sees: &'static [Part]) -> Option<Sandbox> {
    Some(Sandbox {
        sees,
        links: &[],
        empty: &[],
    })
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IMAGE_CACHE;
    use crate::stop_waves;

    fn process(spec: &ServiceSpec) -> &Process {
        let Runner::Process(process) = &spec.runner else {
            panic!("{spec:?}")
        };
        process
    }

    #[test]
    fn each_service_comes_after_its_dependencies() {
        let specs = table(ApiMode::Secure);
        for (place, spec) in specs.iter().enumerate() {
            for needed in &spec.depends_on {
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
        let waves: Vec<String> = stop_waves(&specs)
            .iter()
            .map(|wave| wave.join(" "))
            .collect();
        assert_eq!(
            waves,
            ["registryd containerd trustd", "udevd", "apid", "syslogd"]
        );
    }

    #[test]
    fn services_with_cyclic_dependencies_are_stopped() {
        let waiting_for = |id: &str, other: &str| ServiceSpec {
            id: id.into(),
            depends_on: vec![other.into()],
            ..trustd()
        };
        let waves = stop_waves(&[waiting_for("a", "b"), waiting_for("b", "a")]);
        assert_eq!(waves, [vec!["a".into(), "b".into()]]);
        // A cycle of extensions, and an extension it waits for: the node's own services keep their order.
        let mut specs = table(ApiMode::Secure);
        for (id, other) in [
            ("ext-a", "ext-b"),
            ("ext-b", "ext-a"),
            ("ext-c", "containerd"),
        ] {
            specs.push(waiting_for(id, other));
        }
        if let Some(first) = specs.iter_mut().find(|spec| *spec.id == *"ext-a") {
            first.depends_on.push("ext-c".into());
        }
        let waves: Vec<String> = stop_waves(&specs)
            .iter()
            .map(|wave| wave.join(" "))
            .collect();
        assert_eq!(
            waves,
            [
                "registryd",
                "ext-a ext-b ext-c",
                "containerd",
                "udevd",
                "apid",
                "syslogd"
            ]
        );
    }

    #[test]
    fn only_containerd_may_gain_privileges() {
        for spec in table(ApiMode::Secure).into_iter().chain([trustd()]) {
            let process = process(&spec);
            let is = |id: &str| *spec.id == *id;
            assert_eq!(process.no_new_privs, !is("containerd"), "{}", spec.id);
            let holds = |capability| process.capabilities.contains(capability);
            assert!(!holds(CapabilitySet::SYS_BOOT), "{}", spec.id);
            assert_eq!(holds(CapabilitySet::SYS_MODULE), is("udevd"), "{}", spec.id);
            let calls = process.system_calls;
            assert_eq!(calls == SystemCalls::All, is("containerd"), "{}", spec.id);
            let loads = calls == SystemCalls::ModuleLoader;
            assert_eq!(loads, is("udevd"), "{}", spec.id);
            let is_sealed = calls == SystemCalls::Server || is("udevd");
            assert_eq!(is_sealed, process.sandbox.is_some(), "{}", spec.id);
        }
    }

    #[test]
    fn services_reachable_from_the_network_run_in_a_sandbox() {
        let specs = table(ApiMode::Secure);
        let seeing = |spec: &ServiceSpec| {
            let parts = process(spec).sandbox.map_or(&[][..], |it| it.sees);
            assert!(parts.iter().all(|part| *part == Part::reads(part.path)));
            parts.iter().map(|part| part.path).collect::<Vec<_>>()
        };
        let of = |id: &str| seeing(specs.iter().find(|spec| *spec.id == *id).unwrap());
        let all_of_apid = ["/run/apid", "/run/machined/machined.sock", "/run/names"];
        assert_eq!(of("apid"), all_of_apid);
        assert_eq!(of("registryd"), [IMAGE_CACHE]);
        assert_eq!(seeing(&trustd()), ["/run/trustd"]);
    }

    #[test]
    fn every_service_has_health_checks_and_all_but_containerd_and_udevd_restart() {
        for spec in table(ApiMode::Secure).into_iter().chain([trustd()]) {
            let health = spec.limits.health.unwrap();
            let restarts = health.restart_after.is_some();
            let is_left_alone = ["containerd", "udevd"].contains(&&*spec.id);
            assert_eq!(restarts, !is_left_alone, "{}", spec.id);
            // As long as a start may take: a busy machine must not be loaded with restarts.
            let shortest = health.interval * health.restart_after.unwrap_or(CHECKS);
            assert!(shortest >= READY, "{}", spec.id);
        }
    }

    #[test]
    fn only_a_node_without_config_serves_anonymous_clients() {
        let serves_strangers = |mode| {
            let argv = process(&apid(mode)).argv.clone();
            argv.iter().any(|word| word == "--maintenance")
        };
        assert!(serves_strangers(ApiMode::Maintenance));
        assert!(!serves_strangers(ApiMode::Secure));
    }
}
