//! Opens foreign files without blocking and without side effects.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Opens a path only if it is a regular file. Opening a pipe would block, and opening a device may have effects: a
/// watchdog starts. Reads do not block either, as they would forever on some files of the kernel.
///
/// # Errors
/// It is not a regular file, or those of the file system.
pub fn open(path: &Path, follow: bool) -> io::Result<File> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    // `O_PATH` opens the name without any effect on the file.
    let name = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&name)?.st_mode);
    if kind != FileType::RegularFile {
        let text = "must be a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
        .open(format!("/proc/self/fd/{}", name.as_raw_fd()))
}
