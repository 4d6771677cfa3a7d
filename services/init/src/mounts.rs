//! The early mounts.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use corten_sys::mount::{self, MountFlags};

use crate::failure::{Failure, REPORT};

/// A mount that init makes and then moves into the real root.
struct Early {
    target: &'static str,
    fstype: &'static str,
    flags: MountFlags,
    data: &'static str,
}

const STRICT: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// In order of mounting. `/run` is moved, too, so that init's files there survive.
const EARLY: [Early; 4] = [
    Early {
        target: "/dev",
        fstype: "devtmpfs",
        flags: MountFlags::NOSUID,
        data: "mode=0755",
    },
    Early {
        target: "/proc",
        fstype: "proc",
        flags: STRICT,
        data: "",
    },
    Early {
        target: "/sys",
        fstype: "sysfs",
        flags: STRICT,
        data: "",
    },
    Early {
        target: "/run",
        fstype: "tmpfs",
        flags: STRICT,
        data: "mode=0755",
    },
];

/// The table as text.
pub fn table() -> String {
    let mut text = String::new();
    for entry in &EARLY {
        let mut options: Vec<String> = entry
            .flags
            .iter_names()
            .map(|(name, _)| name.to_lowercase())
            .collect();
        options.extend((!entry.data.is_empty()).then(|| entry.data.to_owned()));
        let _ = writeln!(
            text,
            "{:<6} {:<9} {}",
            entry.target,
            entry.fstype,
            options.join(",")
        );
    }
    text
}

/// Makes every mount of the table.
pub fn mount_all() -> Result<(), Failure> {
    for entry in &EARLY {
        make(entry).map_err(|error| {
            Failure::new(
                format!("cannot mount {} on {}: {error}", entry.fstype, entry.target),
                REPORT,
            )
        })?;
    }
    Ok(())
}

fn make(entry: &Early) -> io::Result<()> {
    let target = Path::new(entry.target);
    fs::create_dir_all(target)?;
    match mount::mount(
        Path::new(entry.fstype),
        target,
        entry.fstype,
        entry.flags,
        entry.data,
    ) {
        // The kernel mounts /dev itself when built with DEVTMPFS_MOUNT.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        result => result,
    }
}

/// Moves every mount of the table under `new_root`, whose directories must exist.
pub fn move_all(new_root: &Path) -> Result<(), Failure> {
    for entry in &EARLY {
        let target = new_root.join(entry.target.trim_start_matches('/'));
        mount::move_mount(Path::new(entry.target), &target).map_err(|error| {
            Failure::new(
                format!(
                    "cannot move {} to {}: {error}",
                    entry.target,
                    target.display()
                ),
                "the root file system lacks this directory: build the image again",
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dev_allows_devices_and_programs() {
        assert_eq!(
            table(),
            "/dev   devtmpfs  nosuid,mode=0755\n\
             /proc  proc      nodev,noexec,nosuid\n\
             /sys   sysfs     nodev,noexec,nosuid\n\
             /run   tmpfs     nodev,noexec,nosuid,mode=0755\n"
        );
    }
}
