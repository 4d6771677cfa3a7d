//! Resources that describe the node as a whole: its stage, services, version, boot and platform.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_api::talos::resource::definitions::v1alpha1::ServiceSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};
use crate::stop::Kill;
use crate::stop::Reason;

const NAMESPACE: &str = "runtime";

/// A condition that keeps the node from being ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnmetCondition {
    /// Name of the condition: `services`, `network`.
    pub name: String,
    /// Human-readable reason.
    pub reason: String,
}

/// Readiness in a [`MachineStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether the node performs its role.
    pub ready: bool,
    /// Conditions that are not met, in stages in which the node can become ready.
    pub unmet_conditions: Vec<UnmetCondition>,
}

/// Current stage of the node; id [`MachineStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    /// `booting`, `maintenance`, `running`, `rebooting`, `shutting down`, `resetting`.
    pub stage: &'static str,
    /// Readiness in this stage.
    pub status: Readiness,
}

impl MachineStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "machine";
}

impl Spec for MachineStatus {
    const DEFINITION: Definition = open(
        "MachineStatuses.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("Stage", ".stage"), column("Ready", ".status.ready")],
    );

    type Message = wire::MachineStatusSpec;

    fn message(&self) -> wire::MachineStatusSpec {
        let condition = |unmet: &UnmetCondition| wire::UnmetCondition {
            name: unmet.name.clone(),
            reason: unmet.reason.clone(),
        };
        let status = wire::MachineStatusStatus {
            ready: self.status.ready,
            unmet_conditions: self.status.unmet_conditions.iter().map(condition).collect(),
        };
        let stage = match self.stage {
            "booting" => wire::MachineStage::Booting,
            "maintenance" => wire::MachineStage::Maintenance,
            "running" => wire::MachineStage::Running,
            "rebooting" => wire::MachineStage::Rebooting,
            "shutting down" => wire::MachineStage::ShuttingDown,
            "resetting" => wire::MachineStage::Resetting,
            _ => wire::MachineStage::Unknown,
        };
        wire::MachineStatusSpec {
            stage: stage.into(),
            status: Some(status),
        }
    }
}

/// State of a service; its id is the service's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Whether its process runs.
    pub running: bool,
    /// Whether its last health check succeeded.
    pub healthy: bool,
    /// Whether no health check has finished yet.
    pub unknown: bool,
}

impl Spec for Service {
    const DEFINITION: Definition = open(
        "Services.v1alpha1.talos.dev",
        NAMESPACE,
        &["svc"],
        &[
            column("Running", ".running"),
            column("Healthy", ".healthy"),
            column("Health Unknown", ".unknown"),
        ],
    );

    type Message = ServiceSpec;

    fn message(&self) -> ServiceSpec {
        ServiceSpec {
            running: self.running,
            healthy: self.healthy,
            unknown: self.unknown,
        }
    }
}

/// Process of a running service; its id is the service's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePid {
    /// PID of its first process.
    pub pid: u32,
    /// Mount namespace in the kernel's form: `mnt:[4026531841]` (namespaces(7)).
    pub mount_namespace: String,
}

impl Spec for ServicePid {
    const DEFINITION: Definition = open(
        "ServicePIDs.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("PID", ".pid")],
    );

    type Message = wire::ServicePidSpec;

    fn message(&self) -> wire::ServicePidSpec {
        wire::ServicePidSpec {
            pid: self.pid.try_into().unwrap_or_default(),
            mount_namespace: self.mount_namespace.clone(),
        }
    }
}

/// Whether the devices present at boot are enumerated; id [`DevicesStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DevicesStatus {
    /// Always true: the resource does not exist earlier.
    pub ready: bool,
}

impl DevicesStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "devices";
}

impl Spec for DevicesStatus {
    const DEFINITION: Definition = open(
        "DevicesStatuses.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("Ready", ".ready")],
    );

    type Message = wire::DevicesStatusSpec;

    fn message(&self) -> wire::DevicesStatusSpec {
        let ready = self.ready;
        wire::DevicesStatusSpec { ready }
    }
}

/// A value of META; its id is the tag in the form `0x0a`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetaKey {
    /// The value as text; bytes that are not UTF-8 become U+FFFD.
    pub value: String,
}

impl Spec for MetaKey {
    const DEFINITION: Definition = open(
        "MetaKeys.runtime.talos.dev",
        NAMESPACE,
        &["meta"],
        &[column("Value", ".value")],
    );

    type Message = wire::MetaKeySpec;

    fn message(&self) -> wire::MetaKeySpec {
        let value = self.value.clone();
        wire::MetaKeySpec { value }
    }
}

/// How the previous boot ended; id [`LastStop::ID`]. The node's first boot has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastStop {
    /// `reboot`, `shutdown`, `fatal`, `panic`, `out-of-memory`, `watchdog`, `cut-off`.
    pub reason: Reason,
    /// The requester of the stop, or the failure that caused it.
    pub detail: String,
    /// Time of the stop (RFC 3339); empty if the node could not record it.
    pub time: String,
    /// Boot id of that boot, from the kernel.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// End of the kernel log if the kernel panicked; otherwise that of an earlier panic which that boot ended too early
    /// to report.
    pub kernel_log: String,
    /// Service processes that the kernel killed in that boot for lack of memory, the last 16.
    pub killed: Vec<Kill>,
    /// Why that boot was last locked and how to unlock it; empty if it was not locked.
    pub locked: String,
}

impl LastStop {
    /// Id of the only resource of this type.
    pub const ID: &str = "last";
}

impl Spec for LastStop {
    const DEFINITION: Definition = open(
        "LastStops.runtime.corten.dev",
        NAMESPACE,
        &[],
        &[
            column("Reason", ".reason"),
            column("Detail", ".detail"),
            column("Time", ".time"),
        ],
    );

    type Message = ();

    fn message(&self) {}
}

/// The last upgrade attempt; id [`Upgrade::ID`]. There is none before the first upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upgrade {
    /// Version before the upgrade.
    pub from: String,
    /// Version the upgrade installs.
    pub to: String,
    /// `pending`, `good` or `reverted`.
    pub verdict: &'static str,
    /// Human-readable reason for the verdict; empty while it is pending.
    pub reason: String,
    /// Number of starts of that version until its verdict.
    pub tries: u32,
    /// Start time (RFC 3339).
    pub started: String,
}

impl Upgrade {
    /// Id of the only resource of this type.
    pub const ID: &str = "last";
}

impl Spec for Upgrade {
    const DEFINITION: Definition = open(
        "Upgrades.runtime.corten.dev",
        NAMESPACE,
        &[],
        &[
            column("From", ".from"),
            column("To", ".to"),
            column("Tries", ".tries"),
            column("Verdict", ".verdict"),
            column("Reason", ".reason"),
        ],
    );

    type Message = ();

    fn message(&self) {}
}

/// The kernel's boot id; id `boot-id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootId {
    /// A UUID.
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

impl Spec for BootId {
    const DEFINITION: Definition = open(
        "BootIDs.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("Boot ID", ".bootID")],
    );

    type Message = wire::BootIdSpec;

    fn message(&self) -> wire::BootIdSpec {
        let boot_id = self.boot_id.clone();
        wire::BootIdSpec { boot_id }
    }
}

/// The kernel command line; id [`KernelCmdline::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelCmdline {
    /// The whole line.
    pub cmdline: String,
}

impl KernelCmdline {
    /// Id of the only resource of this type.
    pub const ID: &str = "cmdline";
}

impl Spec for KernelCmdline {
    const DEFINITION: Definition = open(
        "KernelCmdlines.runtime.talos.dev",
        NAMESPACE,
        &["cmdline"],
        &[column("Cmdline", ".cmdline")],
    );

    type Message = wire::KernelCmdlineSpec;

    fn message(&self) -> wire::KernelCmdlineSpec {
        let cmdline = self.cmdline.clone();
        wire::KernelCmdlineSpec { cmdline }
    }
}

/// Version of the system; id `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Version in the form of the Version method's answer.
    pub version: String,
    /// Name of the system.
    pub name: String,
}

impl Spec for Version {
    const DEFINITION: Definition = open(
        "Versions.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("Name", ".name"), column("Version", ".version")],
    );

    type Message = wire::VersionSpec;

    fn message(&self) -> wire::VersionSpec {
        wire::VersionSpec {
            version: self.version.clone(),
            name: self.name.clone(),
        }
    }
}

/// Metadata of the platform; id [`PlatformMetadata::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformMetadata {
    /// Name of the platform: `metal`, `nocloud`, ...
    pub platform: String,
    /// Host name from the platform or the kernel command line.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Region of the machine.
    #[serde(skip_serializing_if = "is_default")]
    pub region: String,
    /// Zone within the region.
    #[serde(skip_serializing_if = "is_default")]
    pub zone: String,
    /// Instance type: the platform's name for the machine's size.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_type: String,
    /// The platform's id of the machine; on `metal` its UUID.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_id: String,
    /// Provider id by which the Kubernetes cloud controller knows the machine.
    #[serde(skip_serializing_if = "is_default")]
    pub provider_id: String,
    /// Whether the platform may reclaim the machine at any time.
    #[serde(skip_serializing_if = "is_default")]
    pub spot: bool,
    /// DNS name inside the platform's network.
    #[serde(rename = "internalDNS", skip_serializing_if = "is_default")]
    pub internal_dns: String,
    /// DNS name outside the platform's network.
    #[serde(rename = "externalDNS", skip_serializing_if = "is_default")]
    pub external_dns: String,
    /// Tags the owner gave the machine.
    #[serde(skip_serializing_if = "is_default")]
    pub tags: BTreeMap<String, String>,
}

impl PlatformMetadata {
    /// Id of the only resource of this type.
    pub const ID: &str = "platformmetadata";
}

impl Spec for PlatformMetadata {
    const DEFINITION: Definition = open(
        "PlatformMetadatas.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Platform", ".platform"),
            column("Type", ".instanceType"),
            column("Region", ".region"),
            column("Zone", ".zone"),
        ],
    );

    type Message = wire::PlatformMetadataSpec;

    fn message(&self) -> wire::PlatformMetadataSpec {
        wire::PlatformMetadataSpec {
            platform: self.platform.clone(),
            hostname: self.hostname.clone(),
            region: self.region.clone(),
            zone: self.zone.clone(),
            instance_type: self.instance_type.clone(),
            instance_id: self.instance_id.clone(),
            provider_id: self.provider_id.clone(),
            spot: self.spot,
            internal_dns: self.internal_dns.clone(),
            external_dns: self.external_dns.clone(),
            tags: self.tags.clone().into_iter().collect(),
        }
    }
}
