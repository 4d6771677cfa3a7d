//! Resolves device attributes in the notation of rules.

use crate::sysfs::Sysfs;
use std::fs;
use std::path::PathBuf;

/// Links in a device's directory that are attributes. Their value is the last component of the target.
const LINKS: [&str; 3] = ["driver", "subsystem", "module"];

/// The value of attribute `name` of the device at `devpath`, without trailing line feeds. `name` is a file below the
/// device's directory, or `[subsystem/kernel]file` of another device. The first `/*/` in it stands for any directory
/// that has the rest.
pub fn value(sysfs: &Sysfs, devpath: &str, name: &str) -> Option<String> {
    let path = locate(sysfs, devpath, name)?;
    let found = path.symlink_metadata().ok()?;
    if found.is_symlink() {
        let last = path.file_name()?.to_str()?;
        let target = fs::read_link(&path).ok()?;
        return Some(target.file_name()?.to_str()?.to_owned()).filter(|_| LINKS.contains(&last));
    }
    if !found.is_file() {
        return None;
    }
    let bytes = sysfs.bytes("/", path.strip_prefix(sysfs.path("/")).ok()?.to_str()?)?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.trim_end_matches(['\n', '\r', '\0']).to_owned())
}

/// Path of the attribute; `None` if it is outside sysfs.
pub fn locate(sysfs: &Sysfs, devpath: &str, name: &str) -> Option<PathBuf> {
    let Some((directory, rest)) = name.split_once("/*/") else {
        return plain(sysfs, devpath, name);
    };
    let directory = plain(sysfs, devpath, directory)?;
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    let below = |entry: PathBuf| Some(entry.join(rest)).filter(|path| path.exists());
    // The rest must not leave the directory.
    entries
        .into_iter()
        .find_map(below)
        .filter(|_| crate::event::is_plain_path(rest))
}

fn plain(sysfs: &Sysfs, devpath: &str, name: &str) -> Option<PathBuf> {
    let (device, file) = match name.strip_prefix('[').and_then(|n| n.split_once(']')) {
        Some((device, file)) => (other(sysfs, device)?, file),
        None => (devpath.to_owned(), name),
    };
    let mut parts: Vec<&str> = device.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(sysfs.path(&parts.join("/")))
}

/// The devpath of the device `subsystem/kernel`.
fn other(sysfs: &Sysfs, device: &str) -> Option<String> {
    let (subsystem, kernel) = device.split_once('/')?;
    if !crate::event::is_plain_path(subsystem) || !crate::event::is_plain_path(kernel) {
        return None;
    }
    let kernel = kernel.replace('/', "!");
    match subsystem {
        "module" => Some(format!("/module/{kernel}")),
        "subsystem" => Some(format!("/bus/{kernel}")),
        _ => [
            format!("/bus/{subsystem}/devices/{kernel}"),
            format!("/class/{subsystem}/{kernel}"),
        ]
        .into_iter()
        .find(|path| sysfs.path(path).exists()),
    }
}

#[cfg(test)]
mod tests {
    use super::{locate, value};
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;

    #[test]
    fn attributes_of_the_device_and_other_devices_are_read() {
        let tree = Tree::new();
        let disk = "/devices/p/block/vda";
        tree.device(disk, "block")
            .attribute(disk, "serial", "a b \n");
        tree.attribute(disk, "queue/rotational", "0\n");
        tree.attribute("/class/dmi/id", "sys_vendor", "QEMU\n");
        let sysfs = Sysfs::new(tree.path());
        let of = |name: &str| value(&sysfs, disk, name);
        assert_eq!(of("serial").as_deref(), Some("a b "));
        assert_eq!(of("queue/rotational").as_deref(), Some("0"));
        assert_eq!(of("../../block/*/serial").as_deref(), Some("a b "));
        assert_eq!(of("subsystem").as_deref(), Some("block"));
        assert_eq!(of("[dmi/id]sys_vendor").as_deref(), Some("QEMU"));
        for absent in ["queue", "size", "[dmi/x]a", "[a]b", "[../..]a", "*/x"] {
            assert_eq!(of(absent), None, "{absent}");
        }
    }

    #[test]
    fn attribute_paths_cannot_escape_sysfs() {
        let tree = Tree::new();
        let sysfs = Sysfs::new(tree.path());
        let outside = "../".repeat(9) + "etc/passwd";
        assert_eq!(locate(&sysfs, "/devices/a", &outside), None);
        assert_eq!(
            locate(&sysfs, "/devices/a", "x/*/../../../../etc/passwd"),
            None
        );
        let inside = locate(&sysfs, "/devices/a", "../b");
        assert_eq!(inside, Some(tree.path().join("devices/b")));
    }
}
