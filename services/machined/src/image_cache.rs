//! The image cache: a partition of images, which registryd serves and containerd asks first.
//!
//! The partition IMAGECACHE is on the disk that carries the node. It is never written.

use std::path::Path;

use corten_base::durable::is_volume;
use corten_supervisor::IMAGE_CACHE;
use corten_sys::mount::{self, MountFlags};

/// The reference uses ext4; a squashfs needs no writable file system to create it.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "squashfs"];

/// Whether the cache is mounted.
#[must_use]
pub fn is_mounted() -> bool {
    is_volume(Path::new(IMAGE_CACHE))
}

/// Mounts the cache read-only, unless it is mounted.
///
/// # Errors
/// If there is no such partition or it cannot be mounted.
pub fn mount() -> Result<(), String> {
    if is_mounted() {
        return Ok(());
    }
    let target = Path::new(IMAGE_CACHE);
    let device = corten_volumes::device(corten_volumes::IMAGE_CACHE)
        .map_err(|error| format!("the image cache of the config cannot be mounted: {error}"))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut why = Vec::new();
    for kind in FILE_SYSTEMS {
        match mount::mount(&device, target, kind, flags, "") {
            Ok(()) => return Ok(()),
            Err(error) => why.push(format!("{kind}: {error}")),
        }
    }
    let device = device.display();
    Err(format!(
        "the image cache on {device} cannot be mounted ({})",
        why.join(", ")
    ))
}
