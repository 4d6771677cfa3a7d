//! A root of its own for a child: an empty, read-only one in which a few files of the node appear.
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
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, unmount,
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

/// A file, socket or directory of the node that the child sees at the same path, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Absolute; a link is followed.
    pub path: PathBuf,
    /// Whether programs in it can be run.
    pub executable: bool,
}

/// Made before the fork, entered after it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    stage: CString,
    binds: Vec<Mounted>,
    links: Vec<Linked>,
}

/// A bind in the terms of system calls.
#[derive(Debug)]
struct Mounted {
    source: CString,
    target: Place,
    is_directory: bool,
    flags: MountFlags,
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
        Ok(Sandbox {
            stage: c_string(&root.stage)?,
            binds: root.binds.iter().map(mounted).collect::<io::Result<_>>()?,
            links: root.links.iter().map(linked).collect::<io::Result<_>>()?,
        })
    }

    /// Moves the calling process, which must have one thread, into the root. Makes system calls only.
    pub(crate) fn enter(&self) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let unrelated = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", unrelated)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let size = c"mode=0755,size=64k,nr_inodes=256";
        mount(c"corten", &self.stage, c"tmpfs", flags, size)?;
        for bind in &self.binds {
            bind.mount()?;
        }
        for link in &self.links {
            link.make()?;
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
        let executable = if bind.executable {
            MountFlags::empty()
        } else {
            MountFlags::NOEXEC
        };
        Ok(Mounted {
            source: c_string(&bind.path)?,
            target: Place::new(stage, &bind.path)?,
            is_directory: std::fs::metadata(&bind.path)?.is_dir(),
            flags: MountFlags::BIND
                | MountFlags::RDONLY
                | MountFlags::NOSUID
                | MountFlags::NODEV
                | executable,
        })
    }

    fn mount(&self) -> io::Result<()> {
        let target = &self.target.path;
        self.target.make_parents()?;
        if self.is_directory {
            made(rustix::fs::mkdir(target, DIRECTORY))?;
        } else {
            let file = Mode::from_raw_mode(0o444);
            made(rustix::fs::mknodat(
                CWD,
                target,
                FileType::RegularFile,
                file,
                0,
            ))?;
        }
        mount_bind(&self.source, target)?;
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
mod tests {
    use super::*;
    use crate::child::{self, CapabilitySet, Confinement, Output};
    use crate::seccomp::Filter;
    use crate::testing::skip;
    use std::io::{BufRead, BufReader, PipeReader, Read};

    /// Where a child's words go, and what it says on its standard output. Its complaints are not heard.
    fn output() -> (Output, PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let nowhere = std::fs::File::options().write(true).open("/dev/null");
        let output = Output {
            stdout: writer.into(),
            stderr: nowhere.unwrap().into(),
        };
        (output, reader)
    }

    #[test]
    fn what_is_not_named_is_not_there() {
        let stage = tempfile::tempdir().unwrap();
        let bind = |path: &str| Bind {
            path: path.into(),
            executable: true,
        };
        // A dynamically linked program, its libraries, and one file.
        let binds = ["/usr", "/lib", "/lib64", "/proc/version"].map(bind);
        let confinement = Confinement {
            uid: 65534,
            gid: 65534,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            oom_score_adj: 0,
            cgroup_procs: None,
            root: Some(Root {
                stage: stage.path().to_owned(),
                binds: binds.to_vec(),
                links: Vec::new(),
            }),
            system_calls: Some(Filter::server().unwrap()),
        };
        let words = ["-R", "/proc", "/"].map(Into::into);
        let (output, mut stdout) = output();
        let started = child::start(&"/usr/bin/ls".into(), &words, &[], output, &confinement);
        if !rustix::process::geteuid().is_root() {
            // Whoever may not make namespaces gets no child, rather than one outside of its root.
            assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            return skip("root, to make a root");
        }
        started.unwrap();
        let mut shown = String::new();
        stdout.read_to_string(&mut shown).unwrap();
        assert_eq!(shown.lines().next(), Some("/:"), "{shown}");
        let root: Vec<_> = shown
            .lines()
            .skip(1)
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(root, ["lib", "lib64", "proc", "usr"]);
        assert!(shown.contains("/proc:\nversion\n"), "{shown}");
        // The stage of the parent is as it was.
        assert_eq!(std::fs::read_dir(stage.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_replaced_is_seen_through_a_link() {
        if !rustix::process::geteuid().is_root() {
            return skip("root, to make a root");
        }
        let directory = tempfile::tempdir().unwrap();
        let stage = tempfile::tempdir().unwrap();
        let names = directory.path().join("names");
        std::fs::create_dir(&names).unwrap();
        let replace = |text: &str| {
            std::fs::write(names.join("new"), text).unwrap();
            std::fs::rename(names.join("new"), names.join("hosts")).unwrap();
        };
        replace("first\n");
        let bind = |path: &Path| Bind {
            path: path.to_owned(),
            executable: true,
        };
        let program = "cat /etc/hosts; until grep second /etc/hosts; do sleep 0.1; done; \
                       echo x > /etc/hosts || echo refused";
        let confinement = Confinement {
            uid: 0,
            gid: 0,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            oom_score_adj: 0,
            cgroup_procs: None,
            root: Some(Root {
                stage: stage.path().to_owned(),
                binds: ["/usr", "/lib", "/lib64"]
                    .map(Path::new)
                    .into_iter()
                    .chain([names.as_path()])
                    .map(bind)
                    .collect(),
                links: vec![Link {
                    path: "/etc/hosts".into(),
                    target: names.join("hosts"),
                }],
            }),
            system_calls: None,
        };
        let words = ["-c", program].map(Into::into);
        let path = [("PATH".into(), "/usr/bin".into())];
        let (output, stdout) = output();
        child::start(&"/usr/bin/sh".into(), &words, &path, output, &confinement).unwrap();
        let mut lines = BufReader::new(stdout).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "first");
        replace("second\n");
        assert_eq!(lines.next().unwrap().unwrap(), "second");
        assert_eq!(lines.next().unwrap().unwrap(), "refused");
    }

    #[test]
    fn a_missing_path_is_named_before_anything_starts() {
        let root = Root {
            stage: "/tmp".into(),
            binds: vec![Bind {
                path: "/no/such/file".into(),
                executable: false,
            }],
            links: Vec::new(),
        };
        let error = Sandbox::new(&root).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/file: "), "{error}");
    }
}
