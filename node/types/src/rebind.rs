//! Drivers of devices on PCI buses, as the config wants them and as they are. The id is the device's address
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

/// What the config wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PciDriverRebindConfig {
    /// The device's address.
    #[serde(rename = "pciID")]
    pub pci_id: String,
    /// The driver it shall have.
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

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PciDriverRebindStatus {
    /// The device's address.
    #[serde(rename = "pciID")]
    pub pci_id: String,
    /// The driver it shall have.
    #[serde(rename = "targetDriver")]
    pub target_driver: String,
    /// The driver it has; empty for none.
    pub driver: String,
    /// Why it has not the one it shall have, and the remedy; empty when it has.
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
