//! What the loaded extensions are laid over a directory with: one overlay, replaced as a whole.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use corten_sys::mount::{self, MountAttrFlags, Unattached};
use rustix::fs::{Mode, OFlags};

/// Its source, as the table of mounts shows it.
const SOURCE: &str = "corten-extensions";
/// One more layer under those before (kernel: Documentation/filesystems/overlayfs.rst; since Linux 6.7).
const LAYER: &str = "lowerdir+";

/// A directory, and what lies over it.
#[derive(Debug)]
pub(super) struct Overlay {
    target: PathBuf,
    /// The directory itself, by which it is the lowest layer whatever is mounted on it.
    own: OwnedFd,
    is_mounted: bool,
}

impl Overlay {
    /// Over a directory, on which nothing was laid yet.
    ///
    /// # Errors
    /// There is no such directory.
    pub(super) fn over(target: &Path) -> io::Result<Overlay> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Overlay {
            target: target.to_owned(),
            own: rustix::fs::open(target, flags, Mode::empty())?,
            is_mounted: false,
        })
    }

    /// Lays these directories over it, the topmost first, in place of those before. What runs out of those has them
    /// until it ends.
    ///
    /// # Errors
    /// Those before lie there still: they go only when the others are there.
    pub(super) fn lay(&mut self, layers: &[PathBuf]) -> io::Result<()> {
        if !layers.is_empty() {
            let next = self.with(layers)?;
            if self.is_mounted {
                next.attach_beneath(&self.target)?;
            } else {
                next.attach(&self.target)?;
            }
        }
        if self.is_mounted {
            mount::detach(&self.target)?;
        }
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
    use std::thread;

    use corten_sys::mount::MountFlags;
    use nix::errno::Errno;
    use nix::mount::MsFlags;
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::network::testing::{kernel_lacks, skip};

    /// The kernel's version, as far as it counts here.
    fn kernel() -> (u32, u32) {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().unwrap().parse().unwrap();
        (next(), next())
    }

    /// A tree of mounts of this thread alone, with a file system of its own at `directory`; false: not without root.
    fn alone(directory: &Path) -> bool {
        match unshare(CloneFlags::CLONE_NEWNS) {
            Ok(()) => {}
            Err(Errno::EPERM) => {
                skip("a mount namespace: run as root");
                return false;
            }
            Err(error) => panic!("no mount namespace: {error}"),
        }
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(none, "/", none, private, none).unwrap();
        mount::mount(
            Path::new("test"),
            directory,
            "tmpfs",
            MountFlags::empty(),
            "",
        )
        .unwrap();
        // As the node's root is.
        mount::make_shared(directory).unwrap();
        true
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
        // What cannot be laid takes nothing away.
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
        // No mount is left under another.
        lay(&mut overlay, &[]).unwrap();
        mount::unmount(&at("own")).unwrap_err();
    }

    #[test]
    fn extensions_are_replaced_at_once_and_stay_when_others_cannot_be_laid() {
        if kernel() < (6, 7) {
            return kernel_lacks("overlays that are given layer by layer (Linux 6.7)");
        }
        let directory = tempfile::tempdir().unwrap();
        let test = || {
            if alone(directory.path()) {
                layers_come_and_go(directory.path());
            }
        };
        // Its mounts go with the thread.
        thread::scope(|scope| scope.spawn(test).join().unwrap());
    }
}
