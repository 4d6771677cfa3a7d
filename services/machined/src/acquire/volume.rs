//! A config on a volume beside the node: a CD, a stick, a disk a cloud attaches.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use corten_sys::mount::{self, MountFlags};

use super::{LARGEST, decode};

/// What such volumes are made with.
const FILE_SYSTEMS: [&str; 2] = ["iso9660", "vfat"];
/// Where one is looked into.
const MOUNT_POINT: &str = "/run/config-source";
/// udevd's links.
const BY_LABEL: &str = "/dev/disk/by-label";

/// The file on the first volume that has one of the labels; `None` when there is no such volume, or no such
/// file on it.
///
/// # Errors
/// The volume cannot be read; the text names it.
pub fn find(labels: &[&str], file: &str) -> Result<Option<Vec<u8>>, String> {
    for label in labels {
        let device = Path::new(BY_LABEL).join(label);
        if device.exists() {
            return read(&device, file).map_err(|error| format!("volume {label}: {error}"));
        }
    }
    Ok(None)
}

fn read(device: &Path, file: &str) -> Result<Option<Vec<u8>>, String> {
    let mount_point = Path::new(MOUNT_POINT);
    fs::create_dir_all(mount_point).map_err(|error| error.to_string())?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut refused = String::new();
    for fstype in FILE_SYSTEMS {
        match mount::mount(device, mount_point, fstype, flags, "") {
            Ok(()) => {
                let content = read_file(&mount_point.join(file));
                let _ = mount::unmount(mount_point);
                return content;
            }
            Err(error) => refused = format!("it is neither ISO 9660 nor FAT: {error}"),
        }
    }
    Err(refused)
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("the file is larger than {} MiB", LARGEST >> 20));
    }
    decode::unpack(bytes).map(Some)
}
