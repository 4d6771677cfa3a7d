//! Files of others, opened without waiting and without effect.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Opens a regular file, and nothing else: opening a pipe would wait, and opening a device does things (a
/// watchdog starts). Reading it does not wait either: some of the kernel's own files would, for ever.
///
/// # Errors
/// It is something else, or the file system's.
pub fn open(path: &Path, follow: bool) -> io::Result<File> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    // A name only, with no effect on what it names.
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
