//! Growing XFS while it is mounted (kernel: fs/xfs/libxfs/xfs_fs.h, `XFS_IOC_FSGROWFSDATA`).
#![expect(unsafe_code, reason = "two ioctls that rustix has no wrapper for")]

use std::fs::File;
use std::io;

use rustix::ioctl::{self, Opcode};

const FSGEOMETRY_V1: Opcode = ioctl::opcode::read::<Geometry>(b'X', 100);
const FSGROWFSDATA: Opcode = ioctl::opcode::write::<Growth>(b'X', 110);

/// `struct xfs_fsop_geom_v1`; `rest` covers the unused fields.
#[repr(C)]
struct Geometry {
    block_size: u32,
    realtime_extent: u32,
    part_blocks: u32,
    parts: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    /// Share of the space that inodes may take, in percent.
    inode_percent: u32,
    blocks: u64,
    rest: [u64; 9],
}

/// `struct xfs_growfs_data`.
#[repr(C)]
struct Growth {
    blocks: u64,
    inode_percent: u32,
    padding: u32,
}

/// Grows the file system of a directory to `bytes` of its device; a file system that is large enough is unchanged.
///
/// # Errors
/// `ENOTTY`: the file system is not XFS; `EPERM`: the caller lacks CAP_SYS_ADMIN; otherwise the disk's error.
pub fn grow(directory: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: FSGEOMETRY_V1 writes one struct xfs_fsop_geom_v1, whose layout Geometry repeats.
    let request = unsafe { ioctl::Getter::<FSGEOMETRY_V1, Geometry>::new() };
    // SAFETY: the descriptor is open, and the request is of the type that goes with the opcode.
    let now = unsafe { ioctl::ioctl(directory, request) }?;
    let blocks = bytes.checked_div(now.block_size.into()).unwrap_or_default();
    if blocks <= now.blocks {
        return Ok(());
    }
    let growth = Growth {
        blocks,
        inode_percent: now.inode_percent,
        padding: 0,
    };
    // SAFETY: FSGROWFSDATA reads one struct xfs_growfs_data, whose layout Growth repeats.
    let request = unsafe { ioctl::Setter::<FSGROWFSDATA, Growth>::new(growth) };
    // SAFETY: the descriptor is open, and the request is of the type that goes with the opcode.
    Ok(unsafe { ioctl::ioctl(directory, request) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grow_fails_on_other_file_systems() {
        assert_eq!(FSGEOMETRY_V1, 0x8070_5864);
        assert_eq!(FSGROWFSDATA, 0x4010_586e);
        let error = grow(&File::open("/proc/self").unwrap(), u64::MAX).unwrap_err();
        let no_xfs = rustix::io::Errno::NOTTY.raw_os_error();
        assert_eq!(error.raw_os_error(), Some(no_xfs));
    }
}
