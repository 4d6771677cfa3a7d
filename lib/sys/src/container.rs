//! Building blocks of a container: namespaces, a root file system and devices of its own (namespaces(7),
//! pivot_root(2)).

use std::io;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;

/// Moves the calling thread into new namespaces for mounts, the host name, System V IPC and the network. The next
/// process that it starts is the first in a new PID namespace.
///
/// # Errors
/// `EPERM` without root privileges.
pub fn separate() -> io::Result<()> {
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID;
    Ok(unshare(own)?)
}

/// Moves the calling process into a new cgroup namespace, whose root is the process's current cgroup.
///
/// # Errors
/// `EPERM` without root privileges.
pub fn separate_cgroups() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWCGROUP)?)
}

/// Stops the propagation of mounts and unmounts, in both directions.
///
/// # Errors
/// The kernel refuses.
pub fn separate_mounts() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Makes the mount at `new_root` the root, and detaches all mounts outside of it.
///
/// # Errors
/// The kernel refuses; `EINVAL` if `new_root` is not a mount point.
pub fn enter_root(new_root: &Path) -> io::Result<()> {
    std::env::set_current_dir(new_root)?;
    // The old root is now mounted on top of the new one, and is detached from there.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Has the kernel kill the calling process when the thread that started it ends.
///
/// # Errors
/// The kernel refuses.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Starts a new session: the process leaves the terminal and the process group of its parent.
///
/// # Errors
/// `EPERM` if the process already leads a process group.
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Makes a character device that every user may open.
///
/// # Errors
/// The kernel refuses.
pub fn make_device(path: &Path, major: u32, minor: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o666);
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, device)?;
    // mknod applies the umask; chmod does not.
    Ok(rustix::fs::chmod(path, mode)?)
}
