//! What a container is made of: namespaces, a root and devices of its own (namespaces(7), pivot_root(2)).

use std::io;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;

/// Gives the calling thread mounts, a host name, System V objects and a network of its own, and the process it starts
/// next, which is the first of them, process ids of its own.
///
/// # Errors
/// `EPERM` without root's rights.
pub fn separate() -> io::Result<()> {
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID;
    Ok(unshare(own)?)
}

/// Makes the cgroup of the calling process the root of those that it sees.
///
/// # Errors
/// `EPERM` without root's rights.
pub fn separate_cgroups() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWCGROUP)?)
}

/// Has no mount made from now on be seen elsewhere, and none made elsewhere be seen here.
///
/// # Errors
/// The kernel's answer.
pub fn separate_mounts() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Makes the mount at `new_root` the root, and detaches everything outside of it.
///
/// # Errors
/// The kernel's answer; `EINVAL` where nothing is mounted at `new_root`.
pub fn enter_root(new_root: &Path) -> io::Result<()> {
    std::env::set_current_dir(new_root)?;
    // The old root lies over the new one then, until it is detached.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Names the container.
///
/// # Errors
/// The kernel's answer.
pub fn set_hostname(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Has the kernel kill the calling process when the thread that started it ends.
///
/// # Errors
/// The kernel's answer.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Leaves the terminal and the process group of who started this process.
///
/// # Errors
/// `EPERM` where it leads a group already.
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Makes a character device that everybody may open.
///
/// # Errors
/// The kernel's answer.
pub fn make_device(path: &Path, major: u32, minor: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o666);
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, device)?;
    // Whatever the umask is.
    Ok(rustix::fs::chmod(path, mode)?)
}
