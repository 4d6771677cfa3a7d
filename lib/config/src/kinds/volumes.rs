//! Volumes: the node's own and its users'.

use std::time::Duration;

use corten_values::{DiskFacts, MaxSize, Size, VolumeFacts, VolumeName};
use corten_yaml::read::Reader;
use corten_yaml::table::Support;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use super::links::check_selector;
use super::{Encryption, EncryptionKey, Selector};

/// Minimum size of an XFS, in bytes.
const SMALLEST_XFS: u64 = 300 << 20;

choices! {
    /// The node's own volumes.
    pub enum SystemVolume {
        State = "STATE", Ephemeral = "EPHEMERAL", ImageCache = "IMAGECACHE", Etcd = "ETCD",
        Cri = "CRI", Kubelet = "KUBELET", Log = "LOG",
    }
}

section! {
    /// Settings of one of the node's own volumes, STATE or EPHEMERAL.
    pub struct VolumeConfig [check_system] {
        Acted "name" name: SystemVolume = "Name of the volume", required;
        Later "provisioning" provisioning: Provisioning = "Disk and size of the volume";
        Later "filesystem" filesystem: SystemFilesystem = "Filesystem";
        Acted "encryption" encryption: Option<Encryption> = "Encryption (STATE and EPHEMERAL)";
        Acted "mount" mount: SystemMount = "Mount options (STATE and EPHEMERAL)";
        Later "trim" trim: Periodic = "Periodic trim of unused blocks";
        Later "scrub" scrub: Periodic = "Periodic check of the mounted filesystem";
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
        let what = "must not be false: the node mounts its own volumes with this option";
        reader.within("mount", |reader| reader.wrong_in(mount, "secure", what));
    }
}

section! {
    /// Disk and size of a volume.
    pub struct Provisioning [check_provisioning] {
        Acted "diskSelector" disk_selector: Option<Selector> = "Selector of the disk; of several the first one with enough space";
        Acted "grow" grow: Option<bool> = "Whether the volume grows into free space behind it when it is mounted";
        Acted "minSize" min_size: Option<Size> = "Minimum size";
        Acted "maxSize" max_size: Option<MaxSize> = "Maximum size; absent: all free space";
    }
}

fn check_provisioning(provisioning: &Provisioning, node: &Node, reader: &mut Reader<'_>) {
    if let Some(selector) = &provisioning.disk_selector {
        check_selector::<DiskFacts>(selector, "a disk", (node, "diskSelector"), reader);
    }
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
        Acted "xfs" xfs: Xfs = "Options of XFS";
    }
}

section! {
    /// XFS.
    pub struct Xfs {
        Acted "minAllocationGroupSize" min_allocation_group_size: Option<Size> = "Minimum size of an allocation group; fewer, larger groups suit large disks";
    }
}

section! {
    /// Mount options of one of the node's own volumes.
    pub struct SystemMount {
        Acted "secure" secure: Option<bool> = "Whether device nodes and set-uid programs are disabled (`nodev`, `nosuid`); for STATE and EPHEMERAL always `true`";
        Later "disableAccessTime" disable_access_time: Option<bool> = "Whether reads leave access times unchanged";
    }
}

section! {
    /// Mount options of a user volume.
    pub struct UserMount {
        Acted "secure" secure: Option<bool> = "Whether device nodes and set-uid programs are disabled (`nodev`, `nosuid`); absent: `true`";
        Acted "disableAccessTime" disable_access_time: Option<bool> = "Whether reads leave access times unchanged";
    }
}

section! {
    /// A periodic task.
    pub struct Periodic {
        Acted "enabled" enabled: Option<bool> = "Whether the task runs";
        Acted "interval" interval: Option<Duration> = "Interval";
    }
}

choices! {
    /// Storage of a user volume.
    pub enum VolumeType { Partition = "partition", Disk = "disk", Directory = "directory", }
}
choices! {
    /// Filesystem of a user volume.
    pub enum FilesystemType { Xfs = "xfs", Ext4 = "ext4", }
}

section! {
    /// A user volume, at `/var/mnt/NAME`.
    pub struct UserVolumeConfig [check_user] {
        Acted "name" name: VolumeName = "Name", required;
        Acted "volumeType" volume_type: VolumeType = "Kind of volume: a partition, a whole disk, or a directory of EPHEMERAL";
        Acted "provisioning" provisioning: Provisioning = "Disk and size of the volume; for a whole disk only the disk, for a directory neither";
        Acted "filesystem" filesystem: UserFilesystem = "Filesystem; not for a directory";
        Acted "encryption" encryption: Option<Encryption> = "Encryption; not for a directory";
        Acted "mount" mount: UserMount = "Mount options; not for a directory";
        Later "trim" trim: Periodic = "Periodic trim of unused blocks";
        Later "scrub" scrub: Periodic = "Periodic check of the mounted filesystem";
    }
}

fn check_user(volume: &UserVolumeConfig, node: &Node, reader: &mut Reader<'_>) {
    let provisioning = &volume.provisioning;
    match volume.volume_type {
        VolumeType::Directory => {
            for field in ["provisioning", "encryption", "filesystem", "mount"] {
                if node.get(field).is_some_and(|value| !value.is_empty()) {
                    reader.wrong_in(node, field, "must not be given for a directory");
                }
            }
        }
        VolumeType::Disk => {
            check_has_disk(provisioning, node, reader);
            let node = node.entry("provisioning").unwrap_or(node);
            reader.within("provisioning", |reader| {
                for field in ["minSize", "maxSize", "grow"] {
                    if node.given(field) {
                        let what = "must not be given for a whole disk, which is as large as it is";
                        reader.wrong_in(node, field, what);
                    }
                }
            });
        }
        VolumeType::Partition => {
            check_has_disk(provisioning, node, reader);
            let too_small =
                matches!(provisioning.max_size, Some(MaxSize::Bytes(most)) if most < SMALLEST_XFS);
            if volume.filesystem.kind == FilesystemType::Xfs && too_small {
                let what = "must be 300 MiB or more, for XFS";
                reader.within("provisioning", |reader| {
                    let node = node.entry("provisioning").unwrap_or(node);
                    reader.wrong_in(node, "maxSize", what);
                });
            }
        }
    }
}

fn check_has_disk(provisioning: &Provisioning, node: &Node, reader: &mut Reader<'_>) {
    if provisioning.disk_selector.is_none() {
        reader.wrong_in(node, "provisioning", "needs diskSelector");
    }
}

section! {
    /// The filesystem of a user volume.
    pub struct UserFilesystem [check_filesystem] {
        Acted "type" kind: FilesystemType = "Type of the filesystem; `ext4` is not supported yet";
        Acted "projectQuotaSupport" project_quota_support: bool = "Whether project quotas (quotas per directory) are supported";
        Later "xfs" xfs: Xfs = "Options of XFS";
    }
}

fn check_filesystem(filesystem: &UserFilesystem, node: &Node, reader: &mut Reader<'_>) {
    if filesystem.kind == FilesystemType::Ext4 && !reader.reads(Support::Later) {
        reader.wrong_in(node, "type", "is not supported yet; use xfs");
    }
}

section! {
    /// A partition without a filesystem, `/dev/disk/by-partlabel/r-NAME`.
    pub struct RawVolumeConfig [check_raw] {
        Acted "name" name: VolumeName = "Name", required;
        Acted "provisioning" provisioning: Provisioning = "Disk and size of the volume", required;
        Acted "encryption" encryption: Option<Encryption> = "Encryption; the decrypted device is `/dev/mapper/luks2-r-NAME`";
    }
}

fn check_raw(volume: &RawVolumeConfig, node: &Node, reader: &mut Reader<'_>) {
    check_has_disk(&volume.provisioning, node, reader);
}

section! {
    /// A swap partition, `s-NAME`. It receives memory of programs, including keys: encrypt it.
    pub struct SwapVolumeConfig [check_swap] {
        Acted "name" name: VolumeName = "Name", required;
        Acted "provisioning" provisioning: Provisioning = "Disk and size of the volume", required;
        Acted "encryption" encryption: Option<Encryption> = "Encryption";
    }
}

fn check_swap(volume: &SwapVolumeConfig, node: &Node, reader: &mut Reader<'_>) {
    check_has_disk(&volume.provisioning, node, reader);
}

section! {
    /// An existing filesystem, mounted at `/var/mnt/NAME`.
    pub struct ExistingVolumeConfig {
        Acted "name" name: VolumeName = "Name", required;
        Acted "discovery" discovery: Discovery = "Selector of the volume", required;
        Acted "mount" mount: ExistingMount = "Mount options";
        Later "trim" trim: Periodic = "Periodic trim of unused blocks";
        Later "scrub" scrub: Periodic = "Periodic check of the mounted filesystem";
    }
}

section! {
    /// Search for an existing volume.
    pub struct Discovery [check_discovery] {
        Acted "volumeSelector" volume_selector: Selector = "Selector that exactly one volume may match", required;
    }
}

fn check_discovery(discovery: &Discovery, node: &Node, reader: &mut Reader<'_>) {
    let place = (node, "volumeSelector");
    check_selector::<VolumeFacts>(&discovery.volume_selector, "a volume", place, reader);
}

section! {
    /// Mount options of an existing volume.
    pub struct ExistingMount {
        Acted "readOnly" read_only: bool = "Whether the mount is read-only";
        Acted "disableAccessTime" disable_access_time: Option<bool> = "Whether reads leave access times unchanged";
        Acted "secure" secure: Option<bool> = "Whether device nodes and set-uid programs are disabled (`nodev`, `nosuid`); absent: `true`";
    }
}

section! {
    /// Swap to compressed memory first (zswap).
    pub struct ZswapConfig [check_zswap] {
        Acted "maxPoolPercent" max_pool_percent: Option<u8> = "Maximum percentage of memory";
        Acted "shrinkerEnabled" shrinker_enabled: Option<bool> = "Whether cold pages are written out early";
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
