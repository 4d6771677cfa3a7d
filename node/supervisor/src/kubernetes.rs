//! Declares etcd and the kubelet.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use corten_config::v1alpha1::ExtraMount;
use corten_extension::service::NetworkPart;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_kubernetes::{ETCD_UID, Node, etcd, kubelet};
use corten_sys::child::CapabilitySet;

use super::table::{BACKOFF, READY};
use super::{CONTAINERD, Condition, Container, KUBELET_FILES, Mount, Root, Runner, ServiceSpec};
use crate::health::{HealthCheck, Probe};
use crate::supervisor::limits::{Limits, Restart, Start};

/// Id of the service and of its container.
pub const ETCD: &str = "etcd";
/// Id of the one-shot service that restores etcd's data from a snapshot.
pub const ETCD_RESTORE: &str = "etcd-restore";
/// Id of the service and of its container.
pub const KUBELET: &str = "kubelet";
/// Cgroup of etcd.
pub const ETCD_CGROUP: &str = "podruntime/etcd";
/// Cgroup of the kubelet.
pub const KUBELET_CGROUP: &str = "podruntime/kubelet";

/// Declares etcd with its program and arguments.
#[must_use]
pub fn etcd_service(image: &str, args: Vec<String>) -> ServiceSpec {
    let container = Container {
        root: Root::Image(image.to_owned()),
        writable_root: false,
        host_processes: false,
        writable_sysfs: false,
        args,
        environment: Vec::new(),
        environment_file: None,
        mounts: vec![
            bind(
                &format!("{HOST_SECRETS}/{ETCD}"),
                etcd::SECRETS,
                &["bind", "ro"],
            ),
            bind(etcd::DATA, etcd::DATA, &["bind", "rw"]),
        ],
        masked_paths: None,
        readonly_paths: None,
        propagation: "private".to_owned(),
        uid: ETCD_UID,
        capabilities: CapabilitySet::empty(),
        memory_max: None,
        log_to_console: false,
    };
    let probe = Probe::Etcd {
        address: (Ipv4Addr::LOCALHOST, etcd::CLIENT_PORT).into(),
        secrets: Path::new(HOST_SECRETS).join(ETCD),
    };
    ServiceSpec {
        id: ETCD.into(),
        runner: Runner::Container(Box::new(container)),
        depends_on: vec![CONTAINERD.into()],
        needs: needs(image),
        // A restart makes no member on a slow disk faster.
        limits: limits(probe, Duration::from_secs(30)),
        oom_score_adj: -998,
        cgroup: ETCD_CGROUP.to_owned(),
    }
}

/// Declares the restore of etcd's data from a snapshot: etcd's container with another program.
#[must_use]
pub fn restore_service(image: &str, args: Vec<String>) -> ServiceSpec {
    let mut spec = etcd_service(image, args);
    spec.id = ETCD_RESTORE.into();
    spec.limits = Limits {
        health: None,
        restart: Restart::Never,
        ..spec.limits
    };
    if let Runner::Container(container) = &mut spec.runner {
        container.mounts = vec![
            bind(etcd::SNAPSHOT, etcd::SNAPSHOT, &["bind", "ro"]),
            bind(etcd::DATA, etcd::DATA, &["bind", "rw"]),
        ];
    }
    spec
}

/// Declares the kubelet with its program and arguments. `files` is a digest of the files it reads at startup; a change
/// restarts it.
#[must_use]
pub fn kubelet_service(node: &Node, args: Vec<String>, files: &str) -> ServiceSpec {
    let image = &node.image;
    let shared = &["rbind", "rshared", "rw"];
    let slave = &["rbind", "rslave", "rw"];
    let read = &["rbind", "rslave", "ro"];
    let same = |path: &str, options: &[&str]| bind(path, path, options);
    let container = Container {
        root: Root::Image(image.clone()),
        // It creates mount points for volumes, and links below /var/run.
        writable_root: true,
        host_processes: true,
        writable_sysfs: true,
        args,
        environment: vec![format!("CORTEN_KUBELET_FILES={files}")],
        environment_file: None,
        mounts: vec![
            same("/dev", slave),
            same("/sys", slave),
            same("/run", slave),
            bind("/run", "/var/run", slave),
            bind("/usr/lib/modules", "/lib/modules", read),
            same("/etc/machine-id", &["bind", "ro"]),
            same("/etc/os-release", &["bind", "ro"]),
            // It mounts volumes from servers with names, and its credential programs call APIs.
            same("/etc/hosts", &["bind", "ro"]),
            same("/etc/resolv.conf", &["bind", "ro"]),
            same("/etc/cni", read),
            bind(KUBELET_FILES, kubelet::FILES, &["rbind", "rslave", "rw"]),
            same("/var/lib/containerd", slave),
            same("/var/lib/kubelet", shared),
            same("/var/log/containers", &["bind", "rw"]),
            same("/var/log/pods", &["bind", "rw"]),
            same("/var/mnt", read),
        ],
        // It sets kernel parameters for pods and reads hardware information.
        masked_paths: Some(Vec::new()),
        readonly_paths: Some(Vec::new()),
        propagation: "rshared".to_owned(),
        uid: 0,
        // Same as containerd: only udevd loads modules, and only machined reboots the machine.
        capabilities: CapabilitySet::all()
            .difference(CapabilitySet::SYS_MODULE)
            .difference(CapabilitySet::SYS_BOOT),
        memory_max: None,
        log_to_console: false,
    };
    let mut container = container;
    container.mounts.extend(node.mounts.iter().map(extra_mount));
    if node.credentials.is_some() {
        let programs = kubelet::CREDENTIAL_PROGRAMS;
        container
            .mounts
            .push(same(programs, &["rbind", "rslave", "ro"]));
    }
    let health = (Ipv4Addr::LOCALHOST, kubelet::HEALTH_PORT).into();
    ServiceSpec {
        id: KUBELET.into(),
        runner: Runner::Container(Box::new(container)),
        depends_on: vec![CONTAINERD.into()],
        needs: needs(image),
        limits: limits(Probe::Http(health, "/healthz"), Duration::from_secs(30)),
        oom_score_adj: -450,
        cgroup: KUBELET_CGROUP.to_owned(),
    }
}

fn needs(image: &str) -> Vec<Condition> {
    vec![
        Condition::Image(image.to_owned()),
        Condition::Time,
        Condition::Network(NetworkPart::Addresses),
        Condition::Network(NetworkPart::Hostname),
        Condition::Network(NetworkPart::EtcFiles),
    ]
}

fn limits(probe: Probe, stop: Duration) -> Limits {
    Limits {
        start: Start::AtOnce,
        ready: Some(READY),
        health: Some(HealthCheck {
            probe,
            initial_delay: Duration::from_secs(2),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            restart_after: None,
        }),
        stop,
        restart: Restart::Always,
        backoff: BACKOFF,
    }
}

fn extra_mount(mount: &ExtraMount) -> Mount {
    let options = match mount.options.is_empty() {
        true => vec!["rbind".to_owned(), "rshared".to_owned(), "rw".to_owned()],
        false => mount.options.clone(),
    };
    Mount {
        destination: mount.destination.to_string(),
        source: mount.source.to_string(),
        kind: mount.kind.clone().unwrap_or_else(|| "bind".to_owned()),
        options,
    }
}

fn bind(source: &str, destination: &str, options: &[&str]) -> Mount {
    Mount {
        destination: destination.to_owned(),
        source: source.to_owned(),
        kind: "bind".to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(spec: ServiceSpec) -> Container {
        match spec.runner {
            Runner::Container(container) => *container,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn etcd_container_has_its_data_and_certificates_and_no_capabilities() {
        let etcd = container(etcd_service(
            "etcd:1",
            vec!["/usr/local/bin/etcd".to_owned()],
        ));
        let seen: Vec<&str> = etcd
            .mounts
            .iter()
            .map(|mount| &*mount.destination)
            .collect();
        assert_eq!(seen, ["/system/secrets/etcd", "/var/lib/etcd"]);
        assert!(etcd.capabilities.is_empty() && !etcd.writable_root && !etcd.host_processes);
        assert_eq!(etcd.uid, 60);
    }

    #[test]
    fn health_of_etcd_is_asked_of_the_member_with_the_nodes_credentials() {
        let health = etcd_service("etcd:1", Vec::new()).limits.health;
        let probe = Probe::Etcd {
            address: "127.0.0.1:2379".parse().unwrap(),
            secrets: "/run/kubernetes/secrets/etcd".into(),
        };
        assert_eq!(health.unwrap().probe, probe);
    }

    #[test]
    fn kubelet_cannot_load_modules_reboot_or_call_machined() {
        let node = Node {
            image: "kubelet:1".to_owned(),
            ..Node::default()
        };
        let kubelet = container(kubelet_service(&node, Vec::new(), ""));
        for capability in [CapabilitySet::SYS_MODULE, CapabilitySet::SYS_BOOT] {
            assert!(!kubelet.capabilities.contains(capability));
        }
        let sees = |path: &str| kubelet.mounts.iter().any(|mount| mount.source == path);
        assert!(!sees("/system") && !sees("/var"));
    }
}
