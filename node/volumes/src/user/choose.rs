//! Evaluates selectors: which disk or file system of the machine they match.

use corten_types::block::{DiscoveredVolume, Disk};
use corten_values::{DiskFacts, Expression, VolumeFacts};

use super::Trouble;
use crate::{IMAGE_CACHE, STARTED_FROM, WIPEABLE};

/// File systems that can be mounted although the node did not make them.
const MOUNTABLE: [&str; 5] = ["xfs", "ext4", "vfat", "iso9660", "squashfs"];

/// The disks of the machine and their content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Disks, sorted by the kernel's name.
    pub disks: Vec<Disk>,
    /// Disks and partitions with their content, sorted by the kernel's name.
    pub volumes: Vec<DiscoveredVolume>,
    /// Device of the system disk.
    pub system_disk: String,
}

impl Facts {
    /// The writable disks that match, sorted by name.
    pub(super) fn disks_for(&self, selector: &Expression) -> Result<Vec<&Disk>, Trouble> {
        let usable = self
            .disks
            .iter()
            .filter(|disk| !disk.readonly && !disk.cdrom);
        let usable: Vec<&Disk> = usable.collect();
        let facts: Vec<DiskFacts> = usable.iter().map(|disk| self.of_disk(disk)).collect();
        let selected = selector
            .selected(&facts)
            .map_err(|why| Trouble::Failed(format!("its diskSelector fails: {why}")))?;
        let meant: Vec<&Disk> = chosen(usable, selected).collect();
        if meant.is_empty() {
            let text = "no disk matches its diskSelector";
            return Err(Trouble::Missing(text.to_owned()));
        }
        Ok(meant)
    }

    /// Why a disk cannot be a volume as a whole; `None` if nothing was discovered on it.
    pub(super) fn not_whole(&self, disk: &Disk) -> Option<String> {
        let remedy = "wipe it to use it";
        let device = disk.dev_path.as_str();
        let of_it = |other: &&DiscoveredVolume| self.disk_of(other) == Some(device);
        let mut others = self.volumes.iter().filter(of_it);
        if device == self.system_disk {
            return Some("it carries the node".to_owned());
        }
        match self.on(device).map_or("", |found| &found.name) {
            "" if others.any(|other| other.dev_path != device) => {
                Some(format!("it has partitions; {remedy}"))
            }
            "" => None,
            holds => Some(format!("it is not empty ({holds}); {remedy}")),
        }
    }

    /// The only file system that matches. The node's own partitions never match.
    pub(super) fn volume_for(&self, selector: &Expression) -> Result<&DiscoveredVolume, Trouble> {
        let usable = self.volumes.iter().filter(|volume| !self.is_own(volume));
        let usable: Vec<&DiscoveredVolume> = usable.collect();
        let facts: Vec<VolumeFacts> = usable.iter().map(|one| self.of_volume(one)).collect();
        let selected = selector
            .selected(&facts)
            .map_err(|why| Trouble::Failed(format!("its volumeSelector fails: {why}")))?;
        let meant: Vec<&DiscoveredVolume> = chosen(usable, selected).collect();
        match meant.as_slice() {
            [] => {
                let text = "no volume matches its volumeSelector";
                Err(Trouble::Missing(text.to_owned()))
            }
            [one] if MOUNTABLE.contains(&one.name.as_str()) => Ok(one),
            [one] => Err(Trouble::Failed(format!(
                "{} contains {}; only {} can be mounted",
                one.dev_path,
                if one.name.is_empty() {
                    "no known file system"
                } else {
                    one.name.as_str()
                },
                MOUNTABLE.join(", ")
            ))),
            several => {
                let names = several.iter().map(|volume| volume.dev_path.as_str());
                let names: Vec<&str> = names.collect();
                Err(Trouble::Failed(format!(
                    "its volumeSelector matches several volumes, {}; make it match one",
                    names.join(", ")
                )))
            }
        }
    }

    /// Content of a disk or partition.
    #[must_use]
    pub fn on(&self, device: &str) -> Option<&DiscoveredVolume> {
        self.volumes.iter().find(|one| one.dev_path == device)
    }

    /// The disk with this device.
    pub(super) fn disk(&self, device: &str) -> Option<crate::Disk> {
        let disk = self.disks.iter().find(|disk| disk.dev_path == device);
        disk.map(known_as)
    }

    /// Whether it is one of the node's own partitions, for data or for booting.
    fn is_own(&self, volume: &DiscoveredVolume) -> bool {
        let on_system_disk = self.disk_of(volume) == Some(self.system_disk.as_str());
        let label = volume.partition_label.as_str();
        let own = WIPEABLE.iter().chain(&STARTED_FROM).chain(&[IMAGE_CACHE]);
        on_system_disk && own.into_iter().any(|name| *name == label)
    }

    /// Device of the disk on which it lies.
    pub(super) fn disk_of<'a>(&'a self, volume: &'a DiscoveredVolume) -> Option<&'a str> {
        if volume.parent.is_empty() {
            return Some(&volume.dev_path);
        }
        let parent = Some(volume.parent.as_str());
        let mut devices = self.disks.iter().map(|disk| disk.dev_path.as_str());
        devices.find(|device| device.strip_prefix("/dev/") == parent)
    }

    fn of_disk(&self, disk: &Disk) -> DiskFacts {
        disk_facts(disk, disk.dev_path == self.system_disk)
    }

    fn of_volume(&self, volume: &DiscoveredVolume) -> VolumeFacts {
        let device = self.disk_of(volume);
        let disk = self
            .disks
            .iter()
            .find(|disk| Some(&*disk.dev_path) == device);
        VolumeFacts {
            dev_path: volume.dev_path.clone(),
            kind: volume.kind.to_owned(),
            parent: volume.parent.clone(),
            size: volume.size,
            pretty_size: volume.pretty_size.clone(),
            name: volume.name.clone(),
            uuid: volume.uuid.clone(),
            label: volume.label.clone(),
            partition_uuid: volume.partition_uuid.clone(),
            partition_type: volume.partition_type.clone(),
            partition_label: volume.partition_label.clone(),
            partition_index: volume.partition_index,
            disk: disk.map(|disk| self.of_disk(disk)).unwrap_or_default(),
        }
    }
}

/// The disk as it was inspected; the sequence number rules out a replacement under the same name.
pub(super) fn known_as(disk: &Disk) -> crate::Disk {
    crate::Disk::new(disk.dev_path.trim_start_matches("/dev/"), disk.sequence)
}

/// Facts of a disk for the evaluation of a selector.
#[must_use]
pub fn disk_facts(disk: &Disk, is_system: bool) -> DiskFacts {
    DiskFacts {
        dev_path: disk.dev_path.clone(),
        size: disk.size,
        pretty_size: disk.pretty_size.clone(),
        io_size: disk.io_size,
        sector_size: disk.sector_size,
        readonly: disk.readonly,
        cdrom: disk.cdrom,
        model: disk.model.clone(),
        serial: disk.serial.clone(),
        modalias: disk.modalias.clone(),
        wwid: disk.wwid.clone(),
        bus_path: disk.bus_path.clone(),
        sub_system: disk.sub_system.clone(),
        transport: disk.transport.clone(),
        rotational: disk.rotational,
        symlinks: disk.symlinks.clone(),
        is_system,
    }
}

fn chosen<T>(all: Vec<T>, selected: Vec<bool>) -> impl Iterator<Item = T> {
    let pairs = all.into_iter().zip(selected);
    pairs.filter_map(|(one, is_selected)| is_selected.then_some(one))
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::super::{Kind, Partition, WholeDisk, wanted};
    use super::*;

    fn disk(name: &str, transport: &str) -> Disk {
        Disk {
            dev_path: format!("/dev/{name}"),
            size: 8 << 30,
            transport: transport.to_owned(),
            ..Disk::default()
        }
    }

    fn volume(disk: &str, number: u64, name: &str, label: &str) -> DiscoveredVolume {
        let (kind, parent, device) = if number == 0 {
            ("disk", String::new(), disk.to_owned())
        } else {
            ("partition", disk.to_owned(), format!("{disk}{number}"))
        };
        DiscoveredVolume {
            dev_path: format!("/dev/{device}"),
            kind,
            parent,
            name: name.to_owned(),
            partition_label: label.to_owned(),
            partition_index: number,
            ..DiscoveredVolume::default()
        }
    }

    fn facts() -> Facts {
        let cd = Disk {
            cdrom: true,
            ..disk("sr0", "sata")
        };
        Facts {
            disks: vec![
                disk("sda", "sata"),
                disk("sdb", "usb"),
                cd,
                disk("vda", "virtio"),
            ],
            volumes: vec![
                volume("sda", 0, "gpt", ""),
                volume("sda", 1, "ext4", "old"),
                volume("sdb", 0, "btrfs", ""),
                volume("vda", 0, "gpt", ""),
                volume("vda", 1, "vfat", "EFI"),
                volume("vda", 4, "xfs", "STATE"),
            ],
            system_disk: "/dev/vda".to_owned(),
        }
    }

    fn selector(kind: &str, field: &str, text: &str) -> Expression {
        let document = sample::kind(&format!(
            "{kind}\nname: a\n{field}: {{match: \"{text}\"}}}}"
        ));
        match wanted(&document).remove(0).kind {
            Kind::Partition(Partition { selector, .. })
            | Kind::Disk(WholeDisk { selector, .. })
            | Kind::Existing(selector) => selector,
            Kind::Directory => panic!("a directory"),
        }
    }

    fn disks(text: &str) -> Result<Vec<String>, Trouble> {
        let selector = selector("RawVolumeConfig", "provisioning: {diskSelector", text);
        let facts = facts();
        let found = facts.disks_for(&selector)?;
        Ok(found.iter().map(|disk| disk.dev_path.clone()).collect())
    }

    fn existing(text: &str) -> Result<String, Trouble> {
        let field = "discovery: {volumeSelector";
        let selector = selector("ExistingVolumeConfig", field, text);
        let facts = facts();
        facts.volume_for(&selector).map(|one| one.dev_path.clone())
    }

    #[test]
    fn disks_are_chosen_in_order() {
        assert_eq!(disks("!system_disk").unwrap(), ["/dev/sda", "/dev/sdb"]);
        assert_eq!(disks("disk.transport == 'usb'").unwrap(), ["/dev/sdb"]);
        assert_eq!(disks("system_disk").unwrap(), ["/dev/vda"]);
        let none = disks("disk.size > 1u * TB").unwrap_err();
        assert!(matches!(none, Trouble::Missing(_)), "{none:?}");
        // A CD is not writable.
        disks("disk.cdrom").unwrap_err();
        let broken = disks("1 / size(disk.symlinks) == 1").unwrap_err();
        assert!(matches!(broken, Trouble::Failed(_)), "{broken:?}");
    }

    #[test]
    fn whole_disk_volume_needs_an_empty_disk_other_than_the_system_disk() {
        let mut facts = facts();
        let partitioned = volume("sdd", 1, "", "u-data");
        facts
            .volumes
            .extend([volume("sdc", 0, "", ""), partitioned]);
        facts.disks.extend([disk("sdc", "usb"), disk("sdd", "usb")]);
        let why = |name: &str| {
            let device = format!("/dev/{name}");
            let disk = facts.disks.iter().find(|disk| disk.dev_path == device);
            facts.not_whole(disk.unwrap()).unwrap_or_default()
        };
        assert_eq!(why("sdc"), "");
        for (disk, reason) in [
            ("vda", "it carries the node"),
            ("sda", "it is not empty (gpt)"),
            ("sdb", "it is not empty (btrfs)"),
            ("sdd", "it has partitions; wipe it"),
        ] {
            assert!(why(disk).starts_with(reason), "{disk}: {}", why(disk));
        }
    }

    #[test]
    fn selector_must_match_one_file_system_that_is_not_the_nodes() {
        assert_eq!(existing("volume.name == 'ext4'").unwrap(), "/dev/sda1");
        let on_sata = "disk.transport == 'sata' && volume.partition_label == 'old'";
        assert_eq!(existing(on_sata).unwrap(), "/dev/sda1");
        for own in ["STATE", "EFI"] {
            let refused = existing(&format!("volume.partition_label == '{own}'")).unwrap_err();
            assert!(matches!(refused, Trouble::Missing(_)), "{refused:?}");
        }
        for (text, why) in [
            ("volume.name == 'btrfs'", "/dev/sdb contains btrfs"),
            (
                "volume.name == 'gpt'",
                "matches several volumes, /dev/sda, /dev/vda",
            ),
        ] {
            let Err(Trouble::Failed(found)) = existing(text) else {
                panic!("{text}");
            };
            assert!(found.contains(why), "{found}");
        }
    }
}
