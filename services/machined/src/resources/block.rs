//! Disks and what is on them.

use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "runtime";

/// A disk; its id is the kernel's name (`vda`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// `/dev/vda`.
    pub dev_path: String,
    /// In bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// The unit the disk likes to be read in, in bytes.
    pub io_size: u64,
    /// The unit it can be read in, in bytes.
    pub sector_size: u64,
    pub readonly: bool,
    pub cdrom: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub modalias: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwid: String,
    /// The controller's place below `/sys/devices`.
    pub bus_path: String,
    pub sub_system: String,
    /// `virtio`, `nvme`, `sata`, `usb`, ...
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transport: String,
    pub rotational: bool,
    /// Its other names in `/dev`.
    pub symlinks: Vec<String>,
}

impl Spec for Disk {
    const DEFINITION: Definition = open(
        "Disks.block.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Size", ".pretty_size"),
            column("Read Only", ".readonly"),
            column("Transport", ".transport"),
            column("Rotational", ".rotational"),
            column("WWID", ".wwid"),
            column("Model", ".model"),
            column("Serial", ".serial"),
        ],
    );
}

/// The disk that carries the node; id [`SystemDisk::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemDisk {
    #[serde(rename = "diskID")]
    pub disk_id: String,
    pub dev_path: String,
}

impl SystemDisk {
    /// There is one, or none.
    pub const ID: &str = "system-disk";
}

impl Spec for SystemDisk {
    const DEFINITION: Definition = open(
        "SystemDisks.block.talos.dev",
        NAMESPACE,
        &[],
        &[column("Disk", ".diskID")],
    );
}

/// A disk or partition and what was found on it; its id is the kernel's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiscoveredVolume {
    pub dev_path: String,
    /// `disk` or `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// A partition's disk.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// In bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// A file system, a container of volumes (`luks`, `lvm2-pv`), a partition table (`gpt`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_uuid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_label: String,
    /// From 1; 0 for a disk.
    pub partition_index: u64,
}

impl Spec for DiscoveredVolume {
    const DEFINITION: Definition = open(
        "DiscoveredVolumes.block.talos.dev",
        NAMESPACE,
        &["discoveredvolumes", "dv"],
        &[
            column("Type", ".type"),
            column("Size", ".pretty_size"),
            column("Discovered", ".name"),
            column("Label", ".label"),
            column("Partition Label", ".partition_label"),
        ],
    );
}
