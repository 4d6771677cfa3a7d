//! Facts for expressions about links, disks and volumes. Variables and fields have the reference's names; the fields
//! are named as in the API's messages.

use std::collections::HashMap;

use cel::Value;

/// An object that an expression can select.
pub trait Subject: Sync {
    /// Names of the variables.
    const VARIABLES: &'static [&'static str];
    /// An instance with all fields set, for checks.
    fn sample() -> Self;
    /// Values of the variables, in the same order.
    fn values(&self) -> Vec<Value>;
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields: HashMap<&str, Value> = fields.into_iter().collect();
    Value::from(fields)
}

fn text(text: &str) -> Value {
    Value::from(text)
}

/// Facts of a link, as `link.NAME`: fields of `LinkStatusSpec`.
#[derive(Debug, Clone, Default)]
pub struct LinkFacts {
    /// Index in the kernel.
    pub index: u32,
    /// Hardware type: `ARPHRD_*` of `linux/if_arp.h`.
    pub kind_of_hardware: u32,
    /// Hardware address in bytes.
    pub hardware_addr: Vec<u8>,
    /// Permanent hardware address in bytes; empty when the device reports none.
    pub permanent_addr: Vec<u8>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Kind of a virtual link.
    pub kind: String,
    /// Position of the device on its bus.
    pub bus_path: String,
    /// Vendor and product of the device.
    pub pci_id: String,
    /// Driver of the device.
    pub driver: String,
    /// Whether the link has a carrier.
    pub link_state: bool,
    /// Alternative names.
    pub alt_names: Vec<String>,
}

impl Subject for LinkFacts {
    const VARIABLES: &'static [&'static str] = &["link"];

    fn sample() -> LinkFacts {
        LinkFacts {
            hardware_addr: vec![2, 0, 0, 0, 0, 1],
            permanent_addr: vec![2, 0, 0, 0, 0, 1],
            alt_names: vec!["enp0s1".to_owned()],
            mtu: 1500,
            ..LinkFacts::default()
        }
    }

    fn values(&self) -> Vec<Value> {
        let bytes = |bytes: &[u8]| Value::from(bytes.to_vec());
        vec![fields([
            ("index", Value::from(self.index)),
            ("type", Value::from(self.kind_of_hardware)),
            ("hardware_addr", bytes(&self.hardware_addr)),
            ("permanent_addr", bytes(&self.permanent_addr)),
            ("mtu", Value::from(self.mtu)),
            ("kind", text(&self.kind)),
            ("bus_path", text(&self.bus_path)),
            ("pciid", text(&self.pci_id)),
            ("driver", text(&self.driver)),
            ("link_state", Value::from(self.link_state)),
            ("alt_names", Value::from(self.alt_names.clone())),
        ])]
    }
}

/// Facts of a disk, as `disk.NAME`: fields of `DiskSpec`; and `system_disk`.
#[derive(Debug, Clone, Default)]
pub struct DiskFacts {
    /// Device node: `/dev/vda`.
    pub dev_path: String,
    /// Size in bytes.
    pub size: u64,
    /// Size for people.
    pub pretty_size: String,
    /// Preferred I/O size in bytes.
    pub io_size: u64,
    /// Sector size in bytes.
    pub sector_size: u64,
    /// Whether it is read-only.
    pub readonly: bool,
    /// Whether it is a CD drive.
    pub cdrom: bool,
    /// Model.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Modalias, by which the kernel finds the driver.
    pub modalias: String,
    /// World-wide id.
    pub wwid: String,
    /// Path of the controller below `/sys/devices`.
    pub bus_path: String,
    /// Subsystem below `/sys`.
    pub sub_system: String,
    /// Transport: `virtio`, `nvme`, `sata`, `usb`, ...
    pub transport: String,
    /// Whether it is a rotating disk.
    pub rotational: bool,
    /// Further names in `/dev`.
    pub symlinks: Vec<String>,
    /// Whether it is the node's system disk.
    pub is_system: bool,
}

impl DiskFacts {
    fn value(&self) -> Value {
        fields([
            ("dev_path", text(&self.dev_path)),
            ("size", Value::from(self.size)),
            ("pretty_size", text(&self.pretty_size)),
            ("io_size", Value::from(self.io_size)),
            ("sector_size", Value::from(self.sector_size)),
            ("readonly", Value::from(self.readonly)),
            ("cdrom", Value::from(self.cdrom)),
            ("model", text(&self.model)),
            ("serial", text(&self.serial)),
            ("modalias", text(&self.modalias)),
            ("wwid", text(&self.wwid)),
            ("bus_path", text(&self.bus_path)),
            ("sub_system", text(&self.sub_system)),
            ("transport", text(&self.transport)),
            ("rotational", Value::from(self.rotational)),
            ("symlinks", Value::from(self.symlinks.clone())),
        ])
    }
}

impl Subject for DiskFacts {
    const VARIABLES: &'static [&'static str] = &["disk", "system_disk"];

    fn sample() -> DiskFacts {
        DiskFacts {
            symlinks: vec!["/dev/disk/by-path/pci-0".to_owned()],
            ..DiskFacts::default()
        }
    }

    fn values(&self) -> Vec<Value> {
        vec![self.value(), Value::from(self.is_system)]
    }
}

/// Facts of a disk or partition and its content, as `volume.NAME`: fields of `DiscoveredVolumeSpec`; and `disk`, its
/// disk.
#[derive(Debug, Clone, Default)]
pub struct VolumeFacts {
    /// Device node: `/dev/vda1`.
    pub dev_path: String,
    /// Kind: `disk` or `partition`.
    pub kind: String,
    /// Disk of a partition, such as `vda`.
    pub parent: String,
    /// Size in bytes.
    pub size: u64,
    /// Size for people.
    pub pretty_size: String,
    /// File system, such as `xfs`.
    pub name: String,
    /// UUID of the file system.
    pub uuid: String,
    /// Label of the file system.
    pub label: String,
    /// UUID of the partition.
    pub partition_uuid: String,
    /// Type of the partition, a UUID.
    pub partition_type: String,
    /// Label of the partition.
    pub partition_label: String,
    /// Number of the partition from 1; 0 for a disk.
    pub partition_index: u64,
    /// Its disk.
    pub disk: DiskFacts,
}

impl Subject for VolumeFacts {
    const VARIABLES: &'static [&'static str] = &["volume", "disk"];

    fn sample() -> VolumeFacts {
        VolumeFacts {
            disk: DiskFacts::sample(),
            ..VolumeFacts::default()
        }
    }

    fn values(&self) -> Vec<Value> {
        let volume = fields([
            ("dev_path", text(&self.dev_path)),
            ("type", text(&self.kind)),
            ("parent", text(&self.parent)),
            ("parent_dev_path", text(&self.disk.dev_path)),
            ("size", Value::from(self.size)),
            ("pretty_size", text(&self.pretty_size)),
            ("name", text(&self.name)),
            ("uuid", text(&self.uuid)),
            ("label", text(&self.label)),
            ("partition_uuid", text(&self.partition_uuid)),
            ("partition_type", text(&self.partition_type)),
            ("partition_label", text(&self.partition_label)),
            ("partition_index", Value::from(self.partition_index)),
            ("sector_size", Value::from(self.disk.sector_size)),
            ("io_size", Value::from(self.disk.io_size)),
        ]);
        vec![volume, self.disk.value()]
    }
}
