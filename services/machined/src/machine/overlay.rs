//! Lays the loaded extensions over a directory, as one overlay that is replaced as a whole.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use corten_sys::mount::{self, MountAttrFlags, Unattached};
use rustix::fs::{Mode, OFlags};

/// Source of the overlay in the mount table.
const SOURCE: &str = "corten-extensions";
/// Mount option that adds a layer below the earlier ones (Documentation/filesystems/overlayfs.rst; since Linux 6.7).
const LAYER: &str = "lowerdir+";

/// A directory, and the overlay on it.
#[derive(Debug)]
pub(super) struct Overlay {
    target: PathBuf,
    /// Descriptor of the directory itself: the lowest layer, whatever is mounted on the path.
    own: OwnedFd,
    is_mounted: bool,
    /// Whether the successor is mounted beneath the current overlay, which could not be detached.
    is_doubled: bool,
    detach: fn(&Path) -> io::Result<()>,
}

impl Overlay {
    /// Opens a directory that has no overlay yet.
    ///
    /// # Errors
    /// There is no such directory.
    pub(super) fn over(target: &Path) -> io::Result<Overlay> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Overlay {
            target: target.to_owned(),
            own: rustix::fs::open(target, flags, Mode::empty())?,
            is_mounted: false,
            is_doubled: false,
            detach: mount::detach,
        })
    }

    /// Replaces the overlay by one of these layers, the topmost first. A process that uses the old layers keeps them
    /// until it ends.
    ///
    /// # Errors
    /// The mount or the detachment fails. The old layers stay: they are detached only after the new ones are mounted.
    pub(super) fn lay(&mut self, layers: &[PathBuf]) -> io::Result<()> {
        if self.is_doubled {
            (self.detach)(&self.target)?;
            self.is_doubled = false;
        }
        if !layers.is_empty() {
            let next = self.with(layers)?;
            if self.is_mounted {
                next.attach_beneath(&self.target)?;
                self.is_doubled = true;
            } else {
                next.attach(&self.target)?;
            }
        }
        if self.is_mounted {
            (self.detach)(&self.target)?;
        }
        self.is_doubled = false;
        self.is_mounted = !layers.is_empty();
        Ok(())
    }

    fn with(&self, layers: &[PathBuf]) -> io::Result<Unattached> {
        let own = PathBuf::from(format!("/proc/self/fd/{}", self.own.as_raw_fd()));
        let all = layers.iter().chain([&own]);
        let options: Vec<_> = all.map(|layer| (LAYER, layer.as_path())).collect();
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV;
        Unattached::new("overlay", SOURCE, &options, attributes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use corten_base::mount_table;
    use corten_base::testing::{kernel_lacks, on_a_volume};

    use super::*;

    /// Major and minor version of the kernel.
    fn kernel() -> (u32, u32) {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().unwrap().parse().unwrap();
        (next(), next())
    }

    fn layers_come_and_go(directory: &Path) {
        let at = |name: &str| directory.join(name);
        for (name, file) in [("own", "own"), ("a", "a"), ("b", "b"), ("c", "a")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join(file), name).unwrap();
        }
        let seen = || {
            let names = fs::read_dir(at("own")).unwrap();
            let path = |entry: io::Result<fs::DirEntry>| entry.unwrap().path();
            let mut texts: Vec<String> = names
                .map(|entry| fs::read_to_string(path(entry)).unwrap())
                .collect();
            texts.sort();
            texts.concat()
        };
        let lay = |overlay: &mut Overlay, names: &[&str]| {
            overlay.lay(&names.iter().map(|name| at(name)).collect::<Vec<_>>())
        };
        let mut overlay = Overlay::over(&at("own")).unwrap();
        lay(&mut overlay, &["nothing"]).unwrap_err();
        assert_eq!(seen(), "own");
        lay(&mut overlay, &["a", "b"]).unwrap();
        assert_eq!(seen(), "abown");
        fs::write(at("own").join("a"), "changed").unwrap_err();
        let in_use = File::open(at("own").join("a")).unwrap();
        // A failed mount leaves the old overlay in place.
        lay(&mut overlay, &["b", "nothing"]).unwrap_err();
        assert_eq!(seen(), "abown");
        for (names, all) in [
            (&["c", "a"][..], "cown"),
            (&["b"], "bown"),
            (&[], "own"),
            (&[], "own"),
            (&["a"], "aown"),
        ] {
            lay(&mut overlay, names).unwrap();
            assert_eq!(seen(), all);
        }
        assert_eq!(io::read_to_string(in_use).unwrap(), "a");
        // A failed detachment leaves the old overlay, and repeated attempts add no more mounts beneath it.
        overlay.detach = |_| Err(io::ErrorKind::ResourceBusy.into());
        for names in [&["b"][..], &["b"], &[], &["c"]] {
            lay(&mut overlay, names).unwrap_err();
            assert_eq!(seen(), "aown");
        }
        let mounted = || {
            let table = fs::read_to_string("/proc/thread-self/mounts").unwrap();
            mount_table::parse(&table)
                .iter()
                .filter(|mount| mount.source == SOURCE)
                .count()
        };
        assert_eq!(mounted(), 2);
        overlay.detach = mount::detach;
        lay(&mut overlay, &["c"]).unwrap();
        assert_eq!((seen().as_str(), mounted()), ("cown", 1));
        // No mount is left beneath another.
        lay(&mut overlay, &[]).unwrap();
        mount::unmount(&at("own")).unwrap_err();
    }

    #[test]
    fn extension_layers_are_replaced_atomically_and_stay_after_a_failure() {
        if kernel() < (6, 7) {
            return kernel_lacks("overlays that are given layer by layer (Linux 6.7)");
        }
        on_a_volume("", |directory| {
            // The node's root is shared too.
            mount::make_shared(directory).unwrap();
            layers_come_and_go(directory);
        });
    }
}
