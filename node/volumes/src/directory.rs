//! The volumes of a node that runs in a container: directories, which the container runtime mounts and keeps.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use corten_base::durable;
use corten_base::mode::{Ability, Mode};
use corten_base::mount_table::{self, Mount};

use super::{EPHEMERAL, STATE};

/// The volumes that a reset of the whole node empties. STATE comes last: until then the node knows its owner.
pub const ALL: [&str; 2] = [EPHEMERAL.name, STATE.name];

/// Mount point of a volume.
///
/// # Errors
/// A container has no such volume, or its runtime has not mounted the volume.
pub fn of(volume: &str) -> io::Result<&'static Path> {
    let known = [&EPHEMERAL, &STATE].into_iter();
    let Some(volume) = known.into_iter().find(|known| known.name == volume) else {
        let why = Mode::Container.check(Ability::Disks);
        return Err(io::Error::other(why.err().unwrap_or_default()));
    };
    let target = Path::new(volume.target);
    if !durable::is_volume(target) {
        return Err(io::Error::other(format!(
            "the container runtime has mounted nothing on {}",
            target.display()
        )));
    }
    Ok(target)
}

/// Removes all content of the directory, and calls `alive` after each entry.
///
/// # Errors
/// Another file system is mounted below it: its content is not the volume's. Or a file cannot be removed.
pub fn empty(directory: &Path, alive: &dyn Fn()) -> io::Result<()> {
    empty_among(&mount_table::now(), directory, alive)
}

fn empty_among(mounts: &[Mount], directory: &Path, alive: &dyn Fn()) -> io::Result<()> {
    let is_below = |mount: &&Mount| {
        let inside = Path::new(&mount.target).strip_prefix(directory);
        inside.is_ok_and(|inside| inside != Path::new(""))
    };
    if let Some(mount) = mounts.iter().find(is_below) {
        let why = format!("{} is still mounted", mount.target);
        return Err(io::Error::new(ErrorKind::ResourceBusy, why));
    }
    for entry in fs::read_dir(directory)? {
        durable::remove_whole(&entry?.path())?;
        alive();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_is_emptied_and_links_out_of_it_are_not_followed() {
        let (volume, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("kept"), "").unwrap();
        fs::create_dir_all(volume.path().join("lib/etcd")).unwrap();
        fs::write(volume.path().join("lib/etcd/data"), "").unwrap();
        for link in ["link", "lib/link"] {
            std::os::unix::fs::symlink(other.path(), volume.path().join(link)).unwrap();
        }
        empty(volume.path(), &|| ()).unwrap();
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
        assert!(other.path().join("kept").exists());
    }

    #[test]
    fn volume_with_a_mount_below_it_keeps_its_content() {
        let volume = tempfile::tempdir().unwrap();
        let path = volume.path().display();
        fs::create_dir(volume.path().join("data")).unwrap();
        let own = format!("/dev/vda {path} xfs rw 0 0\n");
        let mounts = mount_table::parse(&format!("{own}tmpfs {path}/data tmpfs rw 0 0\n"));
        let error = empty_among(&mounts, volume.path(), &|| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("{path}/data is still mounted"));
        assert!(volume.path().join("data").exists());
        empty_among(&mount_table::parse(&own), volume.path(), &|| ()).unwrap();
    }

    #[test]
    fn container_has_no_meta() {
        let error = of("META").unwrap_err().to_string();
        assert!(error.contains("this node runs in a container"), "{error}");
    }
}
