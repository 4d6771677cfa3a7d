//! Mounting user volumes, and taking them out of the tree again.

use std::fs;
use std::io;
use std::path::Path;

use corten_sys::mount;

use super::{Kind, Mounting, Place, Purpose, UserVolume, swap};
use crate::console;
use crate::mount_table::{self, Mount};
use crate::volumes::attach::mount_on;
use crate::volumes::encryption;

/// File systems whose instances the kernel shows in sysfs by the device's name, as long as anybody has one mounted.
const SHOWN: [&str; 2] = ["/sys/fs/xfs", "/sys/fs/ext4"];

/// Mounts what somebody else made, and writes nothing to it by itself.
pub(super) fn mount_existing(volume: &UserVolume, device: &str, kind: &str) -> Result<(), String> {
    let Some(Mounting { target, flags, .. }) = &volume.mounting else {
        return Ok(());
    };
    make_target(volume.mounting.as_ref())?;
    mount::mount(Path::new(device), Path::new(target), kind, *flags, "")
        .map_err(|error| format!("{device} ({kind}) cannot be mounted: {error}"))
}

/// A link there would lead the mount to somewhere else.
pub(super) fn make_target(mounting: Option<&Mounting>) -> Result<(), String> {
    let Some(Mounting { target, .. }) = mounting else {
        return Ok(());
    };
    fs::create_dir_all(target).map_err(|error| format!("cannot make {target}: {error}"))?;
    let is_directory = fs::symlink_metadata(target).is_ok_and(|found| found.is_dir());
    if is_directory {
        Ok(())
    } else {
        Err(format!("{target} is no directory; remove it"))
    }
}

/// Whether a volume that was mounted is so still.
pub(super) fn is_mounted(volume: &UserVolume, place: &Place) -> bool {
    let table = mount_table::now();
    // There is always a root: without it nothing is known.
    table.is_empty() || is_in(&table, volume, place)
}

fn is_in(table: &[Mount], volume: &UserVolume, place: &Place) -> bool {
    let Some(target) = own_mount(volume) else {
        return true;
    };
    let mut mounts = table.iter();
    mounts.any(|mount| mount.target == target && mount.source == place.opened)
}

/// Where a volume is mounted that is; a directory is one of EPHEMERAL's.
fn own_mount(volume: &UserVolume) -> Option<&str> {
    let mounting = volume.mounting.as_ref()?;
    (volume.kind != Kind::Directory).then_some(mounting.target.as_str())
}

fn is_swap(volume: &UserVolume) -> bool {
    matches!(&volume.kind, Kind::Partition(one) if one.purpose == Purpose::Swap)
}

/// Takes it out of the tree, unless it is in use.
pub(super) fn release(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume) {
        swap::stop(Path::new(&place.opened))?;
    }
    if let Some(target) = own_mount(volume) {
        unless_gone(mount::unmount(Path::new(target)))
            .map_err(|error| format!("{target} cannot be unmounted: {error}"))?;
    }
    let Err(error) = encryption::close(&volume.id) else {
        return Ok(());
    };
    // A container has it still. What others write must not end beside it, in the clear.
    if let Some(made) = volume.volume()
        && let Err(error) = mount_on(&made, Path::new(&place.opened))
    {
        console::warn(&format!("{} is no longer mounted: {error}", volume.id));
    }
    Err(format!("it cannot be closed: {error}"))
}

/// Takes out of the tree what is left of one whose disk is gone, in use or not: nothing can be read or written there.
pub(super) fn abandon(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume)
        && let Err(why) = swap::stop(Path::new(&place.opened))
    {
        console::warn(&format!("{}: {why}", volume.id));
    }
    if let Some(target) = own_mount(volume) {
        unless_gone(mount::detach(Path::new(target)))
            .map_err(|error| format!("{target} cannot be unmounted: {error}"))?;
    }
    // The kernel does not mount a file system twice, whose first device is another one.
    let name = place.device.trim_start_matches("/dev/");
    let is_left = own_mount(volume).is_some()
        && SHOWN
            .iter()
            .any(|shown| Path::new(shown).join(name).exists());
    if encryption::close(&volume.id).is_err() || is_left {
        return Err("what uses it has to end before it can come back".to_owned());
    }
    Ok(())
}

/// Not mounted, or its directory is gone: only what was opened is left.
fn unless_gone(unmounted: io::Result<()>) -> io::Result<()> {
    match unmounted {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use corten_sys::mount::MountFlags;

    use super::super::tests::document;
    use super::super::wanted;
    use super::*;

    fn mounting(target: &Path) -> Mounting {
        Mounting {
            target: target.display().to_string(),
            flags: MountFlags::empty(),
            project_quota: false,
        }
    }

    #[test]
    fn a_volume_is_mounted_on_a_directory_and_not_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("mnt/data");
        make_target(Some(&mounting(&target))).unwrap();
        make_target(Some(&mounting(&target))).unwrap();
        assert!(target.is_dir());
        let link = root.path().join("mnt/link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let why = make_target(Some(&mounting(&link))).unwrap_err();
        assert!(why.ends_with("is no directory; remove it"), "{why}");
        fs::write(root.path().join("mnt/file"), "").unwrap();
        make_target(Some(&mounting(&root.path().join("mnt/file")))).unwrap_err();
    }

    #[test]
    fn a_volume_is_mounted_when_its_own_device_is() {
        let volumes = wanted(&document(
            "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}}\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: scratch\nvolumeType: directory",
        ));
        let [data, scratch] = volumes.as_slice() else {
            panic!("{volumes:?}");
        };
        let place = Place {
            opened: "/dev/vdb1".to_owned(),
            ..Place::default()
        };
        let is_mounted = |volume, table: &str| is_in(&mount_table::parse(table), volume, &place);
        let own = "/dev/vdb1 /var/mnt/data xfs rw 0 0\n";
        assert!(is_mounted(data, own));
        // Hidden it is there still.
        assert!(is_mounted(
            data,
            &format!("{own}tmpfs /var/mnt/data tmpfs rw 0 0\n")
        ));
        assert!(!is_mounted(data, "/dev/vda5 /var xfs rw 0 0\n"));
        assert!(!is_mounted(data, "/dev/vdc1 /var/mnt/data xfs rw 0 0\n"));
        assert!(is_mounted(scratch, ""));
    }
}
