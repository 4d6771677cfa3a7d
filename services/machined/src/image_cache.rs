//! The image cache: a partition with images, which registryd serves and containerd asks first.
//!
//! The partition is named IMAGECACHE and lies on the disk that carries the node; nothing here writes to it.

use std::fs;
use std::io;
use std::path::Path;

use corten_api::IMAGE_CACHE_PORT;
use corten_sys::mount::{self, MountFlags};

use crate::containerd::HOSTS;
use crate::durable::{Access, is_volume, remove_if_there, replace_now};
use crate::volumes;

/// Where the cache is mounted.
pub const IMAGE_CACHE: &str = "/system/imagecache";
/// What containerd asks of every registry that has no settings of its own, below its directory (containerd:
/// docs/hosts.md).
const DEFAULT: &str = "_default/hosts.toml";
/// The reference makes ext4; a squashfs needs no writable file system to be made.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "squashfs"];

/// Mounts the cache read-only, unless it is.
///
/// # Errors
/// There is no such partition, or it cannot be mounted; the text says which.
pub fn mount() -> Result<(), String> {
    let target = Path::new(IMAGE_CACHE);
    if is_volume(target) {
        return Ok(());
    }
    let device = volumes::device(volumes::IMAGE_CACHE)
        .map_err(|error| format!("machine.features.imageCache is on: {error}"))?;
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

/// Lets containerd ask the cache before any registry, or no longer. It reads the file at every pull.
///
/// # Errors
/// The file cannot be written or removed.
pub fn point_containerd_to_it(wanted: bool) -> Result<(), String> {
    let hosts = Path::new(HOSTS).join(DEFAULT);
    point(&hosts, wanted).map_err(|error| format!("{}: {error}", hosts.display()))
}

fn point(hosts: &Path, wanted: bool) -> io::Result<()> {
    if !wanted {
        return remove_if_there(hosts);
    }
    fs::create_dir_all(hosts.parent().unwrap_or(Path::new("/")))?;
    let text = format!(
        "[host.\"http://127.0.0.1:{IMAGE_CACHE_PORT}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
    );
    replace_now(hosts, &text, Access::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_asks_the_cache_only_while_it_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path().join("certs.d/_default/hosts.toml");
        point(&hosts, false).unwrap();
        point(&hosts, true).unwrap();
        point(&hosts, true).unwrap();
        let text = fs::read_to_string(&hosts).unwrap();
        assert!(text.contains("127.0.0.1:3172"), "{text}");
        point(&hosts, false).unwrap();
        assert!(!hosts.exists());
    }
}
