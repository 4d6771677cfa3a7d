//! Mounting user volumes, and taking them out of the tree again.
//!
//! Whoever has a directory of EPHEMERAL from the node (`hostPath`) can put a link where a mount point shall be. So its
//! path is gone down one name at a time, through directories only, and what is mounted on is the one that was found.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use corten_base::console;
use corten_base::mount_table::{self, Mount};
use corten_sys::mount;
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;

use super::{Kind, Mounting, Place, Purpose, UserVolume, swap};
use crate::attach::mount_on;
use crate::{EPHEMERAL, Volume, encryption};

/// File systems whose instances the kernel shows in sysfs by the device's name, as long as anybody has one mounted.
const SHOWN: [&str; 2] = ["/sys/fs/xfs", "/sys/fs/ext4"];

/// A directory that is held open: whatever becomes of its path, it is this one.
#[derive(Debug)]
pub(super) struct Target(OwnedFd);

impl Target {
    /// The mount point at this path, made where it is not there yet.
    ///
    /// # Errors
    /// The text names what is in the way.
    pub(super) fn make(path: &str) -> Result<Target, String> {
        let found = below(Path::new(EPHEMERAL.target), Path::new(path), true);
        found.map_err(|error| error.to_string())
    }

    /// A path that leads there in this process, as long as this is not dropped.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// The directory at a path below `root`, with no link on the way. `makes`: the directories that are missing.
fn below(root: &Path, path: &Path, makes: bool) -> io::Result<Target> {
    let cannot = |what: &str, shown: &Path, error: Errno| {
        let kind = io::Error::from(error).kind();
        io::Error::new(kind, format!("cannot {what} {}: {error}", shown.display()))
    };
    let mut shown = root.to_owned();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory =
        open(root, flags, Mode::empty()).map_err(|error| cannot("open", &shown, error))?;
    let names = path.strip_prefix(root).map_err(io::Error::other)?;
    for part in names.components() {
        let Component::Normal(name) = part else {
            return Err(io::Error::other("a mount point has no such name"));
        };
        shown.push(name);
        if makes {
            match mkdirat(&directory, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(cannot("make", &shown, error)),
            }
        }
        directory = match openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let text = format!("{} is no directory; remove it", shown.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            Err(error) => return Err(cannot("open", &shown, error)),
        };
    }
    Ok(Target(directory))
}

/// Undoes the mount at a path. The directory it is in is held open, as the mount itself would be in use then.
fn undo(path: &str, how: fn(&Path) -> io::Result<()>) -> Result<(), String> {
    let path = Path::new(path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is no mount point", path.display()));
    };
    let undone = below(Path::new(EPHEMERAL.target), parent, false)
        .and_then(|parent| how(&PathBuf::from(parent.path()).join(name)));
    match undone {
        // Not mounted, or its directory is gone: only what was opened is left.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        done => done.map_err(|error| format!("{} cannot be unmounted: {error}", path.display())),
    }
}

/// Mounts what somebody else made, and writes nothing to it by itself.
pub(super) fn mount_existing(volume: &UserVolume, device: &str, kind: &str) -> Result<(), String> {
    let Some(Mounting { target, flags, .. }) = &volume.mounting else {
        return Ok(());
    };
    let target = Target::make(target)?;
    let place = target.path();
    mount::mount(Path::new(device), Path::new(&place), kind, *flags, "")
        .map_err(|error| format!("{device} ({kind}) cannot be mounted: {error}"))
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

pub(super) fn is_swap(volume: &UserVolume) -> bool {
    matches!(&volume.kind, Kind::Partition(one) if one.purpose == Purpose::Swap)
}

/// Takes it out of the tree, unless it is in use.
pub(super) fn release(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume) {
        swap::stop(Path::new(&place.opened))?;
    }
    if let Some(target) = own_mount(volume) {
        undo(target, mount::unmount)?;
    }
    let Err(error) = encryption::close(&volume.id) else {
        return Ok(());
    };
    // A container has it still. What others write must not end beside it, in the clear.
    if let Some(made) = volume.volume()
        && let Err(why) = mount_again(&made, Path::new(&place.opened))
    {
        console::warn(&format!("{} is no longer mounted: {why}", volume.id));
    }
    Err(format!("it cannot be closed: {error}"))
}

fn mount_again(made: &Volume<'_>, device: &Path) -> Result<(), String> {
    let target = Target::make(made.target)?;
    let there = Volume {
        target: &target.path(),
        ..*made
    };
    mount_on(&there, device).map_err(|error| error.to_string())
}

/// Takes out of the tree what is left of one whose disk is gone, in use or not: nothing can be read or written there.
pub(super) fn abandon(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume)
        && let Err(why) = swap::stop(Path::new(&place.opened))
    {
        console::warn(&format!("{}: {why}", volume.id));
    }
    if let Some(target) = own_mount(volume) {
        undo(target, mount::detach)?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use corten_base::sample;

    use super::super::wanted;
    use super::*;

    #[test]
    fn a_volume_is_mounted_on_a_directory_and_not_through_a_link() {
        let var = tempfile::tempdir().unwrap();
        let make = |path: &str| below(var.path(), &var.path().join(path), true);
        make("mnt/data").unwrap();
        let target = make("mnt/data").unwrap();
        let leads_to = || fs::canonicalize(target.path()).unwrap();
        let is = |path: &str| var.path().canonicalize().unwrap().join(path);
        assert_eq!(leads_to(), is("mnt/data"));

        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), var.path().join("mnt/link")).unwrap();
        fs::write(var.path().join("mnt/file"), "").unwrap();
        for name in ["link", "file"] {
            let why = make(&format!("mnt/{name}")).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::NotADirectory);
            let why = why.to_string();
            let expected = format!("mnt/{name} is no directory; remove it");
            assert!(why.ends_with(&expected), "{why}");
        }

        // All of it is put away, and a link is where it was.
        fs::rename(var.path().join("mnt"), var.path().join("old")).unwrap();
        symlink(elsewhere.path(), var.path().join("mnt")).unwrap();
        let why = make("mnt/data").unwrap_err().to_string();
        assert!(why.ends_with("/mnt is no directory; remove it"), "{why}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        assert_eq!(leads_to(), is("old/data"));
        let gone = below(var.path(), &var.path().join("none/data"), false);
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
        below(var.path(), Path::new("/etc"), true).unwrap_err();
        make("../etc").unwrap_err();
    }

    #[test]
    fn a_volume_is_mounted_when_its_own_device_is() {
        let volumes = wanted(&sample::kind(
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
