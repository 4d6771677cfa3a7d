//! The table of a node's file systems. Init has already mounted `/dev`, `/proc`, `/sys` and `/run`.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use corten_sys::mount::{self, MountFlags};

use crate::console;
use crate::durable::is_volume;
use crate::mode::Mode;

/// One mount.
struct Entry {
    target: &'static str,
    fstype: &'static str,
    flags: MountFlags,
    data: &'static str,
    /// Whether a kernel or machine without it is acceptable.
    optional: bool,
}

/// Directory of output FIFOs and upper directories of the node's own containers.
pub const CONTAINERS: &str = "/run/containers";
/// Mount point of the panic records that the kernel kept.
pub const PSTORE: &str = "/sys/fs/pstore";
/// Mount point of the EFI variables.
pub const EFI_VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Flags of file systems without programs and devices.
pub(crate) const STRICT: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

const fn required(
    target: &'static str,
    fstype: &'static str,
    flags: MountFlags,
    data: &'static str,
) -> Entry {
    Entry {
        target,
        fstype,
        flags,
        data,
        optional: false,
    }
}

const fn optional(
    target: &'static str,
    fstype: &'static str,
    flags: MountFlags,
    data: &'static str,
) -> Entry {
    Entry {
        target,
        fstype,
        flags,
        data,
        optional: true,
    }
}

const TABLE: [Entry; 13] = [
    required(
        "/sys/fs/cgroup",
        "cgroup2",
        STRICT,
        "nsdelegate,memory_recursiveprot",
    ),
    // The host's ptmx is unused; containers have their own.
    required(
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID.union(MountFlags::NOEXEC),
        "gid=5,mode=620,ptmxmode=000",
    ),
    required("/dev/shm", "tmpfs", STRICT, "mode=1777"),
    required("/tmp", "tmpfs", STRICT, "mode=1777,size=64m"),
    // A separate limit for what containers write to their roots: the node depends on the rest of /run.
    required(CONTAINERS, "tmpfs", STRICT, "mode=0700,size=64m"),
    // No noexec: programs of containers are below it.
    required(
        "/var",
        "tmpfs",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        "mode=0755",
    ),
    optional("/dev/mqueue", "mqueue", STRICT, ""),
    optional(
        "/dev/hugepages",
        "hugetlbfs",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        "mode=0700",
    ),
    optional("/sys/fs/bpf", "bpf", STRICT, "mode=0700"),
    optional("/sys/kernel/security", "securityfs", STRICT, ""),
    optional("/sys/kernel/tracing", "tracefs", STRICT, "mode=0700"),
    optional(PSTORE, "pstore", STRICT, ""),
    // Read-only: a careless write can leave a machine that does not boot.
    optional(
        EFI_VARIABLES,
        "efivarfs",
        STRICT.union(MountFlags::RDONLY),
        "",
    ),
];

/// The table in human-readable form.
#[must_use]
pub fn describe() -> String {
    let mut text = String::new();
    for entry in &TABLE {
        let mut options: Vec<String> = entry
            .flags
            .iter_names()
            .map(|(name, _)| name.to_lowercase())
            .collect();
        options.extend((!entry.data.is_empty()).then(|| entry.data.to_owned()));
        let mark = if entry.optional { " (optional)" } else { "" };
        let _ = writeln!(
            text,
            "{:<26} {:<10} {}{mark}",
            entry.target,
            entry.fstype,
            options.join(",")
        );
    }
    text
}

/// Makes the required mounts, and makes the whole mount tree shared.
///
/// # Errors
/// A file system cannot be mounted; the text names it.
pub fn mount_required() -> Result<(), String> {
    for entry in TABLE.iter().filter(|entry| !entry.optional) {
        make(entry).map_err(|error| {
            format!("cannot mount {} on {}: {error}", entry.fstype, entry.target)
        })?;
    }
    mount::make_shared(Path::new("/"))
        .map_err(|error| format!("cannot share the mount tree: {error}"))
}

/// Makes the optional mounts and logs failures. They inherit shared propagation from their parents. May take a while.
pub fn mount_optional() {
    TABLE
        .iter()
        .filter(|entry| entry.optional)
        .for_each(try_make);
}

/// Makes one optional mount ahead of the others, because it is read early: [`PSTORE`], [`EFI_VARIABLES`].
pub fn mount_early(target: &str) {
    TABLE
        .iter()
        .filter(|entry| entry.target == target)
        .for_each(try_make);
}

fn try_make(entry: &Entry) {
    // This machine lacks the feature (EFI, huge pages), which is normal.
    let absent = [ENOENT, ENODEV, EPERM, EOPNOTSUPP];
    match make(entry) {
        Err(error)
            if !error
                .raw_os_error()
                .is_some_and(|code| absent.contains(&code)) =>
        {
            console::warn(&format!(
                "{} not mounted on {}: {error}",
                entry.fstype, entry.target
            ));
        }
        _ => {}
    }
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

fn make(entry: &Entry) -> io::Result<()> {
    let target = Path::new(entry.target);
    // The container runtime has already mounted the volume.
    if Mode::now() == Mode::Container && is_volume(target) {
        return Ok(());
    }
    if !target.exists() {
        // Only in /dev and /run can a directory be created; other mount points come from the kernel or the image.
        fs::create_dir(target).map_err(|_| io::Error::from_raw_os_error(ENOENT))?;
    }
    match mount::mount(
        Path::new(entry.fstype),
        target,
        entry.fstype,
        entry.flags,
        entry.data,
    ) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_mounted_with_setuid_programs_or_devices() {
        for entry in &TABLE {
            assert!(entry.flags.contains(MountFlags::NOSUID), "{}", entry.target);
            let devices = !entry.flags.contains(MountFlags::NODEV);
            assert_eq!(devices, entry.target == "/dev/pts", "{}", entry.target);
        }
    }

    #[test]
    fn mounts_come_after_their_parent_mounts() {
        for (place, entry) in TABLE.iter().enumerate() {
            let inside = |other: &Entry| other.target.starts_with(&format!("{}/", entry.target));
            assert!(!TABLE.iter().take(place).any(inside), "{}", entry.target);
        }
        assert_eq!(describe().lines().count(), TABLE.len());
    }
}
