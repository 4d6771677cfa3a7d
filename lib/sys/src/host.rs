//! Properties of the whole machine: host name, boot time, limits, file system sizes.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use rustix::rand::{GetRandomFlags, getrandom};

/// Sets the kernel's host name.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; `EINVAL` beyond 64 bytes.
pub fn set_hostname(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// The kernel's host name.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The kernel's id of this boot, a UUID; empty without /proc.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// The kernel's release, as in `/usr/lib/modules/<release>`.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Whether the kernel's random number generator is initialized (getrandom(2)).
#[must_use]
pub fn has_random_numbers() -> bool {
    getrandom(&mut [0; 1], GetRandomFlags::NONBLOCK).is_ok()
}

/// Waits until the kernel's random number generator is initialized.
///
/// This call makes the kernel collect entropy itself, within a second or two. Polling `/dev/random` does not: on a
/// machine without an entropy source that waits for ever.
pub fn await_random_numbers() {
    // Every supported kernel has the call, and a failure leaves nothing else to do.
    let _ = getrandom(&mut [0; 1], GetRandomFlags::empty());
}

/// Time since the kernel started, sleep included (`CLOCK_BOOTTIME`).
#[must_use]
pub fn since_boot() -> Duration {
    crate::clock::shown(nix::time::ClockId::CLOCK_BOOTTIME)
}

/// Sets the limit of open files of this process and of its future children.
///
/// # Errors
/// `EPERM` above `fs.nr_open`.
pub fn set_open_files_limit(files: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(files),
        maximum: Some(files),
    };
    Ok(rustix::process::setrlimit(Resource::Nofile, limit)?)
}

/// Size and free space of a file system in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Total size.
    pub size: u64,
    /// Space that an unprivileged user can still fill.
    pub available: u64,
}

/// The space of the file system that holds `path`.
///
/// # Errors
/// The kernel's error.
pub fn space(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Space {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_a_size_and_the_clock_runs() {
        let space = space(Path::new("/")).unwrap();
        assert!(space.size > 0 && space.available <= space.size);
        assert!(since_boot() > Duration::ZERO);
        assert!(!kernel_release().is_empty());
    }
}
