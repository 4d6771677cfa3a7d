//! A parsed and checked config, and the settings in both of its forms.

use std::collections::BTreeMap;
use std::net::IpAddr;

use corten_yaml::problem::{Notes, Problems};
use corten_yaml::tree::Node;

use crate::kinds::{
    AnyKind, Encryption, EnvironmentConfig, HostnameConfig, KernelModuleConfig, Kind,
    Layer2VIPConfig, PCIDriverRebindConfig, ResolverConfig, SysctlConfig, SysfsConfig,
    SystemVolume, UdevRulesConfig, UnattendedInstallConfig, VolumeConfig,
};
use crate::redact;
use crate::v1alpha1::{Cluster, Machine, MachineType, V1Alpha1};

/// The environment of a node, for settings that only some environments need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A machine that is installed to its own disk.
    Metal,
    /// A machine that boots from its image as the disk; nothing is installed.
    Cloud,
    /// A container: like a cloud, but with the host's kernel.
    Container,
}

/// The config's settings of the node's name cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostDnsWishes {
    /// Whether the cache runs.
    pub enabled: bool,
    /// Whether the cluster's DNS forwards to it.
    pub forward: bool,
    /// Whether it resolves the names of the cluster's nodes.
    pub resolves_members: bool,
}

/// A complete, checked machine config. `Debug` shows no secret.
#[derive(Clone)]
pub struct Document {
    /// The `machine` section.
    pub machine: Machine,
    /// The `cluster` section. Use the methods for settings that documents with a kind can also have.
    pub cluster: Cluster,
    kinds: Vec<AnyKind>,
    source: String,
    trees: Vec<Node>,
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Document").finish_non_exhaustive()
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        self.source == other.source
    }
}

impl Document {
    /// A config of what was read.
    pub(crate) fn new(
        root: V1Alpha1,
        kinds: Vec<AnyKind>,
        source: String,
        trees: Vec<Node>,
    ) -> Document {
        Document {
            machine: root.machine,
            cluster: root.cluster,
            kinds,
            source,
            trees,
        }
    }

    /// Checks settings that depend on the environment.
    ///
    /// # Errors
    /// All settings that are missing there.
    pub fn validate(&self, mode: Mode) -> Result<(), Problems> {
        let mut notes = Notes::default();
        let install = &self.machine.install;
        let by_kind = self.all::<UnattendedInstallConfig>().next().is_some();
        let disk = by_kind || install.disk.is_some() || install.disk_selector.is_some();
        if mode == Mode::Metal && !disk {
            let path = "machine.install.disk";
            let message = format!(
                "{path}, diskSelector or an UnattendedInstallConfig is required to install on metal"
            );
            notes.add(Default::default(), path, message);
        }
        notes.into_result(())
    }

    /// Warnings about valid settings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.machine.kind == MachineType::Init {
            warnings.push("machine.type: init is an old name; use controlplane".to_owned());
        }
        if !self.machine.files.is_empty() {
            warnings.push("machine.files is deprecated".to_owned());
        }
        if self
            .cluster
            .api_server
            .disable_pod_security_policy
            .is_some()
        {
            let text = "cluster.apiServer.disablePodSecurityPolicy has no effect any more";
            warnings.push(text.to_owned());
        }
        let is_worker = self.machine.kind == MachineType::Worker;
        if is_worker && self.all::<Layer2VIPConfig>().next().is_some() {
            let text =
                "Layer2VIPConfig has no effect on a worker: control plane nodes share the address";
            warnings.push(text.to_owned());
        }
        warnings
    }

    /// All documents of a kind, in the order of the text.
    pub fn all<'a, K: Kind + 'a>(&'a self) -> impl Iterator<Item = &'a K> {
        self.kinds.iter().filter_map(K::of)
    }

    /// The host name in the config.
    #[must_use]
    pub fn hostname(&self) -> Option<&str> {
        let by_kind = self
            .all::<HostnameConfig>()
            .find_map(|config| config.hostname.as_deref());
        by_kind.or(self.machine.network.hostname.as_deref())
    }

    /// Name servers that replace those of the network.
    #[must_use]
    pub fn nameservers(&self) -> Vec<IpAddr> {
        let by_kind = self
            .all::<ResolverConfig>()
            .flat_map(|config| &config.nameservers);
        let mut servers: Vec<IpAddr> = by_kind.filter_map(|server| server.address).collect();
        servers.extend(&self.machine.network.nameservers);
        servers
    }

    /// The settings of the node's name cache.
    #[must_use]
    pub fn host_dns(&self) -> HostDnsWishes {
        let by_kind = self
            .all::<ResolverConfig>()
            .map(|config| &config.host_dns)
            .chain([&self.machine.features.host_dns]);
        // Another check refuses `forward` without `enabled`.
        by_kind.fold(HostDnsWishes::default(), |wishes, dns| HostDnsWishes {
            enabled: wishes.enabled || dns.enabled == Some(true),
            forward: wishes.forward || dns.forward_kube_dns_to_host == Some(true),
            resolves_members: wishes.resolves_members || dns.resolve_member_names == Some(true),
        })
    }

    /// Kernel parameters, which override the node's own.
    #[must_use]
    pub fn sysctls(&self) -> BTreeMap<&str, &str> {
        let by_kind = self.all::<SysctlConfig>().flat_map(|config| &config.params);
        let all = self.machine.sysctls.iter().chain(by_kind);
        all.map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Kernel modules to load, by name, with their parameters.
    #[must_use]
    pub fn kernel_modules(&self) -> BTreeMap<&str, Vec<&str>> {
        let old = self.machine.kernel.modules.iter();
        let old = old.map(|module| (&module.name, &module.parameters));
        let by_kind = self.all::<KernelModuleConfig>();
        let by_kind = by_kind.map(|module| (&module.name, &module.parameters));
        let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, parameters) in old.chain(by_kind) {
            let all = modules.entry(name).or_default();
            all.extend(parameters.iter().map(|parameter| &**parameter));
        }
        modules
    }

    /// Encryption of one of the node's own volumes; `None`: not encrypted.
    #[must_use]
    pub fn encryption(&self, volume: SystemVolume) -> Option<&Encryption> {
        let old = &self.machine.system_disk_encryption;
        let old = match volume {
            SystemVolume::State => old.state.as_ref(),
            SystemVolume::Ephemeral => old.ephemeral.as_ref(),
            _ => None,
        };
        let of_volume = |config: &&VolumeConfig| config.name == volume;
        let by_kind = self.all::<VolumeConfig>().find(of_volume);
        by_kind
            .and_then(|config| config.encryption.as_ref())
            .or(old)
    }

    /// Lines of a rule file for udevd, after those of the image.
    pub fn udev_rules(&self) -> impl Iterator<Item = &str> {
        let by_kind = self
            .all::<UdevRulesConfig>()
            .flat_map(|config| &config.rules);
        let all = self.machine.udev.rules.iter().chain(by_kind);
        all.map(String::as_str)
    }

    /// Values under `/sys`, by path with dots.
    #[must_use]
    pub fn sysfs(&self) -> BTreeMap<&str, &str> {
        let by_kind = self.all::<SysfsConfig>().flat_map(|config| &config.params);
        let all = self.machine.sysfs.iter().chain(by_kind);
        all.map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Environment variables of services, by name.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<&str, &str> {
        let by_kind = self.all::<EnvironmentConfig>();
        let by_kind = by_kind.flat_map(|config| &config.variables);
        let all = self.machine.env.iter().chain(by_kind);
        all.map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Drivers for devices on PCI buses, by address in the kernel's spelling.
    #[must_use]
    pub fn pci_drivers(&self) -> BTreeMap<String, &str> {
        let all = self.all::<PCIDriverRebindConfig>();
        all.map(|config| (config.name.normal(), &*config.target_driver))
            .collect()
    }

    /// The original text with all secrets, for the STATE partition.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The document with every secret replaced, for logs and support bundles. Comments are dropped.
    #[must_use]
    pub fn redacted(&self) -> String {
        redact::redacted(&self.trees)
    }

    /// The documents with all secrets, in the order of the text.
    #[must_use]
    pub fn trees(&self) -> &[Node] {
        &self.trees
    }
}
