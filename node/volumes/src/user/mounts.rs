//! Mounts and unmounts user volumes.
//!
//! A container with a `hostPath` in EPHEMERAL can replace a mount point by a symbolic link. So the path is resolved one
//! directory at a time without following links, and the mount uses the resulting file descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use corten_base::console;
use corten_base::mount_table::{self, Mount};
use corten_sys::mount;
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;

use super::{Kind, Mounting, Place, Purpose, UserVolume, holders, swap};
use crate::attach::mount_on;
use crate::{EPHEMERAL, Volume, encryption};

/// File systems that sysfs lists by device name while they are mounted in any namespace.
const SHOWN: [&str; 2] = ["/sys/fs/xfs", "/sys/fs/ext4"];

/// A file descriptor of a directory; it stays the same directory when the path changes.
#[derive(Debug)]
pub(super) struct Target(OwnedFd);

impl Target {
    /// Opens the mount point at this path and creates missing directories.
    ///
    /// # Errors
    /// The text names the obstacle.
    pub(super) fn make(path: &str) -> Result<Target, String> {
        let found = below(Path::new(EPHEMERAL.target), Path::new(path), true);
        found.map_err(|error| error.to_string())
    }

    /// A path to the directory, valid in this process until `self` is dropped.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Opens the directory at a path below `root` without following links. `makes`: create missing directories.
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
            return Err(io::Error::other("the path is not a valid mount point"));
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
                let text = format!("{} is not a directory; remove it", shown.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            Err(error) => return Err(cannot("open", &shown, error)),
        };
    }
    Ok(Target(directory))
}

/// Undoes the mount at a path. The parent directory is held open, because an open mount point would be busy.
fn undo(path: &str, how: fn(&Path) -> io::Result<()>) -> Result<(), String> {
    let path = Path::new(path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is not a mount point", path.display()));
    };
    let undone = below(Path::new(EPHEMERAL.target), parent, false)
        .and_then(|parent| how(&PathBuf::from(parent.path()).join(name)));
    match undone {
        // It is not mounted, or its directory is gone: only the decrypted device is left.
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

/// Mounts an existing file system.
pub(super) fn mount_existing(volume: &UserVolume, device: &str, kind: &str) -> Result<(), String> {
    let Some(Mounting { target, flags, .. }) = &volume.mounting else {
        return Ok(());
    };
    let target = Target::make(target)?;
    let place = target.path();
    mount::mount(Path::new(device), Path::new(&place), kind, *flags, "")
        .map_err(|error| format!("{device} ({kind}) cannot be mounted: {error}"))
}

/// Whether a volume that was mounted still is.
pub(super) fn is_mounted(volume: &UserVolume, place: &Place) -> bool {
    let table = mount_table::now();
    // The root mount always exists, so an empty table means that it could not be read.
    table.is_empty() || is_in(&table, volume, place)
}

fn is_in(table: &[Mount], volume: &UserVolume, place: &Place) -> bool {
    let Some(target) = own_mount(volume) else {
        return true;
    };
    let mut mounts = table.iter();
    mounts.any(|mount| mount.target == target && mount.source == place.opened)
}

/// Mount point of a volume; a directory has no mount of its own.
fn own_mount(volume: &UserVolume) -> Option<&str> {
    let mounting = volume.mounting.as_ref()?;
    (volume.kind != Kind::Directory).then_some(mounting.target.as_str())
}

pub(super) fn is_swap(volume: &UserVolume) -> bool {
    matches!(&volume.kind, Kind::Partition(one) if one.purpose == Purpose::Swap)
}

/// Unmounts and closes the volume, unless it is in use.
pub(super) fn release(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume) {
        swap::stop(Path::new(&place.opened))?;
    }
    let Some(target) = own_mount(volume) else {
        return close(volume, place, encryption::close).map_err(still_open);
    };
    let Some(made) = volume.volume() else {
        // The node does not own the file system, and never wipes it.
        return undo(target, mount::unmount);
    };
    unmount_unused(
        || holders::survive(target),
        || undo(target, mount::unmount),
        || close(volume, place, encryption::close_now),
        || {
            if let Err(why) = mount_again(&made, Path::new(&place.opened)) {
                console::warn(&format!("{} is no longer mounted: {why}", volume.id));
            }
        },
    )
}

/// Unmounts and closes a volume. A container that starts while it is unmounted binds the directory of its mount point,
/// and writes to EPHEMERAL instead. So a volume in use stays mounted, and one that proves to be in use afterwards is
/// mounted again without a pause.
fn unmount_unused(
    is_held: impl FnOnce() -> bool,
    unmount: impl FnOnce() -> Result<(), String>,
    close: impl FnOnce() -> io::Result<()>,
    mount: impl FnOnce(),
) -> Result<(), String> {
    if is_held() {
        return Err("it is in use: a container has it mounted".to_owned());
    }
    unmount()?;
    close().map_err(|error| {
        mount();
        still_open(error)
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the argument of map_err")]
fn still_open(error: io::Error) -> String {
    format!("it cannot be closed: {error}")
}

/// Closes the device of a volume by `encrypted`; fails if a file system on it is still mounted elsewhere.
fn close(
    volume: &UserVolume,
    place: &Place,
    encrypted: fn(&str) -> io::Result<()>,
) -> io::Result<()> {
    if !place.is_clear() {
        return encrypted(&volume.id);
    }
    if !volume.is_made() {
        return Ok(());
    }
    // The kernel refuses a second exclusive user, such as a mounted file system.
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let opened = File::options()
        .read(true)
        .custom_flags(exclusive)
        .open(&place.opened);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(error),
        // A device that is gone or broken has no users to protect.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn mount_again(made: &Volume<'_>, device: &Path) -> Result<(), String> {
    let target = Target::make(made.target)?;
    let there = Volume {
        target: &target.path(),
        ..*made
    };
    mount_on(&there, device).map_err(|error| error.to_string())
}

/// Detaches a volume whose disk is gone, even if it is in use: its data is unreachable.
pub(super) fn abandon(volume: &UserVolume, place: &Place) -> Result<(), String> {
    if is_swap(volume)
        && let Err(why) = swap::stop(Path::new(&place.opened))
    {
        console::warn(&format!("{}: {why}", volume.id));
    }
    if let Some(target) = own_mount(volume) {
        undo(target, mount::detach)?;
    }
    // The kernel refuses to mount a file system again while an instance on another device exists.
    let name = place.device.trim_start_matches("/dev/");
    let is_left = own_mount(volume).is_some()
        && SHOWN
            .iter()
            .any(|shown| Path::new(shown).join(name).exists());
    if encryption::close(&volume.id).is_err() || is_left {
        return Err("the programs that use it must end before it can return".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
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
            let expected = format!("mnt/{name} is not a directory; remove it");
            assert!(why.ends_with(&expected), "{why}");
        }

        // An attacker moves the whole directory away and puts a link in its place.
        fs::rename(var.path().join("mnt"), var.path().join("old")).unwrap();
        symlink(elsewhere.path(), var.path().join("mnt")).unwrap();
        let why = make("mnt/data").unwrap_err().to_string();
        assert!(why.ends_with("/mnt is not a directory; remove it"), "{why}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        assert_eq!(leads_to(), is("old/data"));
        let gone = below(var.path(), &var.path().join("none/data"), false);
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
        below(var.path(), Path::new("/etc"), true).unwrap_err();
        make("../etc").unwrap_err();
    }

    #[test]
    fn volume_counts_as_mounted_only_from_its_own_device() {
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
        // A hidden mount is still a mount.
        assert!(is_mounted(
            data,
            &format!("{own}tmpfs /var/mnt/data tmpfs rw 0 0\n")
        ));
        assert!(!is_mounted(data, "/dev/vda5 /var xfs rw 0 0\n"));
        assert!(!is_mounted(data, "/dev/vdc1 /var/mnt/data xfs rw 0 0\n"));
        assert!(is_mounted(scratch, ""));
    }

    #[test]
    fn volume_in_use_stays_mounted_or_is_mounted_again() {
        let release = |is_held: bool, close: fn() -> io::Result<()>| {
            let steps = RefCell::new(Vec::new());
            let step = |name: &'static str| steps.borrow_mut().push(name);
            let done = unmount_unused(
                || is_held,
                || {
                    step("unmount");
                    Ok(())
                },
                || {
                    step("close");
                    close()
                },
                || step("mount"),
            );
            (done, steps.into_inner())
        };
        let (done, steps) = release(false, || Ok(()));
        assert_eq!((done, &*steps), (Ok(()), &["unmount", "close"][..]));
        let (done, steps) = release(true, || Ok(()));
        assert!(done.unwrap_err().contains("in use") && steps.is_empty());
        let (done, steps) = release(false, || Err(io::ErrorKind::ResourceBusy.into()));
        let why = done.unwrap_err();
        assert!(why.starts_with("it cannot be closed: "), "{why}");
        assert_eq!(steps, ["unmount", "close", "mount"]);
    }

    #[test]
    fn only_volumes_that_the_node_makes_are_probed_for_users() {
        let volumes = wanted(&sample::kind(
            "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}}\n\
             ---\napiVersion: v1alpha1\nkind: ExistingVolumeConfig\nname: old\n\
             discovery: {volumeSelector: {match: 'true'}}",
        ));
        let [data, old] = volumes.as_slice() else {
            panic!("{volumes:?}");
        };
        let busy = |_: &str| Err(io::ErrorKind::ResourceBusy.into());
        let clear = |device: &str| Place {
            device: device.to_owned(),
            opened: device.to_owned(),
            ..Place::default()
        };
        // Only an encrypted volume is closed by the device mapper.
        close(data, &clear("/dev/null"), busy).unwrap();
        close(data, &clear("/no/such/device"), busy).unwrap();
        close(old, &clear("/dev/null"), busy).unwrap();
        let encrypted = Place {
            opened: "/dev/mapper/luks2-u-data".to_owned(),
            ..clear("/dev/null")
        };
        close(data, &encrypted, busy).unwrap_err();
    }
}
