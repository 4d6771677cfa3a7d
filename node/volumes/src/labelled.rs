//! Volumes found by the label of their file system: a CD, a USB stick, a disk that a cloud attaches.

use std::fs;
use std::path::{Path, PathBuf};

use corten_supervisor::REGISTRYD_UID;
use corten_sys::mount::{self, MountFlags};

/// Supported file systems.
const FILE_SYSTEMS: [&str; 2] = ["iso9660", "vfat"];

/// Mount options: root and registryd can read the files, whatever their permissions in the file system.
fn options(fstype: &str) -> String {
    let permissions = match fstype {
        "iso9660" => "mode=0440,dmode=0550,overriderockperm",
        _ => "umask=0227",
    };
    format!("{permissions},gid={REGISTRYD_UID}")
}
/// Directory of udevd's links.
const BY_LABEL: &str = "/dev/disk/by-label";

/// A mounted volume, unmounted on drop.
#[derive(Debug)]
pub struct Attached(PathBuf);

/// Mounts the volume read-only at `mount_point`; `None` if there is none.
///
/// # Errors
/// If it cannot be mounted; the text names the volume.
pub fn attach(label: &str, mount_point: &Path) -> Result<Option<Attached>, String> {
    let device = Path::new(BY_LABEL).join(label);
    if !device.exists() {
        return Ok(None);
    }
    attach_device(&device, &format!("volume {label}"), mount_point).map(Some)
}

/// Mounts a device read-only at `mount_point`.
///
/// # Errors
/// If it cannot be mounted; the text names it as `shown`.
pub fn attach_device(device: &Path, shown: &str, mount_point: &Path) -> Result<Attached, String> {
    let told = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    fs::create_dir_all(mount_point).map_err(|error| told(&error))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut refused = String::new();
    for fstype in FILE_SYSTEMS {
        match mount::mount(device, mount_point, fstype, flags, &options(fstype)) {
            Ok(()) => return Ok(Attached(mount_point.to_owned())),
            Err(error) => refused = format!("it is neither ISO 9660 nor FAT: {error}"),
        }
    }
    Err(told(&refused))
}

impl Attached {
    /// Path of a file on the volume.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if mount::unmount(&self.0).is_err() {
            let _ = mount::detach(&self.0);
        }
    }
}
