//! Volumes beside the node, found by the labels of their file systems: a CD, a stick, a disk a cloud attaches.

use std::fs;
use std::path::{Path, PathBuf};

use corten_services::REGISTRYD_UID;
use corten_sys::mount::{self, MountFlags};

/// What such volumes are made with.
const FILE_SYSTEMS: [&str; 2] = ["iso9660", "vfat"];

/// How each is mounted: root and registryd read the files, whatever permissions they had when the volume was made.
fn options(fstype: &str) -> String {
    let permissions = match fstype {
        "iso9660" => "mode=0440,dmode=0550,overriderockperm",
        _ => "umask=0227",
    };
    format!("{permissions},gid={REGISTRYD_UID}")
}
/// udevd's links.
const BY_LABEL: &str = "/dev/disk/by-label";

/// A volume that is mounted for as long as this lives.
#[derive(Debug)]
pub struct Attached(PathBuf);

/// Mounts the volume read-only at `mount_point`; `None`: there is none.
///
/// # Errors
/// It cannot be mounted; the text names it.
pub fn attach(label: &str, mount_point: &Path) -> Result<Option<Attached>, String> {
    let device = Path::new(BY_LABEL).join(label);
    if !device.exists() {
        return Ok(None);
    }
    let told = |error: &dyn std::fmt::Display| format!("volume {label}: {error}");
    fs::create_dir_all(mount_point).map_err(|error| told(&error))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut refused = String::new();
    for fstype in FILE_SYSTEMS {
        match mount::mount(&device, mount_point, fstype, flags, &options(fstype)) {
            Ok(()) => return Ok(Some(Attached(mount_point.to_owned()))),
            Err(error) => refused = format!("it is neither ISO 9660 nor FAT: {error}"),
        }
    }
    Err(told(&refused))
}

impl Attached {
    /// Where a file of the volume is.
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
