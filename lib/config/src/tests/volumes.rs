use corten_values::{DiskFacts, MaxSize, Size};

use super::{doc, document, future, good, problems, with};
use crate::kinds::{ExistingVolumeConfig, RawVolumeConfig, UserVolumeConfig, VolumeType};

const ON_DISK: &str = "provisioning: {diskSelector: {match: '!system_disk'}";

#[test]
fn volumes_of_users_are_read() {
    let text = with(
        "UserVolumeConfig",
        &format!(
            "name: data\n{ON_DISK}, minSize: 1GiB, maxSize: 50%, grow: true}}\n\
             filesystem: {{projectQuotaSupport: true}}\nmount: {{secure: false}}\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: scratch\nvolumeType: directory\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: whole\nvolumeType: disk\n{ON_DISK}}}\n\
             encryption: {{provider: luks2, keys: [{{nodeID: {{}}}}]}}\n\
             ---\napiVersion: v1alpha1\nkind: RawVolumeConfig\nname: osd\n{ON_DISK}}}\n\
             ---\napiVersion: v1alpha1\nkind: ExistingVolumeConfig\nname: old\n\
             discovery: {{volumeSelector: {{match: volume.label == 'old' && disk.transport == 'usb'}}}}"
        ),
    );
    let document = document(&text);
    let [data, scratch, whole] = document.all::<UserVolumeConfig>().collect::<Vec<_>>()[..] else {
        panic!("three volumes");
    };
    let provisioning = &data.provisioning;
    assert_eq!(provisioning.min_size, Some(Size(1 << 30)));
    assert_eq!(provisioning.max_size, Some(MaxSize::Percent(50)));
    assert_eq!(provisioning.grow, Some(true));
    let selector = provisioning.disk_selector.as_ref().unwrap();
    let disk = |is_system| DiskFacts {
        is_system,
        ..DiskFacts::default()
    };
    let selected = selector.expression.selected(&[disk(true), disk(false)]);
    assert_eq!(selected, Ok(vec![false, true]));
    assert_eq!(scratch.volume_type, VolumeType::Directory);
    assert_eq!(whole.volume_type, VolumeType::Disk);
    assert!(whole.provisioning.disk_selector.is_some() && whole.encryption.is_some());
    assert_eq!(document.all::<RawVolumeConfig>().count(), 1);
    assert_eq!(document.all::<ExistingVolumeConfig>().count(), 1);
}

#[test]
fn unsupported_and_impossible_volume_settings_are_refused() {
    for (kind, fields, why) in [
        (
            "UserVolumeConfig",
            "volumeType: disk",
            "provisioning needs diskSelector",
        ),
        (
            "UserVolumeConfig",
            "volumeType: disk\nprovisioning: {diskSelector: {match: 'true'}, minSize: 1GiB}",
            "provisioning.minSize must not be given for a whole disk",
        ),
        (
            "UserVolumeConfig",
            "volumeType: disk\nprovisioning: {diskSelector: {match: 'true'}, maxSize: 50%}",
            "provisioning.maxSize must not be given for a whole disk",
        ),
        (
            "UserVolumeConfig",
            "volumeType: disk\nprovisioning: {diskSelector: {match: 'true'}, grow: false}",
            "provisioning.grow must not be given for a whole disk",
        ),
        (
            "UserVolumeConfig",
            "volumeType: disk\nprovisioning: {diskSelector: {match: 'true'}}\nfilesystem: {type: ext4}",
            "filesystem.type is not supported yet; use xfs",
        ),
        (
            "UserVolumeConfig",
            "provisioning: {diskSelector: {match: 'true'}}\nfilesystem: {type: ext4}",
            "filesystem.type is not supported yet; use xfs",
        ),
        (
            "UserVolumeConfig",
            "provisioning: {diskSelector: {match: 'true'}}\nfilesystem: {xfs: {minAllocationGroupSize: 64GiB}}",
            "not supported yet: filesystem.xfs",
        ),
        (
            "UserVolumeConfig",
            "provisioning: {diskSelector: {match: 'true'}}\ntrim: {enabled: true}",
            "not supported yet: trim",
        ),
        (
            "UserVolumeConfig",
            "provisioning: {diskSelector: {match: 'true'}, maxSize: 200MiB}",
            "provisioning.maxSize must be 300 MiB or more, for XFS",
        ),
        (
            "UserVolumeConfig",
            "provisioning: {diskSelector: {match: disk.colour == 'red'}}",
            "provisioning.diskSelector cannot choose a disk: ",
        ),
        (
            "UserVolumeConfig",
            "volumeType: directory\nmount: {secure: false}",
            "mount must not be given for a directory",
        ),
        (
            "RawVolumeConfig",
            "provisioning: {minSize: 1GiB}",
            "provisioning needs diskSelector",
        ),
        (
            "SwapVolumeConfig",
            "provisioning: {maxSize: 1GiB}",
            "provisioning needs diskSelector",
        ),
        (
            "ExistingVolumeConfig",
            "discovery: {volumeSelector: {match: system_disk}}",
            "discovery.volumeSelector cannot choose a volume: there is no system_disk",
        ),
    ] {
        let found = problems(&with(kind, &format!("name: a\n{fields}")));
        assert!(found.iter().any(|p| p.contains(why)), "{fields}: {found:?}");
    }
}

#[test]
fn volumes_with_the_same_mount_point_are_refused() {
    let two = format!(
        "name: a\n{ON_DISK}}}\n---\napiVersion: v1alpha1\nkind: ExistingVolumeConfig\nname: a\n\
         discovery: {{volumeSelector: {{match: 'true'}}}}"
    );
    let found = problems(&with("UserVolumeConfig", &two));
    let why = "the volume a is described twice";
    assert!(found.iter().any(|p| p.contains(why)), "{found:?}");
    // Partitions have their own names.
    let two = two.replace("ExistingVolumeConfig", "RawVolumeConfig");
    let two = two.replace("discovery: {volumeSelector: {match: 'true'}}", ON_DISK) + "}";
    assert_eq!(problems(&with("UserVolumeConfig", &two)), [""; 0]);
}

#[test]
fn only_volumes_the_node_has_are_mounted_by_the_config() {
    let volume = |fields| format!("{}{}", good(), doc("VolumeConfig", fields));
    let other = volume("name: ETCD\nmount: {secure: true}");
    let found = problems(&other);
    assert!(
        found.len() == 1 && found[0].contains("mount is for STATE and EPHEMERAL only"),
        "{found:?}"
    );
    future(&other);
    let times = volume("name: STATE\nmount: {disableAccessTime: true}");
    assert!(problems(&times)[0].contains("not supported yet: mount.disableAccessTime"));
}
