//! A root of its own for a child: an empty, read-only one in which a few files of the node appear, each with the
//! access that was declared.
//!
//! The child gets a mount namespace (mount_namespaces(7)) whose root is a small tmpfs; what was not named is
//! not hidden there, it is absent.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};

/// The root of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// An empty directory of the parent's; over it the root is put together, in the child's namespace only.
    pub stage: PathBuf,
    /// The files and directories in it.
    pub binds: Vec<Bind>,
    /// The symbolic links in it.
    pub links: Vec<Link>,
    /// Empty files in it, in place of files of the node that a program insists on.
    pub empty: Vec<PathBuf>,
}

/// A symbolic link of a child's root. What is replaced by renaming is seen through a link into a directory that
/// is bound, and not where the file itself is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it is: absolute.
    pub path: PathBuf,
    /// Where it leads, in the child's root.
    pub target: PathBuf,
}

/// A file, socket or directory of the node that the child sees at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Absolute; a link is followed.
    pub path: PathBuf,
    /// What the child may do with it. What is mounted below it keeps its own flags.
    pub access: Access,
    /// Whether the child also sees what the node has mounted below it, and what the node mounts there later.
    pub follows: bool,
}

/// What a child may do with a file or directory, as far as its permissions let it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read it, and run its programs.
    Run,
    /// Read it and write to it.
    Write,
    /// The same, and open the devices in it, or the one that it is.
    Devices,
}

impl Access {
    /// None of them makes a set-id program one.
    fn flags(self) -> MountFlags {
        let (noexec, nodev) = (MountFlags::NOEXEC, MountFlags::NODEV);
        let flags = match self {
            Access::Read => MountFlags::RDONLY | noexec | nodev,
            Access::Run => MountFlags::RDONLY | nodev,
            Access::Write => noexec | nodev,
            Access::Devices => noexec,
        };
        flags | MountFlags::NOSUID
    }
}

impl Bind {
    /// A bind that follows no mounts.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Bind {
        Bind {
            path: path.into(),
            access,
            follows: false,
        }
    }
}

/// Made before the fork, entered after it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    stage: CString,
    binds: Vec<Mounted>,
    links: Vec<Linked>,
    empty: Vec<Place>,
}

/// A bind in the terms of system calls.
#[derive(Debug)]
struct Mounted {
    source: CString,
    target: Place,
    is_directory: bool,
    flags: MountFlags,
    follows: bool,
}

/// A link in the terms of system calls.
#[derive(Debug)]
struct Linked {
    place: Place,
    target: CString,
}

/// A path below the stage.
#[derive(Debug)]
struct Place {
    path: CString,
    /// Each directory above it, the outermost first.
    parents: Vec<CString>,
}

impl Sandbox {
    /// # Errors
    /// A path that is not absolute or not there; the text names it.
    pub(crate) fn new(root: &Root) -> io::Result<Sandbox> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let mounted =
            |bind: &Bind| Mounted::new(&root.stage, bind).map_err(|error| named(&bind.path, error));
        let linked =
            |link: &Link| Linked::new(&root.stage, link).map_err(|error| named(&link.path, error));
        let empty =
            |path: &PathBuf| Place::new(&root.stage, path).map_err(|error| named(path, error));
        Ok(Sandbox {
            stage: c_string(&root.stage)?,
            binds: root.binds.iter().map(mounted).collect::<io::Result<_>>()?,
            links: root.links.iter().map(linked).collect::<io::Result<_>>()?,
            empty: root.empty.iter().map(empty).collect::<io::Result<_>>()?,
        })
    }

    /// Moves the calling process, which must have one thread, into the root. Makes system calls only.
    pub(crate) fn enter(&self) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        // The node never sees the child's mounts; the child sees the node's later ones where a bind follows them.
        let follows = self.binds.iter().any(|bind| bind.follows);
        let relation = if follows {
            MountPropagationFlags::DOWNSTREAM
        } else {
            MountPropagationFlags::PRIVATE
        };
        mount_change(c"/", relation | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let size = c"mode=0755,size=64k,nr_inodes=256";
        mount(c"corten", &self.stage, c"tmpfs", flags, size)?;
        for bind in &self.binds {
            bind.mount()?;
        }
        for link in &self.links {
            link.make()?;
        }
        for place in &self.empty {
            place.make_file()?;
        }
        mount_remount(&self.stage, flags | MountFlags::RDONLY, size)?;
        // Both roots stacked on one point, so that no directory is needed for the old one: pivot_root(2).
        rustix::process::chdir(&self.stage)?;
        rustix::process::pivot_root(c".", c".")?;
        unmount(c".", UnmountFlags::DETACH)?;
        Ok(rustix::process::chdir(c"/")?)
    }
}

impl Mounted {
    fn new(stage: &Path, bind: &Bind) -> io::Result<Mounted> {
        Ok(Mounted {
            source: c_string(&bind.path)?,
            target: Place::new(stage, &bind.path)?,
            is_directory: std::fs::metadata(&bind.path)?.is_dir(),
            flags: MountFlags::BIND | bind.access.flags(),
            follows: bind.follows,
        })
    }

    fn mount(&self) -> io::Result<()> {
        let target = &self.target.path;
        if self.is_directory {
            self.target.make_parents()?;
            made(rustix::fs::mkdir(target, DIRECTORY))?;
        } else {
            self.target.make_file()?;
        }
        if self.follows {
            mount_bind_recursive(&self.source, target)?;
        } else {
            mount_bind(&self.source, target)?;
            mount_change(target, MountPropagationFlags::PRIVATE)?;
        }
        Ok(mount_remount(target, self.flags, c"")?)
    }
}

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

impl Linked {
    fn new(stage: &Path, link: &Link) -> io::Result<Linked> {
        Ok(Linked {
            place: Place::new(stage, &link.path)?,
            target: c_string(&link.target)?,
        })
    }

    fn make(&self) -> io::Result<()> {
        self.place.make_parents()?;
        Ok(rustix::fs::symlink(&self.target, &self.place.path)?)
    }
}

impl Place {
    fn new(stage: &Path, path: &Path) -> io::Result<Place> {
        let inner = path
            .strip_prefix("/")
            .map_err(|_| io::Error::other("not an absolute path"))?;
        let mut parents: Vec<&Path> = inner.ancestors().skip(1).collect();
        // The last is the stage itself.
        parents.pop();
        parents.reverse();
        Ok(Place {
            path: c_string(&stage.join(inner))?,
            parents: parents
                .into_iter()
                .map(|parent| c_string(&stage.join(parent)))
                .collect::<io::Result<_>>()?,
        })
    }

    fn make_parents(&self) -> io::Result<()> {
        for parent in &self.parents {
            made(rustix::fs::mkdir(parent, DIRECTORY))?;
        }
        Ok(())
    }

    /// Makes an empty file.
    fn make_file(&self) -> io::Result<()> {
        self.make_parents()?;
        let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o444));
        Ok(made(rustix::fs::mknodat(CWD, &self.path, kind, mode, 0))?)
    }
}

/// Two binds may share a directory.
fn made(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
