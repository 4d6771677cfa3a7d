//! The image cache: a partition with images, which registryd serves and containerd asks first.
//!
//! The partition is named IMAGECACHE and lies on the disk that carries the node; nothing here writes to it.

use std::path::Path;

use corten_base::durable::is_volume;
use corten_services::IMAGE_CACHE;
use corten_sys::mount::{self, MountFlags};

/// The reference makes ext4; a squashfs needs no writable file system to be made.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "squashfs"];

/// Whether the cache can be read.
#[must_use]
pub fn is_mounted() -> bool {
    is_volume(Path::new(IMAGE_CACHE))
}

/// Mounts the cache read-only, unless it is.
///
/// # Errors
/// There is no such partition, or it cannot be mounted; the text says which.
pub fn mount() -> Result<(), String> {
    if is_mounted() {
        return Ok(());
    }
    let target = Path::new(IMAGE_CACHE);
    let device = corten_volumes::device(corten_volumes::IMAGE_CACHE)
        .map_err(|error| format!("the config wants an image cache: {error}"))?;
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
