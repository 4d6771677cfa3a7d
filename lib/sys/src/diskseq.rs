//! The identity of a disk: the kernel reuses device names, but never these numbers (kernel: include/uapi/linux/fs.h,
//! `BLKGETDISKSEQ`; Documentation/ABI/stable/sysfs-block, `diskseq`).
#![expect(unsafe_code, reason = "an ioctl that rustix has no wrapper for")]

use std::fs::File;
use std::io;

use rustix::ioctl::{self, Opcode};

const BLKGETDISKSEQ: Opcode = ioctl::opcode::read::<u64>(0x12, 128);

/// The number of the disk of an open block device or partition. It is unique within a boot, and changes when the disk's
/// medium changes.
///
/// # Errors
/// `ENOTTY`: the file is not a block device.
pub fn of(device: &File) -> io::Result<u64> {
    // SAFETY: BLKGETDISKSEQ writes one u64, which is what the getter has room for.
    let request = unsafe { ioctl::Getter::<BLKGETDISKSEQ, u64>::new() };
    // SAFETY: the descriptor is open, and the request is of the type that goes with the opcode.
    Ok(unsafe { ioctl::ioctl(device, request) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_number_of_a_non_disk_is_an_error() {
        assert_eq!(BLKGETDISKSEQ, 0x8008_1280);
        let error = of(&File::open("/dev/null").unwrap()).unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::NOTTY.raw_os_error())
        );
    }
}
