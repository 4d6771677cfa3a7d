//! The mode of a file that is open only as a path (open(2), `O_PATH`): a device behind it is never opened.
#![expect(unsafe_code, reason = "a system call that rustix has no wrapper for")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::libc;

use crate::seccomp::FCHMODAT2;

/// Sets the mode of an open file: the permission bits and those of chmod(2) above them. Needs Linux 6.6, but no `/proc`.
///
/// # Errors
/// `EPERM`: the caller does not own the file; `ENOSYS`: the kernel is older.
pub fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: fchmodat2(2) takes a descriptor, a NUL-terminated name, a mode and flags; all outlive the call.
    let done = unsafe { libc::syscall(FCHMODAT2, file, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn mode_of_a_file_that_is_open_as_a_path_is_set() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = File::from(rustix::fs::open(file.path(), flags, Mode::empty()).unwrap());
        set_mode(&opened, 0o620).unwrap();
        let mode = fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o620);
        // A symbolic link has no mode.
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let opened = File::from(rustix::fs::open(&link, flags, Mode::empty()).unwrap());
        let error = set_mode(&opened, 0o600).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
