//! What the node is and does.

use corten_api::talos::resource::definitions::hardware::SystemInformationSpec;
use corten_api::talos::resource::definitions::runtime as wire;
use corten_api::talos::resource::definitions::v1alpha1::ServiceSpec;
use corten_extension::manifest::Metadata;
use corten_resources::{Definition, Spec};
use prost::Message as _;
use serde::Serialize;

use super::{column, open};
use crate::last_stop::Reason;

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

    fn to_proto(&self) -> Option<Vec<u8>> {
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
        let message = wire::MachineStatusSpec {
            stage: stage.into(),
            status: Some(status),
        };
        Some(message.encode_to_vec())
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        let message = ServiceSpec {
            running: self.running,
            healthy: self.healthy,
            unknown: self.unknown,
        };
        Some(message.encode_to_vec())
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        let value = self.value.clone();
        Some(wire::MetaKeySpec { value }.encode_to_vec())
    }
}

/// A system extension in the root file system; its id is its place among them, 0 being the lowest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtensionStatus {
    /// The name of its layer's file.
    pub image: String,
    /// What it says of itself.
    pub metadata: Metadata,
}

impl Spec for ExtensionStatus {
    const DEFINITION: Definition = open(
        "ExtensionStatuses.runtime.talos.dev",
        NAMESPACE,
        &["extensions"],
        &[
            column("Name", ".metadata.name"),
            column("Version", ".metadata.version"),
        ],
    );
}

/// How the boot before this one ended; id [`LastStop::ID`]. There is none on a node's first boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastStop {
    /// `reboot`, `shutdown`, `fatal`, `panic`, `watchdog`, `cut-off`.
    pub reason: Reason,
    /// Who asked for it, or what went wrong.
    pub detail: String,
    /// When (RFC 3339); empty when nobody could write it down.
    pub time: String,
    /// The kernel's number of that boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The kernel's last words, when it panicked.
    pub kernel_log: String,
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
}

/// Whether the clock is right; id [`TimeStatus::ID`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeStatus {
    /// A server's time was taken over, or nobody wants it to be.
    pub synced: bool,
    /// Counts jumps of more than 15 minutes.
    pub epoch: u64,
    /// The node keeps no time.
    pub sync_disabled: bool,
}

impl TimeStatus {
    /// There is one.
    pub const ID: &str = "node";
}

impl Spec for TimeStatus {
    const DEFINITION: Definition = open(
        "TimeStatuses.v1alpha1.talos.dev",
        NAMESPACE,
        &[],
        &[column("Synced", ".synced")],
    );
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
}

/// What the kernel was started with; id `cmdline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelCmdline {
    /// The whole line.
    pub cmdline: String,
}

impl Spec for KernelCmdline {
    const DEFINITION: Definition = open(
        "KernelCmdlines.runtime.talos.dev",
        NAMESPACE,
        &["cmdline"],
        &[column("Cmdline", ".cmdline")],
    );
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        let message = wire::VersionSpec {
            version: self.version.clone(),
            name: self.name.clone(),
        };
        Some(message.encode_to_vec())
    }
}

/// What the firmware says of the machine (SMBIOS type 1); id `systeminformation`. What it does not say is
/// empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemInformation {
    pub manufacturer: String,
    pub product_name: String,
    pub version: String,
    pub bios_version: String,
    pub serialnumber: String,
    pub uuid: String,
    #[serde(rename = "skuNumber")]
    pub sku_number: String,
}

impl Spec for SystemInformation {
    const DEFINITION: Definition = open(
        "SystemInformations.hardware.talos.dev",
        "hardware",
        &["systeminformation"],
        &[
            column("Manufacturer", ".manufacturer"),
            column("ProductName", ".productName"),
            column("Version", ".version"),
            column("SerialNumber", ".serialnumber"),
            column("UUID", ".uuid"),
            column("SKUNumber", ".skuNumber"),
        ],
    );

    fn to_proto(&self) -> Option<Vec<u8>> {
        let message = SystemInformationSpec {
            manufacturer: self.manufacturer.clone(),
            product_name: self.product_name.clone(),
            version: self.version.clone(),
            serial_number: self.serialnumber.clone(),
            uuid: self.uuid.clone(),
            wake_up_type: String::new(),
            sku_number: self.sku_number.clone(),
            bios_version: self.bios_version.clone(),
        };
        Some(message.encode_to_vec())
    }
}
