//! Driver bindings of PCI devices: those of the config and the actual ones. The id is the device's address
//! (`0000:00:1f.2`).

use corten_api::talos::resource::definitions::hardware as wire;
use corten_resources::{Column, Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "hardware";
const COLUMNS: &[Column] = &[
    column("Name", ".name"),
    column("PCI ID", ".pciID"),
    column("TargetDriver", ".targetDriver"),
];

/// A desired driver binding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PciDriverRebindConfig {
    /// Address of the device.
    #[serde(rename = "pciID")]
    pub pci_id: String,
    /// Driver to bind.
    #[serde(rename = "targetDriver")]
    pub target_driver: String,
}

impl Spec for PciDriverRebindConfig {
    const DEFINITION: Definition = open(
        "PCIDriverRebindConfigs.runtime.talos.dev",
        NAMESPACE,
        &[],
        COLUMNS,
    );

    type Message = wire::PciDriverRebindConfigSpec;

    fn message(&self) -> wire::PciDriverRebindConfigSpec {
        wire::PciDriverRebindConfigSpec {
            pciid: self.pci_id.clone(),
            target_driver: self.target_driver.clone(),
        }
    }
}

/// Result of a [`PciDriverRebindConfig`]; same id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PciDriverRebindStatus {
    /// Address of the device.
    #[serde(rename = "pciID")]
    pub pci_id: String,
    /// Driver to bind.
    #[serde(rename = "targetDriver")]
    pub target_driver: String,
    /// Bound driver; empty if none is bound.
    pub driver: String,
    /// Reason why the driver is not bound, and the remedy; empty if it is bound.
    #[serde(skip_serializing_if = "is_default")]
    pub error: String,
}

impl Spec for PciDriverRebindStatus {
    const DEFINITION: Definition = open(
        "PCIDriverRebindStatuses.runtime.talos.dev",
        NAMESPACE,
        &["pcidriverrebinds"],
        COLUMNS,
    );

    type Message = wire::PciDriverRebindStatusSpec;

    fn message(&self) -> wire::PciDriverRebindStatusSpec {
        wire::PciDriverRebindStatusSpec {
            pciid: self.pci_id.clone(),
            target_driver: self.target_driver.clone(),
        }
    }
}
