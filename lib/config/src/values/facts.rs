//! What expressions are asked about: links, disks, volumes. Names of variables and fields are those of the reference,
//! the fields being the names in the messages of the API.

use std::collections::HashMap;

use cel::Value;

/// Something an expression chooses.
pub trait Subject: Sync {
    /// What it is asked by.
    const VARIABLES: &'static [&'static str];
    /// One that answers every question.
    fn sample() -> Self;
    /// The variables' values, in their order.
    fn values(&self) -> Vec<Value>;
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields: HashMap<&str, Value> = fields.into_iter().collect();
    Value::from(fields)
}

fn text(text: &str) -> Value {
    Value::from(text)
}

/// What is asked of a link, as `link.NAME`: fields of `LinkStatusSpec`.
#[derive(Debug, Clone, Default)]
pub struct LinkFacts {
    /// The kernel's number.
    pub index: u32,
    /// Of the hardware: `ARPHRD_*` of `linux/if_arp.h`.
    pub kind_of_hardware: u32,
    /// Bytes of the hardware address.
    pub hardware_addr: Vec<u8>,
    /// Those it was built with; empty where it says none.
    pub permanent_addr: Vec<u8>,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Of a link that software made.
    pub kind: String,
    /// Where the device sits.
    pub bus_path: String,
    /// The device's vendor and product.
    pub pci_id: String,
    /// The device's driver.
    pub driver: String,
    /// Whether there is a carrier.
    pub link_state: bool,
    /// Other names of it.
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

/// What is asked of a disk, as `disk.NAME`: fields of `DiskSpec`; and `system_disk`.
#[derive(Debug, Clone, Default)]
pub struct DiskFacts {
    /// `/dev/vda`.
    pub dev_path: String,
    /// In bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// The unit it likes to be read in, in bytes.
    pub io_size: u64,
    /// The unit it can be read in, in bytes.
    pub sector_size: u64,
    /// Nothing can be written to it.
    pub readonly: bool,
    /// It reads CDs.
    pub cdrom: bool,
    /// What it is sold as.
    pub model: String,
    /// Its maker's number.
    pub serial: String,
    /// By which its driver is found.
    pub modalias: String,
    /// Its name in the world.
    pub wwid: String,
    /// The controller's place below `/sys/devices`.
    pub bus_path: String,
    /// Below `/sys`.
    pub sub_system: String,
    /// `virtio`, `nvme`, `sata`, `usb`, ...
    pub transport: String,
    /// It turns.
    pub rotational: bool,
    /// Its other names in `/dev`.
    pub symlinks: Vec<String>,
    /// It carries the node.
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

/// What is asked of a disk or partition and of what is on it, as `volume.NAME`: fields of
/// `DiscoveredVolumeSpec`; and `disk`, which it lies on.
#[derive(Debug, Clone, Default)]
pub struct VolumeFacts {
    /// `/dev/vda1`.
    pub dev_path: String,
    /// `disk` or `partition`.
    pub kind: String,
    /// A partition's disk, such as `vda`.
    pub parent: String,
    /// In bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// The file system, such as `xfs`.
    pub name: String,
    /// The file system's.
    pub uuid: String,
    /// The file system's.
    pub label: String,
    /// The partition's.
    pub partition_uuid: String,
    /// The partition's, a UUID.
    pub partition_type: String,
    /// The partition's name.
    pub partition_label: String,
    /// From 1; 0 for a disk.
    pub partition_index: u64,
    /// What it lies on.
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
