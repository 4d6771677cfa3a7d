//! Block devices, disks and their contents.

use corten_api::talos::resource::definitions::block as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// A block device of any kind; its id is the kernel's name (`vda1`, `loop2`, `dm-0`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// `disk` or `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub major: u32,
    pub minor: u32,
    /// Name of a partition in the partition table.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_name: String,
    /// Partition number, from 1; 0 for a disk.
    #[serde(skip_serializing_if = "is_default")]
    pub partition_number: u32,
    /// Path below `/sys`.
    pub device_path: String,
    /// Counter that grows whenever a property of the device may have changed.
    pub generation: u32,
    /// Disk of a partition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Lower devices it consists of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secondaries: Vec<String>,
}

impl Spec for BlockDevice {
    const DEFINITION: Definition = open(
        "BlockDevices.block.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Type", ".type"),
            column("PartitionName", ".partitionName"),
            column("Generation", ".generation"),
        ],
    );

    type Message = wire::DeviceSpec;

    fn message(&self) -> wire::DeviceSpec {
        wire::DeviceSpec {
            r#type: self.kind.to_owned(),
            major: self.major.into(),
            minor: self.minor.into(),
            partition_name: self.partition_name.clone(),
            partition_number: self.partition_number.into(),
            generation: self.generation.into(),
            device_path: self.device_path.clone(),
            parent: self.parent.clone(),
            secondaries: self.secondaries.clone(),
        }
    }
}

/// A disk; its id is the kernel's name (`vda`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Device path: `/dev/vda`.
    pub dev_path: String,
    /// Size in bytes.
    pub size: u64,
    /// Size for people.
    pub pretty_size: String,
    /// Optimal I/O size in bytes.
    pub io_size: u64,
    /// Logical sector size in bytes.
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
    /// Path of the controller below `/sys/devices`.
    pub bus_path: String,
    pub sub_system: String,
    /// Transport: `virtio`, `nvme`, `sata`, `usb`, ...
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transport: String,
    pub rotational: bool,
    /// Other names in `/dev`.
    pub symlinks: Vec<String>,
    /// The kernel's sequence number of the disk, unique in this boot; 0 if the kernel reports none.
    #[serde(skip)]
    pub sequence: u64,
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

    type Message = wire::DiskSpec;

    fn message(&self) -> wire::DiskSpec {
        wire::DiskSpec {
            size: self.size,
            io_size: self.io_size,
            sector_size: self.sector_size,
            readonly: self.readonly,
            model: self.model.clone(),
            serial: self.serial.clone(),
            modalias: self.modalias.clone(),
            wwid: self.wwid.clone(),
            bus_path: self.bus_path.clone(),
            sub_system: self.sub_system.clone(),
            transport: self.transport.clone(),
            rotational: self.rotational,
            cdrom: self.cdrom,
            dev_path: self.dev_path.clone(),
            pretty_size: self.pretty_size.clone(),
            symlinks: self.symlinks.clone(),
        }
    }
}

/// Stable names of a device, independent of the order of discovery; its id is the kernel's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockSymlinks {
    /// Links below `/dev/disk`, sorted.
    pub paths: Vec<String>,
}

impl Spec for BlockSymlinks {
    const DEFINITION: Definition = open("BlockSymlinks.block.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::SymlinkSpec;

    fn message(&self) -> wire::SymlinkSpec {
        wire::SymlinkSpec {
            paths: self.paths.clone(),
        }
    }
}

/// Whether the disks present at boot and their contents are known; id [`DiscoveredVolumesStatus::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiscoveredVolumesStatus {
    /// Whether discovery is complete.
    pub ready: bool,
}

impl DiscoveredVolumesStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "discovered-volumes-status";
}

impl Spec for DiscoveredVolumesStatus {
    const DEFINITION: Definition = open(
        "DiscoveredVolumesStatuses.block.talos.dev",
        NAMESPACE,
        &[],
        &[column("Ready", ".ready")],
    );

    type Message = wire::DiscoveredVolumesStatusSpec;

    fn message(&self) -> wire::DiscoveredVolumesStatusSpec {
        wire::DiscoveredVolumesStatusSpec { ready: self.ready }
    }
}

/// The disk the node runs from; id [`SystemDisk::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemDisk {
    #[serde(rename = "diskID")]
    pub disk_id: String,
    pub dev_path: String,
}

impl SystemDisk {
    /// Id of the only resource of this type; it may be absent.
    pub const ID: &str = "system-disk";
}

impl Spec for SystemDisk {
    const DEFINITION: Definition = open(
        "SystemDisks.block.talos.dev",
        NAMESPACE,
        &[],
        &[column("Disk", ".diskID")],
    );

    type Message = wire::SystemDiskSpec;

    fn message(&self) -> wire::SystemDiskSpec {
        wire::SystemDiskSpec {
            disk_id: self.disk_id.clone(),
            dev_path: self.dev_path.clone(),
        }
    }
}

/// A disk or partition and its detected content; its id is the kernel's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiscoveredVolume {
    pub dev_path: String,
    /// `disk` or `partition`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Disk of a partition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Size in bytes.
    pub size: u64,
    /// Size for people.
    pub pretty_size: String,
    /// Detected content: a file system, a volume container (`luks`, `lvm2-pv`) or a partition table (`gpt`).
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
    /// Partition number, from 1; 0 for a disk.
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
            column("PartitionLabel", ".partition_label"),
        ],
    );

    type Message = wire::DiscoveredVolumeSpec;

    fn message(&self) -> wire::DiscoveredVolumeSpec {
        wire::DiscoveredVolumeSpec {
            size: self.size,
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            partition_uuid: self.partition_uuid.clone(),
            partition_type: self.partition_type.clone(),
            partition_label: self.partition_label.clone(),
            partition_index: self.partition_index,
            r#type: self.kind.to_owned(),
            parent: self.parent.clone(),
            dev_path: self.dev_path.clone(),
            pretty_size: self.pretty_size.clone(),
        }
    }
}

/// Active swap space; its id is the device's path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwapStatus {
    /// Device path: `/dev/dm-1`.
    pub device: String,
    /// `partition` or `file`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Size in bytes.
    pub size: u64,
    /// Size for people.
    pub size_human: String,
    /// Used space in bytes.
    pub used: u64,
    /// Used space for people.
    pub used_human: String,
    /// Priority: the kernel uses the highest first and assigns negative values itself.
    pub priority: i32,
}

impl Spec for SwapStatus {
    const DEFINITION: Definition = open(
        "SwapStatuses.block.talos.dev",
        NAMESPACE,
        &["swap", "swaps"],
        &[
            column("Device", ".device"),
            column("Size", ".sizeHuman"),
            column("Used", ".usedHuman"),
            column("Priority", ".priority"),
        ],
    );

    type Message = wire::SwapStatusSpec;

    fn message(&self) -> wire::SwapStatusSpec {
        wire::SwapStatusSpec {
            device: self.device.clone(),
            size_bytes: self.size,
            size_human: self.size_human.clone(),
            used_bytes: self.used,
            used_human: self.used_human.clone(),
            priority: self.priority,
            r#type: self.kind.clone(),
        }
    }
}
