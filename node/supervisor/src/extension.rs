//! Declares services that extensions bring.

use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_config::kinds::{ExtensionFile, ExtensionServiceConfig};
use corten_extension::service::{self, Dependency, NetworkPart, ROOTS, Service};
use corten_sys::child::CapabilitySet;
use uuid::Uuid;

use super::table::{BACKOFF, READY};
use super::{CONTAINERD, Condition, Container, Id, Mount, NAMES, Root, Runner, ServiceSpec};
use crate::supervisor::limits::{Limits, Restart, Start};

/// Directory of files that the machine config gives to extension services.
pub const FILES: &str = "/run/extensions";

/// Parent cgroup of extension services; each has a child with its name in the extension.
pub const EXTENSIONS_CGROUP: &str = "system/extensions";

/// The node's files for name resolution.
const NAME_FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Before they are written, the files cannot be mounted.
const NAMES_WRITTEN: Condition = Condition::Network(NetworkPart::EtcFiles);

/// UUID namespace for the names of those files (random, our own).
const FILE_NAMES: Uuid = Uuid::from_u128(0x1b7e_52f4_93c8_4a0d_b6e1_7f25_d08a_c39e);
/// Value of the reference.
const OOM_SCORE_ADJ: i32 = -600;
const STOP: Duration = Duration::from_secs(10);
const PREFIX: &str = "ext-";
/// Default propagation of mounts: the container sees the node's later mounts, not the reverse.
const PROPAGATION: &str = "rslave";

/// Id of the service in the API.
#[must_use]
pub fn id(name: &str) -> Id {
    format!("{PREFIX}{name}").into()
}

/// Whether the id belongs to an extension service.
#[must_use]
pub fn is_one(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// Declares an extension service with its settings from the machine config.
#[must_use]
pub fn declare(service: &Service, config: Option<&ExtensionServiceConfig>) -> ServiceSpec {
    let (depends_on, mut needs) = awaited(service);
    let container = container(service, config);
    let has_names = |mount: &Mount| NAME_FILES.contains(&mount.source.as_str());
    if container.mounts.iter().any(has_names) && !needs.contains(&NAMES_WRITTEN) {
        needs.push(NAMES_WRITTEN);
    }
    ServiceSpec {
        id: id(&service.name),
        runner: Runner::Container(Box::new(container)),
        depends_on,
        needs,
        limits: limits(match service.restart {
            service::Restart::Always => Restart::Always,
            service::Restart::UntilSuccess => Restart::UntilSuccess,
            service::Restart::Never => Restart::Never,
        }),
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup: format!("{EXTENSIONS_CGROUP}/{}", service.name),
    }
}

/// A placeholder for an invalid declaration, so that the list of services shows it with the reason.
#[must_use]
pub fn unusable(name: &str, why: String) -> ServiceSpec {
    ServiceSpec {
        id: id(name),
        runner: Runner::Unusable(why),
        depends_on: Vec::new(),
        needs: Vec::new(),
        limits: limits(Restart::Never),
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup: String::new(),
    }
}

/// Path of a file from the config. Changed content gets a new name and so changes the declaration.
#[must_use]
pub fn file_path(name: &str, file: &ExtensionFile) -> PathBuf {
    let content = file.content.expose().as_bytes();
    let unique = Uuid::new_v5(&FILE_NAMES, content).simple().to_string();
    Path::new(FILES).join(name).join(unique)
}

fn limits(restart: Restart) -> Limits {
    Limits {
        start: Start::AtOnce,
        ready: Some(READY),
        // Declarations of extensions cannot express health checks.
        health: None,
        stop: STOP,
        restart,
        backoff: BACKOFF,
    }
}

fn awaited(service: &Service) -> (Vec<Id>, Vec<Condition>) {
    let mut depends_on: Vec<Id> = vec![CONTAINERD.into()];
    let mut needs = Vec::new();
    for dependency in &service.depends {
        match dependency {
            // The reference runs two containerd instances; this node has only one.
            Dependency::Service(id) if id == "cri" => {}
            Dependency::Service(id) => depends_on.push(id.as_str().into()),
            Dependency::Path(path) => needs.push(Condition::Path(path.into())),
            Dependency::Network(parts) => {
                needs.extend(parts.iter().map(|part| Condition::Network(*part)));
            }
            Dependency::Time => needs.push(Condition::Time),
            Dependency::Configuration => needs.push(Condition::Configuration(service.name.clone())),
        }
    }
    (depends_on, needs)
}

fn container(service: &Service, config: Option<&ExtensionServiceConfig>) -> Container {
    let declared = &service.container;
    let security = &declared.security;
    let mut mounts: Vec<Mount> = declared.mounts.iter().map(mount).collect();
    let mut environment = declared.environment.clone();
    if let Some(config) = config {
        let files = config.config_files.iter();
        mounts.extend(files.map(|file| file_mount(&service.name, file)));
        environment.extend(config.environment.iter().map(ToString::to_string));
    }
    mounts.extend(name_mounts(&mounts));
    let mut args = vec![declared.entrypoint.clone()];
    args.extend(declared.args.iter().cloned());
    let file = &declared.environment_file;
    Container {
        root: Root::Directory(Path::new(ROOTS).join(&service.name)),
        writable_root: security.writeable_rootfs,
        host_processes: false,
        writable_sysfs: security.writeable_sysfs,
        args,
        environment,
        environment_file: (!file.is_empty()).then(|| file.into()),
        mounts,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        propagation: match security.rootfs_propagation.as_str() {
            "" => PROPAGATION.to_owned(),
            named => named.to_owned(),
        },
        uid: 0,
        // The service is part of the image and may be the user-space half of a driver, so it gets the capabilities of
        // containerd.
        capabilities: CapabilitySet::all()
            .difference(CapabilitySet::SYS_MODULE)
            .difference(CapabilitySet::SYS_BOOT),
        memory_max: None,
        log_to_console: service.log_to_console,
    }
}

fn mount(mount: &service::Mount) -> Mount {
    Mount {
        destination: mount.destination.clone(),
        source: mount.source.clone(),
        kind: mount.kind.clone(),
        options: mount.options.clone(),
    }
}

/// The files for name resolution, unless the service mounts them itself, or their directory.
fn name_mounts(own: &[Mount]) -> Vec<Mount> {
    let is_given = own.iter().any(|mount| mount.source == NAMES);
    let files = NAME_FILES.into_iter().filter(|_| !is_given);
    let files = files.filter(|file| own.iter().all(|mount| mount.destination != *file));
    let mounts = files.map(|file| Mount {
        destination: file.to_owned(),
        source: file.to_owned(),
        kind: "bind".to_owned(),
        options: ["bind", "ro"].map(str::to_owned).to_vec(),
    });
    mounts.collect()
}

fn file_mount(name: &str, file: &ExtensionFile) -> Mount {
    Mount {
        destination: file.mount_path.to_string(),
        source: file_path(name, file).display().to_string(),
        kind: "bind".to_owned(),
        options: ["bind", "ro", "nosuid", "nodev", "noexec"]
            .map(str::to_owned)
            .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    const YAML: &str = "name: ups
container:
  entrypoint: /upsmon
  args: [-F]
  environment: [A=1]
  environmentFile: /var/ups.env
  mounts: [{source: /dev, destination: /dev, type: bind, options: [rbind, rw]}]
  security: {writeableRootfs: true, maskedPaths: []}
depends:
  - service: cri
  - service: machined
  - service: udevd
  - path: /dev/ups
  - network: [addresses, hostname]
  - time: true
  - configuration: true
restart: untilSuccess
";

    fn service() -> Service {
        Service::parse(YAML.as_bytes()).unwrap()
    }

    fn parts(spec: &ServiceSpec) -> &Container {
        let Runner::Container(container) = &spec.runner else {
            panic!("{spec:?}")
        };
        container
    }

    #[test]
    fn services_resolve_names_as_the_node_does() {
        let mounted = |yaml: &str| {
            let service = Service::parse(yaml.as_bytes()).unwrap();
            let spec = declare(&service, None);
            let mounts = parts(&spec).mounts.iter();
            mounts
                .map(|mount| mount.destination.clone())
                .collect::<Vec<_>>()
        };
        let usual = mounted(YAML);
        assert_eq!(usual, ["/dev", "/etc/hosts", "/etc/resolv.conf"]);
        let own = YAML.replace(
            "source: /dev, destination: /dev",
            "source: /x, destination: /etc/hosts",
        );
        assert_eq!(mounted(&own), ["/etc/hosts", "/etc/resolv.conf"]);
        let own = YAML.replace(
            "source: /dev, destination: /dev",
            "source: /run/names, destination: /run/names",
        );
        assert_eq!(mounted(&own), ["/run/names"]);
        let spec = declare(&Service::parse(own.as_bytes()).unwrap(), None);
        assert!(!spec.needs.contains(&NAMES_WRITTEN));
        let twice = YAML.replace("hostname]", "etcfiles]");
        let spec = declare(&Service::parse(twice.as_bytes()).unwrap(), None);
        let needs = spec.needs.iter().filter(|need| **need == NAMES_WRITTEN);
        assert_eq!(needs.count(), 1);
    }

    #[test]
    fn a_file_of_an_extension_becomes_a_declaration() {
        let spec = declare(&service(), None);
        assert_eq!(&*spec.id, "ext-ups");
        assert_eq!(spec.cgroup, "system/extensions/ups");
        assert_eq!(
            (spec.oom_score_adj, spec.limits.restart),
            (-600, Restart::UntilSuccess)
        );
        let depends_on: [Id; 3] = ["containerd", "machined", "udevd"].map(Id::from);
        assert_eq!(spec.depends_on, depends_on);
        assert_eq!(
            spec.needs,
            [
                Condition::Path("/dev/ups".into()),
                Condition::Network(NetworkPart::Addresses),
                Condition::Network(NetworkPart::Hostname),
                Condition::Time,
                Condition::Configuration("ups".to_owned()),
                NAMES_WRITTEN,
            ]
        );
        let container = parts(&spec);
        let root = Root::Directory("/usr/local/lib/containers/ups".into());
        assert_eq!(container.root, root);
        assert_eq!(container.args, ["/upsmon", "-F"]);
        assert_eq!(
            container.environment_file.as_deref(),
            Some(Path::new("/var/ups.env"))
        );
        assert!(container.writable_root && !container.writable_sysfs);
        assert_eq!(
            (&container.masked_paths, &container.readonly_paths),
            (&Some(vec![]), &None)
        );
        assert_eq!(container.propagation, "rslave");
        for withheld in [CapabilitySet::SYS_MODULE, CapabilitySet::SYS_BOOT] {
            assert!(!container.capabilities.contains(withheld));
        }
    }

    #[test]
    fn the_machine_config_adds_files_and_variables_and_changes_the_declaration() {
        let with = |content: &str| {
            let document = sample::kind(&format!(
                "ExtensionServiceConfig\nname: ups\nenvironment: [B=2]\n\
                 configFiles: [{{content: {content}, mountPath: /etc/ups.conf}}]"
            ));
            let config = document.all::<ExtensionServiceConfig>().next().cloned();
            declare(&service(), config.as_ref())
        };
        let spec = with("one");
        let container = parts(&spec);
        assert_eq!(container.environment, ["A=1", "B=2"]);
        let mut mounts = container.mounts.iter();
        let file = mounts
            .find(|mount| mount.destination == "/etc/ups.conf")
            .unwrap();
        assert_eq!(file.destination, "/etc/ups.conf");
        assert!(file.source.starts_with("/run/extensions/ups/"), "{file:?}");
        assert!(file.options.contains(&"ro".to_owned()));
        assert_eq!(with("one"), spec);
        assert_ne!(with("two"), spec);
    }
}
