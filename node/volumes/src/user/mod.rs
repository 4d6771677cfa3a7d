//! User volumes: partitions, whole disks, directories and existing file systems, mounted below `/var/mnt`.
//!
//! Derives the wanted volumes from the config; each file here has one step of making, finding and mounting them. The
//! controller `block.UserVolumeController` decides when.

mod choose;
mod held;
mod holders;
mod known;
mod look;
mod mounts;
mod opened;
mod partition;
mod signature;
mod swap;
mod whole_disk;
mod world;

use corten_config::Document;
use corten_config::kinds::{
    Encryption, ExistingVolumeConfig, Migration, Provisioning, RawVolumeConfig, SwapVolumeConfig,
    UserVolumeConfig, VolumeType,
};
use corten_sys::mount::MountFlags;
use corten_values::{Expression, MaxSize, Size};

use super::{LONGEST_LABEL, MIB, SMALLEST_XFS, USER_VOLUMES, Volume, WIPED};

pub use choose::{Facts, disk_facts};
pub use known::{forget, forget_encrypted, remember_encrypted, was_encrypted};
pub use opened::OpenedVolumes;
pub use signature::Signature;
pub use swap::{areas, stop_swapping, swapped_to};
pub use world::World;

const MOUNTED_BELOW: &str = "/var/mnt";

/// A volume that the config asks for in addition to the node's own.
#[derive(Debug, Clone, PartialEq)]
pub struct UserVolume {
    /// Unique id and partition name: `u-NAME`, `r-NAME`, `s-NAME`, `e-NAME`.
    pub id: String,
    /// Kind of the volume.
    pub kind: Kind,
    /// Mount settings; `None` for a volume that is used without a mount.
    pub mounting: Option<Mounting>,
}

/// Kind of a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A partition; the node makes it if it is missing.
    Partition(Partition),
    /// A disk without partitions; the node makes a file system on it if it is empty.
    Disk(WholeDisk),
    /// A directory of EPHEMERAL.
    Directory,
    /// An existing file system that this expression selects.
    Existing(Expression),
}

/// Purpose of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An XFS file system.
    FileSystem,
    /// Raw storage for its users.
    Raw,
    /// Swap space.
    Swap,
}

/// A partition for the node to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Purpose of the partition.
    pub purpose: Purpose,
    /// Expression that selects the disk.
    pub selector: Expression,
    /// Minimum size in bytes.
    pub least: u64,
    /// Maximum size.
    pub most: Option<MaxSize>,
    /// Whether it grows with its disk.
    pub grow: bool,
    /// LUKS encryption, if any.
    pub encryption: Option<Encryption>,
}

/// A disk that is a volume as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeDisk {
    /// Expression that selects the disk.
    pub selector: Expression,
    /// Minimum size in bytes.
    pub least: u64,
    /// Label of its file system, by which the disk is found again.
    pub label: String,
    /// LUKS encryption, if any.
    pub encryption: Option<Encryption>,
}

/// Mount settings of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounting {
    /// Mount point.
    pub target: String,
    /// Mount flags.
    pub flags: MountFlags,
    /// Whether XFS counts blocks per project.
    pub project_quota: bool,
}

/// Location of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Device of its partition or disk; empty for a directory.
    pub device: String,
    /// Mounted device; differs from `device` if the volume is encrypted.
    pub opened: String,
    /// The kernel's sequence number of its disk; `None` for a directory.
    pub sequence: Option<u64>,
}

impl Place {
    /// Whether the device is used as it is, without encryption.
    fn is_clear(&self) -> bool {
        self.device == self.opened
    }
}

/// Why a volume is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A disk may still appear.
    Missing(String),
    /// Another thread is changing its disk; a retry follows soon.
    Busy(String),
    /// The operator has to act.
    Failed(String),
}

/// The wanted volumes in the order of the config.
#[must_use]
pub fn wanted(document: &Document) -> Vec<UserVolume> {
    let mut all: Vec<UserVolume> = document
        .all::<UserVolumeConfig>()
        .map(of_user)
        .chain(document.all::<RawVolumeConfig>().map(raw))
        .chain(document.all::<SwapVolumeConfig>().map(swap))
        .collect();
    all.extend(document.all::<ExistingVolumeConfig>().map(existing));
    all
}

fn of_user(config: &UserVolumeConfig) -> UserVolume {
    let target = format!("{MOUNTED_BELOW}/{}", config.name);
    let mut mounting = Mounting {
        target,
        flags: flags(config.mount.secure, config.mount.disable_access_time),
        project_quota: config.filesystem.project_quota_support,
    };
    let id = format!("{USER_VOLUMES}{}", config.name);
    let made = || {
        let encryption = config.encryption.as_ref();
        to_make(&config.provisioning, encryption, Purpose::FileSystem)
    };
    let kind = match config.volume_type {
        VolumeType::Directory => {
            // The mount is EPHEMERAL's.
            mounting.flags = super::EPHEMERAL.flags;
            Kind::Directory
        }
        VolumeType::Partition => Kind::Partition(made()),
        VolumeType::Disk => {
            let Partition {
                selector,
                least,
                encryption,
                ..
            } = made();
            Kind::Disk(WholeDisk {
                selector,
                least,
                label: signature::label(&id),
                encryption,
            })
        }
    };
    UserVolume {
        id,
        kind,
        mounting: Some(mounting),
    }
}

fn raw(config: &RawVolumeConfig) -> UserVolume {
    let encryption = config.encryption.as_ref();
    let partition = to_make(&config.provisioning, encryption, Purpose::Raw);
    UserVolume {
        id: format!("r-{}", config.name),
        kind: Kind::Partition(partition),
        mounting: None,
    }
}

fn swap(config: &SwapVolumeConfig) -> UserVolume {
    let encryption = config.encryption.as_ref();
    let partition = to_make(&config.provisioning, encryption, Purpose::Swap);
    UserVolume {
        id: format!("s-{}", config.name),
        kind: Kind::Partition(partition),
        mounting: None,
    }
}

fn existing(config: &ExistingVolumeConfig) -> UserVolume {
    let mount = &config.mount;
    let mut flags = flags(mount.secure, mount.disable_access_time);
    flags.set(MountFlags::RDONLY, mount.read_only);
    UserVolume {
        id: format!("e-{}", config.name),
        kind: Kind::Existing(config.discovery.volume_selector.expression.clone()),
        mounting: Some(Mounting {
            target: format!("{MOUNTED_BELOW}/{}", config.name),
            flags,
            project_quota: false,
        }),
    }
}

fn flags(secure: Option<bool>, without_access_time: Option<bool>) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(
        MountFlags::NOSUID | MountFlags::NODEV,
        secure.unwrap_or(true),
    );
    flags.set(MountFlags::NOATIME, without_access_time.unwrap_or_default());
    flags
}

fn to_make(
    provisioning: &Provisioning,
    encryption: Option<&Encryption>,
    purpose: Purpose,
) -> Partition {
    // Minimum usable size.
    let smallest = match purpose {
        Purpose::FileSystem => SMALLEST_XFS,
        Purpose::Raw | Purpose::Swap => MIB,
    };
    let selector = provisioning.disk_selector.as_ref();
    let Size(asked) = provisioning.min_size.unwrap_or_default();
    // The LUKS header, and the area that is zeroed behind it.
    let header = encryption.map_or(0, |_| 2 * WIPED);
    Partition {
        purpose,
        // The config requires a selector; the default expression matches nothing.
        selector: selector.map_or_else(Expression::default, |one| one.expression.clone()),
        least: asked.max(smallest + header),
        most: provisioning.max_size,
        grow: provisioning.grow.unwrap_or_default(),
        encryption: encryption.cloned(),
    }
}

impl UserVolume {
    /// Whether a volume mounted as `other` already satisfies this one. Selector and size only count when a partition is
    /// made, and keys when it is opened: the next boot sets its slots.
    #[must_use]
    pub fn is_used_like(&self, other: &UserVolume) -> bool {
        let is_same = match (&self.kind, &other.kind) {
            (Kind::Partition(_), Kind::Partition(_)) | (Kind::Disk(_), Kind::Disk(_)) => {
                self.opens_by() == other.opens_by()
            }
            (one, other) => one == other,
        };
        is_same && self.id == other.id && self.mounting == other.mounting
    }

    /// The encryption of the volume.
    #[must_use]
    pub fn encryption(&self) -> Option<&Encryption> {
        match &self.kind {
            Kind::Partition(partition) => partition.encryption.as_ref(),
            Kind::Disk(disk) => disk.encryption.as_ref(),
            Kind::Directory | Kind::Existing(_) => None,
        }
    }

    /// The encryption of an open volume, for which keys and the migration setting are irrelevant.
    fn opens_by(&self) -> Option<Encryption> {
        let encryption = self.encryption()?;
        Some(Encryption {
            keys: Vec::new(),
            migration: Migration::default(),
            ..encryption.clone()
        })
    }

    /// Whether the node makes the volume on a disk.
    fn is_made(&self) -> bool {
        matches!(self.kind, Kind::Partition(_) | Kind::Disk(_))
    }

    /// File system the node makes for it; empty for none.
    #[must_use]
    pub fn formatted(&self) -> &'static str {
        match &self.kind {
            Kind::Partition(partition) => match partition.purpose {
                Purpose::FileSystem => "xfs",
                Purpose::Raw => "",
                Purpose::Swap => "swap",
            },
            Kind::Disk(_) => "xfs",
            Kind::Directory | Kind::Existing(_) => "",
        }
    }

    /// Whether an emptied volume counts as damaged, so that it is not made again. Swap has no content to lose. The
    /// content of a raw partition is unknown to the node.
    fn lasts(&self) -> bool {
        match self.formatted() {
            "swap" => false,
            "xfs" => true,
            _ => self.encryption().is_some(),
        }
    }

    /// Key of its record in STATE. A whole disk has another key than a partition of the same name.
    fn key(&self) -> String {
        match self.kind {
            Kind::Disk(_) => format!("disk {}", self.id),
            Kind::Partition(_) | Kind::Directory | Kind::Existing(_) => self.id.clone(),
        }
    }

    /// Whether its file system grows to the size of its device at every mount.
    fn grows(&self) -> bool {
        match &self.kind {
            Kind::Partition(partition) => partition.grow,
            Kind::Disk(_) => true,
            Kind::Directory | Kind::Existing(_) => false,
        }
    }

    /// The file system the node makes for it; `None` if it makes none.
    fn volume(&self) -> Option<Volume<'_>> {
        let mounting = self.mounting.as_ref()?;
        let label: &str = match &self.kind {
            Kind::Partition(_) if self.id.len() > LONGEST_LABEL => "",
            Kind::Partition(_) => &self.id,
            Kind::Disk(disk) => &disk.label,
            Kind::Directory | Kind::Existing(_) => return None,
        };
        Some(Volume {
            name: &self.id,
            label,
            target: &mounting.target,
            flags: mounting.flags,
            options: if mounting.project_quota {
                "prjquota"
            } else {
                ""
            },
            mode: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    fn one(more: &str) -> UserVolume {
        let mut all = wanted(&sample::kind(more));
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    const DATA: &str =
        "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}";

    #[test]
    fn volume_documents_become_user_volumes() {
        let data = one(&format!("{DATA}, minSize: 1GiB}}"));
        let Kind::Partition(partition) = &data.kind else {
            panic!("{data:?}");
        };
        assert_eq!((&*data.id, partition.least), ("u-data", 1 << 30));
        assert_eq!((partition.grow, partition.most), (false, None));
        let mounting = data.mounting.clone().unwrap();
        assert_eq!(mounting.target, "/var/mnt/data");
        assert_eq!(mounting.flags, MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(data.volume().unwrap().options, "");

        let open = one(&format!(
            "{DATA}}}\nmount: {{secure: false, disableAccessTime: true}}\nfilesystem: {{projectQuotaSupport: true}}"
        ));
        assert_eq!(open.volume().unwrap().flags, MountFlags::NOATIME);
        assert_eq!(open.volume().unwrap().options, "prjquota");
        assert!(matches!(&open.kind, Kind::Partition(one) if one.least == 300 << 20));

        let raw = one(
            "RawVolumeConfig\nname: osd\nprovisioning: {diskSelector: {match: 'true'}}\n\
             encryption: {provider: luks2, keys: [{nodeID: {}}]}",
        );
        assert!(raw.mounting.is_none() && raw.volume().is_none() && raw.lasts());
        let plain = "RawVolumeConfig\nname: osd\nprovisioning: {diskSelector: {match: 'true'}}";
        let swap = "SwapVolumeConfig\nname: s\nprovisioning: {diskSelector: {match: 'true'}}";
        assert!(data.lasts() && !one(plain).lasts() && !one(swap).lasts());
        assert!(matches!(&raw.kind, Kind::Partition(one) if one.least == 33 << 20));

        let whole = one(&format!("{DATA}}}\nvolumeType: disk"));
        let Kind::Disk(disk) = &whole.kind else {
            panic!("{whole:?}");
        };
        assert_eq!((&*disk.label, disk.least), ("u-data", 300 << 20));
        assert_eq!((whole.formatted(), whole.grows()), ("xfs", true));
        assert_eq!(whole.mounting, data.mounting);

        let scratch = one("UserVolumeConfig\nname: scratch\nvolumeType: directory");
        assert_eq!(
            (&*scratch.id, &scratch.kind),
            ("u-scratch", &Kind::Directory)
        );
        assert!(scratch.volume().is_none());

        let old = one(
            "ExistingVolumeConfig\nname: old\ndiscovery: {volumeSelector: {match: volume.label == 'x'}}\n\
             mount: {readOnly: true}",
        );
        assert_eq!(old.id, "e-old");
        let flags = old.mounting.unwrap().flags;
        assert!(flags.contains(MountFlags::RDONLY | MountFlags::NOSUID));
    }

    #[test]
    fn only_changes_visible_to_its_users_remount_a_volume() {
        let before = one(&format!("{DATA}}}"));
        let larger = one(&format!("{DATA}, minSize: 2GiB, grow: true}}"));
        assert!(before.is_used_like(&larger) && before != larger);
        let open = one(&format!("{DATA}}}\nmount: {{secure: false}}"));
        assert!(!before.is_used_like(&open));
        let whole = one(&format!("{DATA}}}\nvolumeType: disk"));
        assert!(!before.is_used_like(&whole) && !whole.is_used_like(&before));
        let elsewhere = DATA.replace("!system_disk", "disk.size > 1u");
        let elsewhere = one(&format!("{elsewhere}}}\nvolumeType: disk"));
        assert!(whole.is_used_like(&elsewhere) && whole != elsewhere);
        let keys = "encryption: {provider: luks2, keys: [{nodeID: {}}]}";
        let encrypted = one(&format!("{DATA}}}\nvolumeType: disk\n{keys}"));
        assert!(encrypted.encryption().is_some() && !whole.is_used_like(&encrypted));
    }

    /// The next boot sets the slots.
    #[test]
    fn changed_keys_do_not_remount_a_volume() {
        let with = |keys: &str, more: &str| {
            let encryption = format!("encryption: {{provider: luks2, keys: [{keys}]{more}}}");
            one(&format!("{DATA}}}\n{encryption}"))
        };
        let before = with("{nodeID: {}}", "");
        let rotated = with("{nodeID: {}}, {slot: 1, static: {passphrase: a}}", "");
        assert!(before != rotated && rotated.is_used_like(&before));
        let discards = with("{nodeID: {}}", ", allowDiscards: true");
        assert!(!discards.is_used_like(&before));
    }

    /// XFS limits labels to 12 bytes.
    #[test]
    fn file_system_label_fits_the_limit_and_stays_unique() {
        let label = |name: &str, kind: &str| {
            let text = DATA.replace("name: data", &format!("name: {name}"));
            let volume = one(&format!("{text}}}\nvolumeType: {kind}"));
            volume.volume().unwrap().label.to_owned()
        };
        for (name, kind, fits) in [
            ("abcdefghij", "partition", "u-abcdefghij"),
            ("abcdefghijk", "partition", ""),
            ("abcdefghij", "disk", "u-abcdefghij"),
        ] {
            assert_eq!(label(name, kind), fits);
        }
        // Disks are found by the label, so it must be unique for every name.
        let [one, other] = ["abcdefghijk", "abcdefghijl"].map(|name| label(name, "disk"));
        assert!(one.starts_with("u-") && one.len() == LONGEST_LABEL && one != other);
    }
}
