//! What the node is and does.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_api::talos::resource::definitions::v1alpha1::ServiceSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};
use crate::stop::Kill;
use crate::stop::Reason;

const NAMESPACE: &str = "runtime";

/// Something a node is not ready for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnmetCondition {
    /// What it waits for: `services`, `network`.
    pub name: String,
    /// Why it still waits, for a person.
    pub reason: String,
}

/// Part of [`MachineStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// The node does what it is there for.
    pub ready: bool,
    /// What it lacks, while it could be ready.
    pub unmet_conditions: Vec<UnmetCondition>,
}

/// What the node does now; id [`MachineStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    /// `booting`, `maintenance`, `running`, `rebooting`, `shutting down`, `resetting`.
    pub stage: &'static str,
    /// How well.
    pub status: Readiness,
}

impl MachineStatus {
    /// There is one.
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

/// A service; its id is the service's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Its process is there.
    pub running: bool,
    /// Its last health answer was good.
    pub healthy: bool,
    /// There was no health answer yet.
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

/// The process of a service that runs; its id is the service's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePid {
    /// Of its first process.
    pub pid: u32,
    /// As the kernel names it: `mnt:[4026531841]` (namespaces(7)).
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

/// The devices the machine was started with are known; id [`DevicesStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DevicesStatus {
    /// There is none before.
    pub ready: bool,
}

impl DevicesStatus {
    /// There is one.
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

/// A value of META; its id is the tag as `0x0a`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetaKey {
    /// As text; bytes that are none are shown as U+FFFD.
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

/// How the boot before this one ended; id [`LastStop::ID`]. There is none on a node's first boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastStop {
    /// `reboot`, `shutdown`, `fatal`, `panic`, `out-of-memory`, `watchdog`, `cut-off`.
    pub reason: Reason,
    /// Who asked for it, or what went wrong.
    pub detail: String,
    /// When (RFC 3339); empty when nobody could write it down.
    pub time: String,
    /// The kernel's number of that boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The kernel's last words, when it panicked; else those of a panic before it that it could not tell any more.
    pub kernel_log: String,
    /// Processes of services that the kernel killed in that boot because memory ran out, the last 16.
    pub killed: Vec<Kill>,
    /// Why that boot was locked, the last time it was, and what to do; empty: it was not.
    pub locked: String,
}

impl LastStop {
    /// There is one.
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

/// The version that was tried last; id [`Upgrade::ID`]. There is none before the first upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upgrade {
    /// The version that ran.
    pub from: String,
    /// The version that is tried.
    pub to: String,
    /// `pending`, `good` or `reverted`.
    pub verdict: &'static str,
    /// Why, for a person; empty while it is pending.
    pub reason: String,
    /// When it began (RFC 3339).
    pub started: String,
}

impl Upgrade {
    /// There is one.
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
            column("Verdict", ".verdict"),
            column("Reason", ".reason"),
        ],
    );

    type Message = ();

    fn message(&self) {}
}

/// The kernel's number of this boot; id `boot-id`.
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

/// What the kernel was started with; id [`KernelCmdline::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelCmdline {
    /// The whole line.
    pub cmdline: String,
}

impl KernelCmdline {
    /// There is one.
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

/// What the node runs; id `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// As the Version method answers it.
    pub version: String,
    /// The system's name.
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

/// What is known of the platform the node is on; id [`PlatformMetadata::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformMetadata {
    /// `metal`, `nocloud`, ...
    pub platform: String,
    /// The name that the platform or the kernel's parameters give.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Where the machine is.
    #[serde(skip_serializing_if = "is_default")]
    pub region: String,
    /// Where in that.
    #[serde(skip_serializing_if = "is_default")]
    pub zone: String,
    /// How large the machine is.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_type: String,
    /// The platform's number of the machine; on `metal` its UUID.
    #[serde(skip_serializing_if = "is_default")]
    pub instance_id: String,
    /// By which Kubernetes' cloud controller knows the machine.
    #[serde(skip_serializing_if = "is_default")]
    pub provider_id: String,
    /// Whether the platform may take the machine away at any time.
    #[serde(skip_serializing_if = "is_default")]
    pub spot: bool,
    /// Its name inside the platform's network.
    #[serde(rename = "internalDNS", skip_serializing_if = "is_default")]
    pub internal_dns: String,
    /// Its name outside.
    #[serde(rename = "externalDNS", skip_serializing_if = "is_default")]
    pub external_dns: String,
    /// What its owner says of it.
    #[serde(skip_serializing_if = "is_default")]
    pub tags: BTreeMap<String, String>,
}

impl PlatformMetadata {
    /// There is one.
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
