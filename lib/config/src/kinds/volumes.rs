//! Volumes: the node's own and its users'.

use std::time::Duration;

use super::{Encryption, EncryptionKey, Selector};
use crate::read::{Reader, choices, section};
use crate::table::Support;
use crate::tree::Node;
use crate::values::{MaxSize, Size, VolumeName};

choices! {
    /// The node's own volumes.
    pub enum SystemVolume {
        State = "STATE", Ephemeral = "EPHEMERAL", ImageCache = "IMAGECACHE", Etcd = "ETCD",
        Cri = "CRI", Kubelet = "KUBELET", Log = "LOG",
    }
}

section! {
    /// One of the node's own volumes.
    pub struct VolumeConfig [check_system] {
        Acted "name" name: SystemVolume = "Which", required;
        Later "provisioning" provisioning: Provisioning = "Where and how large";
        Later "filesystem" filesystem: SystemFilesystem = "Its filesystem";
        Acted "encryption" encryption: Option<Encryption> = "Its encryption (STATE and EPHEMERAL)";
        Acted "mount" mount: SystemMount = "How it is mounted (STATE and EPHEMERAL)";
        Later "trim" trim: Periodic = "Telling the disk what is free";
        Later "scrub" scrub: Periodic = "Checking it while in use";
    }
}

fn check_system(volume: &VolumeConfig, node: &Node, reader: &mut Reader<'_>) {
    let to_state = |key: &EncryptionKey| key.lock_to_state;
    let locked = volume
        .encryption
        .iter()
        .flat_map(|encryption| &encryption.keys)
        .any(to_state);
    if volume.name == SystemVolume::State && locked && node.get("name").is_some() {
        reader.wrong_in(
            node,
            "encryption",
            "must not lock STATE to itself (lockToState)",
        );
    }
    let own = matches!(volume.name, SystemVolume::State | SystemVolume::Ephemeral);
    if volume.encryption.is_some() && !own && !reader.reads(Support::Later) {
        reader.wrong_in(node, "encryption", "is for STATE and EPHEMERAL only, yet");
    }
    let Some(mount) = node.get("mount").filter(|mount| !mount.is_empty()) else {
        return;
    };
    if !own && !reader.reads(Support::Later) {
        reader.wrong_in(node, "mount", "is for STATE and EPHEMERAL only, yet");
    }
    if own && volume.mount.secure == Some(false) {
        let what = "must not be false: what the node keeps is always mounted so";
        reader.within("mount", |reader| reader.wrong_in(mount, "secure", what));
    }
}

section! {
    /// Where a volume is made, and how large.
    pub struct Provisioning [check_provisioning] {
        Acted "diskSelector" disk_selector: Option<Selector> = "On which disk";
        Acted "grow" grow: Option<bool> = "Take what becomes free behind it";
        Acted "minSize" min_size: Option<Size> = "At least";
        Acted "maxSize" max_size: Option<MaxSize> = "At most";
    }
}

fn check_provisioning(provisioning: &Provisioning, node: &Node, reader: &mut Reader<'_>) {
    if let (Some(Size(least)), Some(MaxSize::Bytes(most))) =
        (provisioning.min_size, provisioning.max_size)
        && least > most
    {
        reader.wrong_in(node, "maxSize", "must not be below minSize");
    }
}

section! {
    /// The filesystem of one of the node's own volumes.
    pub struct SystemFilesystem {
        Acted "xfs" xfs: Xfs = "XFS";
    }
}

section! {
    /// XFS.
    pub struct Xfs {
        Acted "minAllocationGroupSize" min_allocation_group_size: Option<Size> = "Fewer, larger groups suit large disks";
    }
}

section! {
    /// How a volume is mounted.
    pub struct SystemMount {
        Acted "secure" secure: Option<bool> = "Devices in it are none, and set-uid has no effect; for STATE and EPHEMERAL always `true`";
        Later "disableAccessTime" disable_access_time: Option<bool> = "Reading writes no times";
    }
}

section! {
    /// Something done at intervals.
    pub struct Periodic {
        Acted "enabled" enabled: Option<bool> = "Do it";
        Acted "interval" interval: Option<Duration> = "How often";
    }
}

choices! {
    /// What a user volume is made of.
    pub enum VolumeType { Partition = "partition", Disk = "disk", Directory = "directory", }
}
choices! {
    /// A filesystem of user volumes.
    pub enum FilesystemType { Xfs = "xfs", Ext4 = "ext4", }
}

section! {
    /// A volume of the users, at `/var/mnt/NAME`.
    pub struct UserVolumeConfig [check_user] {
        Acted "name" name: VolumeName = "Names it", required;
        Acted "volumeType" volume_type: VolumeType = "What it is made of";
        Acted "provisioning" provisioning: Provisioning = "Where and how large";
        Acted "filesystem" filesystem: UserFilesystem = "Its filesystem";
        Acted "encryption" encryption: Option<Encryption> = "Its encryption";
        Acted "mount" mount: SystemMount = "How it is mounted";
        Acted "trim" trim: Periodic = "Telling the disk what is free";
        Acted "scrub" scrub: Periodic = "Checking it while in use";
    }
}

fn check_user(volume: &UserVolumeConfig, node: &Node, reader: &mut Reader<'_>) {
    match volume.volume_type {
        VolumeType::Directory => {
            for field in ["provisioning", "encryption", "filesystem"] {
                if node.get(field).is_some_and(|value| !value.is_empty()) {
                    reader.wrong_in(node, field, "must not be given for a directory");
                }
            }
        }
        kind => {
            if volume.provisioning.disk_selector.is_none() {
                reader.wrong_in(node, "provisioning", "needs diskSelector");
            }
            let provisioning = &volume.provisioning;
            let sized = provisioning.min_size.is_some() || provisioning.max_size.is_some();
            if kind == VolumeType::Disk && sized {
                reader.wrong_in(
                    node,
                    "provisioning",
                    "must not give a size for a whole disk",
                );
            }
        }
    }
}

section! {
    /// The filesystem of a user volume.
    pub struct UserFilesystem {
        Acted "type" kind: FilesystemType = "Which";
        Acted "projectQuotaSupport" project_quota_support: bool = "Quotas by directory";
        Acted "xfs" xfs: Xfs = "XFS";
    }
}

section! {
    /// A partition without a filesystem.
    pub struct RawVolumeConfig {
        Acted "name" name: VolumeName = "Names it", required;
        Acted "provisioning" provisioning: Provisioning = "Where and how large", required;
        Acted "encryption" encryption: Option<Encryption> = "Its encryption";
    }
}

section! {
    /// A partition for swapping.
    pub struct SwapVolumeConfig {
        Acted "name" name: VolumeName = "Names it", required;
        Acted "provisioning" provisioning: Provisioning = "Where and how large", required;
        Acted "encryption" encryption: Option<Encryption> = "Its encryption";
    }
}

section! {
    /// A filesystem that exists already, mounted at `/var/mnt/NAME`.
    pub struct ExistingVolumeConfig {
        Acted "name" name: VolumeName = "Names it", required;
        Acted "discovery" discovery: Discovery = "How it is found", required;
        Acted "mount" mount: ExistingMount = "How it is mounted";
        Acted "trim" trim: Periodic = "Telling the disk what is free";
        Acted "scrub" scrub: Periodic = "Checking it while in use";
    }
}

section! {
    /// How a volume is found.
    pub struct Discovery {
        Acted "volumeSelector" volume_selector: Selector = "What it is like", required;
    }
}

section! {
    /// How a volume that exists is mounted.
    pub struct ExistingMount {
        Acted "readOnly" read_only: bool = "Not to be written to";
        Acted "disableAccessTime" disable_access_time: Option<bool> = "Reading writes no times";
        Acted "secure" secure: Option<bool> = "Devices in it are none, and set-uid has no effect";
    }
}

section! {
    /// Swap in compressed memory first.
    pub struct ZswapConfig [check_zswap] {
        Acted "maxPoolPercent" max_pool_percent: Option<u8> = "Hundredths of memory it may take";
        Acted "shrinkerEnabled" shrinker_enabled: Option<bool> = "Write cold pages out early";
    }
}

fn check_zswap(zswap: &ZswapConfig, node: &Node, reader: &mut Reader<'_>) {
    if zswap
        .max_pool_percent
        .is_some_and(|percent| !(1..=100).contains(&percent))
    {
        reader.wrong_in(node, "maxPoolPercent", "must be from 1 to 100");
    }
}
