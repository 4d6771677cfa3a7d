//! Reads one block device from sysfs and udevd's database.

use std::fs;
use std::path::{Path, PathBuf};

use corten_base::sysfs::read;
use corten_types::block::{BlockDevice, BlockSymlinks, DiscoveredVolume, Disk};

use super::record::Record;
use crate::uevents::Told;

/// Unit of sizes in sysfs, regardless of the disk's sector size.
const SECTOR: u64 = 512;
/// Name prefixes of devices that are not disks: devices on memory or files, and compositions of other devices.
const NO_DISKS: [&str; 6] = ["loop", "ram", "zram", "dm-", "fd", "nbd"];

/// Directories to read.
#[derive(Debug, Clone)]
pub(super) struct System {
    pub(super) sysfs: PathBuf,
    /// udevd's database.
    pub(super) records: PathBuf,
}

/// Facts about a disk or partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The kernel's name.
    pub(super) name: String,
    pub(super) block_device: BlockDevice,
    pub(super) symlinks: BlockSymlinks,
    /// `None` for a device without data of its own.
    pub(super) volume: Option<DiscoveredVolume>,
    /// `None` for a partition as well, and for a device without data of its own.
    pub(super) disk: Option<Disk>,
}

/// A disk or partition.
#[derive(Debug, Clone)]
struct Device {
    name: String,
    /// Whether it, or its disk, has data of its own and a medium.
    is_storage: bool,
    /// Path in sysfs, with all links resolved.
    path: PathBuf,
    parent: Option<String>,
    size: u64,
    record: Record,
}

impl System {
    pub(super) fn of_this_machine() -> System {
        System {
            sysfs: "/sys".into(),
            records: "/run/udev/data".into(),
        }
    }

    /// All disks, each followed by its partitions. The disks themselves are read and may answer slowly.
    pub(super) fn devices(&self, told: &Told) -> Vec<Found> {
        let devices = self.read();
        let found = devices.iter().map(|device| Found {
            name: device.name.clone(),
            block_device: device.block_device(told.times(&device.name)),
            symlinks: device.symlinks(),
            volume: device.volume(),
            disk: device.disk(),
        });
        found.collect()
    }

    fn read(&self) -> Vec<Device> {
        let mut all = Vec::new();
        for disk in entries(&self.sysfs.join("block")) {
            let Some(device) = self.device(&disk, None) else {
                continue;
            };
            let partitions = entries(&device.path)
                .into_iter()
                .filter(|name| device.path.join(name).join("partition").exists())
                .filter_map(|name| self.device(&name, Some(&device)));
            let partitions: Vec<Device> = partitions.collect();
            all.push(device);
            all.extend(partitions);
        }
        all
    }

    fn device(&self, name: &str, disk: Option<&Device>) -> Option<Device> {
        let path = match disk {
            Some(disk) => disk.path.join(name),
            None => fs::canonicalize(self.sysfs.join("block").join(name)).ok()?,
        };
        let number = read(&path.join("dev"));
        let sectors: u64 = read(&path.join("size")).parse().unwrap_or_default();
        let size = sectors.saturating_mul(SECTOR);
        let is_disk = || size > 0 && !NO_DISKS.iter().any(|prefix| name.starts_with(prefix));
        Some(Device {
            name: name.to_owned(),
            is_storage: disk.map_or_else(is_disk, |disk| disk.is_storage),
            record: Record::parse(&read(&self.records.join(format!("b{number}")))),
            parent: disk.map(|disk| disk.name.clone()),
            size,
            path,
        })
    }
}

/// The names in a directory, sorted.
fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|name| name.into_string().ok()).collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

impl Device {
    /// The device of any kind; `generation` counts possible changes.
    fn block_device(&self, generation: u32) -> BlockDevice {
        let number = read(&self.path.join("dev"));
        let (major, minor) = number.split_once(':').unwrap_or_default();
        BlockDevice {
            kind: self.kind(),
            major: major.parse().unwrap_or_default(),
            minor: minor.parse().unwrap_or_default(),
            partition_name: self.record.text("ID_PART_ENTRY_NAME"),
            partition_number: self.partition_number(),
            device_path: self.path.to_string_lossy().into_owned(),
            generation,
            parent: self.parent.clone().unwrap_or_default(),
            secondaries: entries(&self.path.join("slaves")),
        }
    }

    /// The stable links, named by identity and location.
    fn symlinks(&self) -> BlockSymlinks {
        let all = self.record.symlinks.iter();
        let stable = all.filter(|link| link.starts_with("/dev/disk/"));
        let mut paths: Vec<String> = stable.cloned().collect();
        paths.sort();
        BlockSymlinks { paths }
    }

    fn kind(&self) -> &'static str {
        if self.parent.is_some() {
            "partition"
        } else {
            "disk"
        }
    }

    fn partition_number(&self) -> u32 {
        read(&self.path.join("partition"))
            .parse()
            .unwrap_or_default()
    }

    /// `None` for a partition, and for a device without data of its own.
    fn disk(&self) -> Option<Disk> {
        if self.parent.is_some() || !self.is_storage {
            return None;
        }
        let text = |file: &str| read(&self.path.join(file));
        let number = |file: &str| text(file).parse::<u64>().unwrap_or_default();
        // The disk's own value, or else that of udevd.
        let first = |candidates: [String; 3]| candidates.into_iter().find(|text| !text.is_empty());
        let serial = [
            text("device/serial"),
            text("serial"),
            self.record.get("ID_SERIAL_SHORT"),
        ];
        let wwid = [text("wwid"), text("device/wwid"), self.record.get("ID_WWN")];
        Some(Disk {
            dev_path: format!("/dev/{}", self.name),
            size: self.size,
            pretty_size: pretty(self.size),
            io_size: number("queue/optimal_io_size").max(number("queue/minimum_io_size")),
            sector_size: number("queue/logical_block_size"),
            readonly: text("ro") == "1",
            cdrom: self.name.starts_with("sr"),
            model: text("device/model"),
            serial: first(serial).unwrap_or_default(),
            modalias: text("device/modalias"),
            wwid: first(wwid).unwrap_or_default(),
            bus_path: self.bus_path(),
            sub_system: "/sys/class/block".to_owned(),
            transport: self.transport().to_owned(),
            rotational: text("queue/rotational") == "1",
            symlinks: self.record.symlinks.clone(),
            sequence: number("diskseq"),
        })
    }

    /// `None` for a device without data of its own.
    fn volume(&self) -> Option<DiscoveredVolume> {
        if !self.is_storage {
            return None;
        }
        let mut found = self.record.get("ID_FS_TYPE");
        // A partition's record names the table that contains it.
        if found.is_empty() && self.parent.is_none() {
            found = self.record.get("ID_PART_TABLE_TYPE");
        }
        let table = self.parent.is_none() && self.record.get("ID_FS_UUID").is_empty();
        let uuid = if table {
            "ID_PART_TABLE_UUID"
        } else {
            "ID_FS_UUID"
        };
        Some(DiscoveredVolume {
            dev_path: format!("/dev/{}", self.name),
            kind: self.kind(),
            parent: self.parent.clone().unwrap_or_default(),
            size: self.size,
            pretty_size: pretty(self.size),
            name: known_name(&found).to_owned(),
            uuid: self.record.get(uuid),
            label: self.record.text("ID_FS_LABEL_ENC"),
            partition_uuid: self.record.get("ID_PART_ENTRY_UUID"),
            partition_type: self.record.get("ID_PART_ENTRY_TYPE"),
            partition_label: self.record.text("ID_PART_ENTRY_NAME"),
            partition_index: self.partition_number().into(),
        })
    }

    /// Path of the controller: the part above the disk's own directories.
    fn bus_path(&self) -> String {
        let path = self.path.to_string_lossy();
        let below = path.split_once("/devices").map_or("", |(_, below)| below);
        let end = below.find("/block/").unwrap_or(below.len());
        below.get(..end).unwrap_or_default().to_owned()
    }

    fn transport(&self) -> &'static str {
        let path = self.bus_path();
        // The entry nearest to the disk decides: a disk behind USB is on PCI as well.
        let known = [
            ("/usb", "usb"),
            ("/mmc", "mmc"),
            ("/nvme", "nvme"),
            ("/session", "iscsi"),
            ("/rport-", "fc"),
            ("/end_device-", "sas"),
            ("/ata", "sata"),
            ("/virtio", "virtio"),
            ("/vmbus", "hyperv"),
        ];
        known
            .iter()
            .find(|(part, _)| path.contains(part))
            .map_or("", |(_, name)| name)
    }
}

/// The reference's names of contents that libblkid names differently.
fn known_name(found: &str) -> &str {
    match found {
        "crypto_LUKS" => "luks",
        "LVM2_member" => "lvm2-pv",
        other => other,
    }
}

/// Decimal units, as usual for disks.
fn pretty(bytes: u64) -> String {
    in_units(bytes, 1000, ["kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Binary units, as usual for memory.
pub(super) fn pretty_binary(bytes: u64) -> String {
    in_units(bytes, 1024, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Formats with one decimal below ten units; each unit is `step` times the one before.
fn in_units(bytes: u64, step: u64, units: [&str; 6]) -> String {
    let mut shown = (bytes, 0, "B");
    for unit in units {
        let (whole, _, _) = shown;
        if whole < step {
            break;
        }
        shown = (whole / step, whole % step * 1000 / step, unit);
    }
    let (whole, thousandths, unit) = shown;
    if whole >= 10 || unit == "B" {
        let up = u64::from(thousandths >= 500);
        return format!("{} {unit}", whole.saturating_add(up));
    }
    let tenths = whole
        .saturating_mul(10)
        .saturating_add(thousandths.saturating_add(50) / 100);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uevents::Message;

    #[test]
    fn sizes_are_human_readable() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_474_560, "1.5 MB"),
            (8_589_934_592, "8.6 GB"),
            (107_374_182_400, "107 GB"),
            (9_960_000, "10.0 MB"),
        ] {
            assert_eq!(pretty(bytes), text);
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (1_048_571_904, "1000 MiB"),
            (2 << 30, "2.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(pretty_binary(bytes), text);
        }
    }

    #[test]
    fn a_disk_and_its_partitions_are_described() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let disk = "sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda";
        for (file, text) in [
            ("dev", "254:0\n"),
            ("size", "16777216\n"),
            ("ro", "0\n"),
            ("diskseq", "9\n"),
            ("serial", "disk-1\n"),
            ("queue/rotational", "1\n"),
            ("queue/logical_block_size", "512\n"),
            ("queue/minimum_io_size", "512\n"),
            ("queue/optimal_io_size", "0\n"),
            ("vda3/dev", "254:3\n"),
            ("vda3/size", "2048\n"),
            ("vda3/partition", "3\n"),
        ] {
            write(&format!("{disk}/{file}"), text);
        }
        write("sys/devices/virtual/block/loop0/size", "8\n");
        write(
            "udev/b254:0",
            "S:disk/by-path/x\nE:ID_PART_TABLE_TYPE=gpt\nE:ID_PART_TABLE_UUID=u\nI:1\n",
        );
        let record = "E:ID_PART_ENTRY_NAME=META\nE:ID_PART_TABLE_TYPE=gpt\nnonsense\nE:\n";
        write("udev/b254:3", record);
        fs::create_dir_all(root.path().join("sys/block")).unwrap();
        for (name, target) in [
            ("vda", root.path().join(disk)),
            ("loop0", root.path().join("sys/devices/virtual/block/loop0")),
        ] {
            std::os::unix::fs::symlink(target, root.path().join("sys/block").join(name)).unwrap();
        }
        let system = System {
            sysfs: root.path().join("sys"),
            records: root.path().join("udev"),
        };
        let mut told = Told::default();
        told.count(&Message::of("ACTION=add\0DEVNAME=/dev/vda3\0"));
        let devices = system.devices(&told);
        let [loop0, vda, vda3] = devices.as_slice() else {
            panic!("{devices:?}");
        };
        assert_eq!(loop0.block_device.kind, "disk");
        assert_eq!((&loop0.disk, &loop0.volume), (&None, &None));
        let device = &vda3.block_device;
        assert_eq!((device.major, device.minor, device.generation), (254, 3, 2));
        assert_eq!((&*device.partition_name, &*device.parent), ("META", "vda"));
        assert_eq!((device.kind, device.partition_number), ("partition", 3));
        let disk = vda.disk.as_ref().unwrap();
        assert_eq!(disk.pretty_size, "8.6 GB");
        assert_eq!((disk.io_size, disk.sector_size), (512, 512));
        assert_eq!(disk.sequence, 9);
        assert_eq!((&*disk.transport, &*disk.serial), ("virtio", "disk-1"));
        assert_eq!(disk.bus_path, "/pci0000:00/0000:00:04.0/virtio1");
        assert_eq!(disk.symlinks, ["/dev/disk/by-path/x"]);
        assert!(disk.rotational && !disk.readonly);
        let table = vda.volume.as_ref().unwrap();
        assert_eq!(
            (table.kind, &*table.name, &*table.uuid),
            ("disk", "gpt", "u")
        );
        assert!(vda3.disk.is_none());
        let meta = vda3.volume.as_ref().unwrap();
        assert_eq!((meta.kind, &*meta.parent), ("partition", "vda"));
        assert_eq!((&*meta.partition_label, meta.partition_index), ("META", 3));
        assert_eq!(meta.name, "", "the table is not in it");
    }
}
