//! Mounting, and the move from the initramfs to the real root.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};

pub use rustix::mount::{MountAttrFlags, MountFlags};

/// Mounts `source` of type `fstype` on `target`; `data` holds the options of the file system.
///
/// # Errors
/// The kernel's error, or a NUL byte in `data`.
pub fn mount(
    source: &Path,
    target: &Path,
    fstype: &str,
    flags: MountFlags,
    data: &str,
) -> io::Result<()> {
    let data = CString::new(data)?;
    Ok(rustix::mount::mount(
        source,
        target,
        fstype,
        flags,
        data.as_c_str(),
    )?)
}

/// A file system that is not attached to the mount tree. Dropping it before [`Unattached::attach`] discards it.
#[derive(Debug)]
pub struct Unattached(OwnedFd);

impl Unattached {
    /// Creates a file system of type `fstype`. `options` are its mount options, in order, each at most 255 bytes.
    ///
    /// # Errors
    /// The kernel's error, or a NUL byte in an option.
    pub fn new(
        fstype: &str,
        source: &str,
        options: &[(&str, &Path)],
        attributes: MountAttrFlags,
    ) -> io::Result<Unattached> {
        let context = rustix::mount::fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC)?;
        let context = context.as_fd();
        rustix::mount::fsconfig_set_string(context, "source", source)?;
        for (name, value) in options {
            rustix::mount::fsconfig_set_string(context, *name, *value)?;
        }
        rustix::mount::fsconfig_create(context)?;
        let made = rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Unattached(made))
    }

    /// Mounts it on `target`.
    ///
    /// # Errors
    /// The kernel's error; the mount tree is unchanged.
    pub fn attach(self, target: &Path) -> io::Result<()> {
        self.move_to(target, MoveMountFlags::empty())
    }

    /// Mounts it on `target` beneath the present mount; it becomes visible when that one is detached (since Linux 6.5).
    ///
    /// # Errors
    /// The kernel's error; the mount tree is unchanged. `EINVAL` when nothing is mounted on `target`.
    pub fn attach_beneath(self, target: &Path) -> io::Result<()> {
        self.move_to(target, MoveMountFlags::MOVE_MOUNT_BENEATH)
    }

    fn move_to(self, target: &Path, how: MoveMountFlags) -> io::Result<()> {
        let flags = how | MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.0, "", CWD, target, flags)?)
    }
}

/// Changes the flags of the mount at `target`.
///
/// # Errors
/// The kernel's error.
pub fn remount(target: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(target, flags, c"")?)
}

/// Moves the mount at `from` to `to`.
///
/// # Errors
/// The kernel's error.
pub fn move_mount(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_move(from, to)?)
}

/// Makes the mount tree at `target` propagate to its peers, as the kubelet needs.
///
/// # Errors
/// The kernel's error.
pub fn make_shared(target: &Path) -> io::Result<()> {
    let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change(target, flags)?)
}

/// Unmounts `target`.
///
/// # Errors
/// `EBUSY` while a process uses it, or another error of the kernel.
pub fn unmount(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)
}

/// Detaches `target` from the mount tree now; the file system is released with its last user.
///
/// # Errors
/// The kernel's error.
pub fn detach(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(
        target,
        UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
    )?)
}

/// Makes `new_root` the root of this process and its children.
///
/// # Errors
/// The kernel's error; until the mount is moved, nothing has changed.
pub fn switch_root(new_root: &Path) -> io::Result<()> {
    std::env::set_current_dir(new_root)?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")
}

/// The block size of the file system of a file in bytes: squashfs decompresses a block as a whole.
///
/// # Errors
/// The kernel's error.
pub fn block_size(file: &fs::File) -> io::Result<u64> {
    Ok(rustix::fs::fstatvfs(file)?.f_bsize.max(1))
}

/// Removes everything under `dir` on the same file system, to free the memory of the initramfs.
///
/// Mount points and the trees below them stay. Files that cannot be removed are skipped.
pub fn remove_same_device(dir: &Path) {
    let Ok(device) = fs::symlink_metadata(dir).map(|data| data.dev()) else {
        return;
    };
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(data) = fs::symlink_metadata(&path) else {
            continue;
        };
        if data.dev() != device {
            continue;
        }
        if data.is_dir() {
            remove_same_device(&path);
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_empties_the_directory_and_keeps_it() {
        let dir = std::env::temp_dir().join(format!("corten-remove-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.join("link")).unwrap();
        remove_same_device(&dir);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn a_nul_byte_in_options_is_an_error() {
        let error = mount(
            Path::new("x"),
            Path::new("/"),
            "tmpfs",
            MountFlags::empty(),
            "a\0b",
        )
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
