//! The volumes of users: partitions on disks that selectors choose, whole disks, directories, and file systems that
//! exist already; mounted below `/var/mnt`, so that EPHEMERAL comes first.
//!
//! What is wanted is here, which disk it means in `choose.rs`, its partition in `partition.rs`, its whole disk in
//! `whole_disk.rs`, which one was its in `known.rs`, which keys open it in `opened.rs`, what is done to disks in
//! `world.rs`, and to mounts in `mounts.rs`; the controller `block.UserVolumeController` decides when.

mod choose;
mod known;
mod mounts;
mod opened;
mod partition;
mod swap;
mod whole_disk;
mod world;

use corten_config::Document;
use corten_config::kinds::{
    Encryption, ExistingVolumeConfig, Migration, Provisioning, RawVolumeConfig, SwapVolumeConfig,
    UserVolumeConfig, VolumeType,
};
use corten_config::values::{Expression, MaxSize, Size};
use corten_sys::mount::MountFlags;

use super::{LONGEST_LABEL, MIB, SMALLEST_XFS, Volume, WIPED};

pub use choose::{Facts, disk_facts};
pub use known::{forget, forget_encrypted, remember_encrypted, was_encrypted};
pub use opened::OpenedVolumes;
pub use swap::{areas, stop_swapping, swapped_to};
pub use whole_disk::Signature;
pub use world::World;

const MOUNTED_BELOW: &str = "/var/mnt";

/// A volume that the config wants beside the node's own.
#[derive(Debug, Clone, PartialEq)]
pub struct UserVolume {
    /// Names it among all volumes, and is its partition's name: `u-NAME`, `r-NAME`, `s-NAME`, `e-NAME`.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// How it is mounted; `None`: it is used as it is.
    pub mounting: Option<Mounting>,
}

/// What a volume is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A partition, made where there is none.
    Partition(Partition),
    /// A disk without partitions, with a file system where it was empty.
    Disk(WholeDisk),
    /// A directory of EPHEMERAL.
    Directory,
    /// A file system somebody else made, chosen by this.
    Existing(Expression),
}

/// What a partition is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// XFS.
    FileSystem,
    /// Whatever its users put there.
    Raw,
    /// Swapping.
    Swap,
}

/// A partition that is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// What it is for.
    pub purpose: Purpose,
    /// Chooses its disk.
    pub selector: Expression,
    /// At least so many bytes.
    pub least: u64,
    /// At most so many.
    pub most: Option<MaxSize>,
    /// It is made larger when its disk is.
    pub grow: bool,
    /// It lies under LUKS.
    pub encryption: Option<Encryption>,
}

/// A disk that is a volume as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeDisk {
    /// Chooses it.
    pub selector: Expression,
    /// It has at least so many bytes.
    pub least: u64,
    /// The label of its file system, by which it is found again.
    pub label: String,
    /// It lies under LUKS.
    pub encryption: Option<Encryption>,
}

/// How a volume is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounting {
    /// Where.
    pub target: String,
    /// How.
    pub flags: MountFlags,
    /// XFS counts blocks by project.
    pub project_quota: bool,
}

/// Where a volume is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The device of its partition or disk; none of a directory.
    pub device: String,
    /// What is mounted of it: another one when it is encrypted.
    pub opened: String,
    /// The kernel's number of its disk; none of a directory.
    pub sequence: Option<u64>,
}

/// Why a volume is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A disk may come yet.
    Missing(String),
    /// Its disk is being changed by somebody else: it is tried again soon.
    Busy(String),
    /// Somebody has to do something.
    Failed(String),
}

/// What the config wants, in its order.
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
    let id = format!("u-{}", config.name);
    let made = || {
        let encryption = config.encryption.as_ref();
        to_make(&config.provisioning, encryption, Purpose::FileSystem)
    };
    let kind = match config.volume_type {
        VolumeType::Directory => {
            // The mount is that of EPHEMERAL.
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
                label: whole_disk::label(&id),
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
    // What is of use at all.
    let smallest = match purpose {
        Purpose::FileSystem => SMALLEST_XFS,
        Purpose::Raw | Purpose::Swap => MIB,
    };
    let selector = provisioning.disk_selector.as_ref();
    let Size(asked) = provisioning.min_size.unwrap_or_default();
    // A header, and what is emptied behind it.
    let header = encryption.map_or(0, |_| 2 * WIPED);
    Partition {
        purpose,
        // Without one it is refused, and this chooses nothing.
        selector: selector.map_or_else(Expression::default, |one| one.expression.clone()),
        least: asked.max(smallest + header),
        most: provisioning.max_size,
        grow: provisioning.grow.unwrap_or_default(),
        encryption: encryption.cloned(),
    }
}

impl UserVolume {
    /// Whether one that is mounted as `other` need not be touched to be this. Where and how large a partition is
    /// made counts only when it is.
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

    /// How it is encrypted.
    #[must_use]
    pub fn encryption(&self) -> Option<&Encryption> {
        match &self.kind {
            Kind::Partition(partition) => partition.encryption.as_ref(),
            Kind::Disk(disk) => disk.encryption.as_ref(),
            Kind::Directory | Kind::Existing(_) => None,
        }
    }

    /// The same, for a volume that is there: what would become of one in the clear is no matter any more.
    fn opens_by(&self) -> Option<Encryption> {
        let mut encryption = self.encryption().cloned()?;
        encryption.migration = Migration::default();
        Some(encryption)
    }

    /// What the node makes of it; empty where that is nothing.
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

    /// What was made of it is not made again when it seems to be empty: that is damage. In swap there is nothing to
    /// lose, and what is in a partition that is used as it is nobody here knows.
    fn lasts(&self) -> bool {
        match self.formatted() {
            "swap" => false,
            "xfs" => true,
            _ => self.encryption().is_some(),
        }
    }

    /// By what it is kept in mind which one it was. A whole disk is nothing that was a partition of that name.
    fn key(&self) -> String {
        match self.kind {
            Kind::Disk(_) => format!("disk {}", self.id),
            Kind::Partition(_) | Kind::Directory | Kind::Existing(_) => self.id.clone(),
        }
    }

    /// Its file system is made as large as what it lies on, whenever it is mounted.
    fn grows(&self) -> bool {
        match &self.kind {
            Kind::Partition(partition) => partition.grow,
            Kind::Disk(_) => true,
            Kind::Directory | Kind::Existing(_) => false,
        }
    }

    /// The file system the node makes for it; `None`: it makes none.
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
    fn documents_become_volumes() {
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
    fn only_what_its_users_notice_makes_a_mounted_volume_another() {
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

    /// XFS has 12 bytes for it.
    #[test]
    fn a_file_system_has_a_label_that_fits() {
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
        // A disk is found by it, whatever its name.
        let [one, other] = ["abcdefghijk", "abcdefghijl"].map(|name| label(name, "disk"));
        assert!(one.starts_with("u-") && one.len() == LONGEST_LABEL && one != other);
    }
}
