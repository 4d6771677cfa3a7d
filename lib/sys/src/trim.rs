//! Tells a disk which blocks its file system no longer uses (kernel: include/uapi/linux/fs.h, `FITRIM`).
#![expect(unsafe_code, reason = "an ioctl that rustix has no wrapper for")]

use std::fs::File;
use std::io;

use rustix::ioctl::{self, Opcode};

const FITRIM: Opcode = ioctl::opcode::read_write::<Range>(b'X', 121);

/// `struct fstrim_range`, in bytes.
#[repr(C)]
struct Range {
    start: u64,
    length: u64,
    /// Shortest free extent to trim, in bytes.
    least: u64,
}

/// Trims the whole file system of a directory, which may take minutes. Returns the number of bytes trimmed.
///
/// # Errors
/// `EOPNOTSUPP`: the disk or a layer above it does not support discard; `ENOTTY`: the file system does not support
/// trimming; `EROFS`: it is read-only.
pub fn trim(directory: &File) -> io::Result<u64> {
    let mut range = Range {
        start: 0,
        length: u64::MAX,
        least: 0,
    };
    // SAFETY: FITRIM reads and writes one struct fstrim_range, whose layout Range repeats.
    let request = unsafe { ioctl::Updater::<FITRIM, Range>::new(&mut range) };
    // SAFETY: the descriptor is open, and `range` outlives the call.
    unsafe { ioctl::ioctl(directory, request) }?;
    Ok(range.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trim_fails_on_a_file_system_without_a_disk() {
        assert_eq!(FITRIM, 0xc018_5879);
        trim(&File::open("/proc/self").unwrap()).unwrap_err();
    }
}
