//! Updates one partition in the kernel's table while other partitions of the disk are in use (kernel:
//! include/uapi/linux/blkpg.h).
#![expect(unsafe_code, reason = "an ioctl that rustix has no wrapper for")]

use std::ffi::c_void;
use std::fs::File;
use std::io;

use rustix::ioctl::{self, Opcode};

const BLKPG: Opcode = 0x1269;
const ADD_PARTITION: i32 = 1;
const REMOVE_PARTITION: i32 = 2;
const RESIZE_PARTITION: i32 = 3;

/// `struct blkpg_partition`.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Argument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut c_void,
}

/// Adds a partition to the kernel's table; its device node exists when this returns. `start` and `length` in bytes.
///
/// # Errors
/// The number is taken, the partition overlaps another one, or it exceeds the disk.
pub fn add(disk: &File, number: u32, start: u64, length: u64) -> io::Result<()> {
    tell(disk, ADD_PARTITION, number, start, length)
}

/// Changes the length of a partition; `start` must be unchanged.
///
/// # Errors
/// The partition does not exist, or it would overlap another one or exceed the disk.
pub fn resize(disk: &File, number: u32, start: u64, length: u64) -> io::Result<()> {
    tell(disk, RESIZE_PARTITION, number, start, length)
}

/// Removes a partition from the kernel's table; its data stays on the disk.
///
/// # Errors
/// The partition does not exist, or `EBUSY`: a process has it open.
pub fn remove(disk: &File, number: u32) -> io::Result<()> {
    tell(disk, REMOVE_PARTITION, number, 0, 0)
}

fn tell(disk: &File, operation: i32, number: u32, start: u64, length: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut partition = Partition {
        start: start.try_into().map_err(too_large)?,
        length: length.try_into().map_err(too_large)?,
        number: number.try_into().map_err(too_large)?,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let argument = Argument {
        operation,
        flags: 0,
        length: size_of::<Partition>().try_into().map_err(too_large)?,
        data: (&raw mut partition).cast(),
    };
    // SAFETY: BLKPG reads one struct blkpg_ioctl_arg, whose layout Argument repeats.
    let request = unsafe { ioctl::Setter::<BLKPG, Argument>::new(argument) };
    // SAFETY: the descriptor is open, and `partition` outlives the call that reads it.
    Ok(unsafe { ioctl::ioctl(disk, request) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_kernels_sizes() {
        assert_eq!(size_of::<Partition>(), 152);
        assert_eq!(size_of::<Argument>(), 24);
    }

    #[test]
    fn partition_calls_fail_on_a_plain_file() {
        let file = File::open("/dev/null").unwrap();
        assert!(add(&file, 1, 0, 512).is_err());
        assert!(remove(&file, 1).is_err());
        let error = resize(&file, 1, u64::MAX, 512).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
