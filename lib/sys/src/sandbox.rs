//! Gives a child a root of its own: an empty read-only tmpfs with a few files of the node, each with its access.
//!
//! The child gets a mount namespace (mount_namespaces(7)). Other files are not hidden; they do not exist there.

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

/// The root file system of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// An empty directory of the parent. The root is mounted on it in the child's namespace only.
    pub stage: PathBuf,
    /// Files and directories of the node in it.
    pub binds: Vec<Bind>,
    /// Symbolic links in it.
    pub links: Vec<Link>,
    /// Empty files in it, for programs that require a file of the node to exist.
    pub empty: Vec<PathBuf>,
}

/// A symbolic link in a child's root. A file that the node replaces by rename needs one, into a directory that is
/// bound. A bind of the file itself would keep showing the old file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Absolute path of the link.
    pub path: PathBuf,
    /// Target of the link, in the child's root.
    pub target: PathBuf,
}

/// A file, socket or directory of the node that the child sees at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Absolute path; a symbolic link is followed.
    pub path: PathBuf,
    /// Access of the child. Mounts below the path keep their own flags.
    pub access: Access,
    /// Whether the child also sees the node's mounts below the path, present and future.
    pub follows: bool,
}

/// Access of a child to a file or directory, within its file permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and executing.
    Run,
    /// Reading and writing.
    Write,
    /// Reading, writing and opening device nodes.
    Devices,
}

impl Access {
    /// Every access excludes set-user-id programs.
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
    /// A bind without the node's mounts below the path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Bind {
        Bind {
            path: path.into(),
            access,
            follows: false,
        }
    }
}

/// The root of a child, prepared before the fork and entered after it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    stage: CString,
    binds: Vec<Mounted>,
    links: Vec<Linked>,
    empty: Vec<Place>,
}

/// A bind as the arguments of system calls.
#[derive(Debug)]
struct Mounted {
    source: CString,
    target: Place,
    is_directory: bool,
    flags: MountFlags,
    follows: bool,
}

/// A link as the arguments of system calls.
#[derive(Debug)]
struct Linked {
    place: Place,
    target: CString,
}

/// A path below the stage.
#[derive(Debug)]
struct Place {
    path: CString,
    /// Its parent directories, outermost first.
    parents: Vec<CString>,
}

impl Sandbox {
    /// # Errors
    /// A path is not absolute or does not exist; the text names the path.
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

    /// Moves the calling process into the root. The process must have one thread; only system calls are made.
    pub(crate) fn enter(&self) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        // The node never sees the child's mounts. The child sees later mounts of the node where a bind follows them.
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
        // The new root is stacked on the old one, so pivot_root(2) needs no directory for the old root.
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
        // The outermost entry is the stage itself.
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

/// Ignores `EEXIST`: two binds may share a directory.
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
