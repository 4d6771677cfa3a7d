//! Zeros on a device: writes and checks them.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{MIB, WIPED};

/// Bytes inspected at either end of a disk: file systems, tables and array members leave traces there.
pub(super) const LOOKED_AT: u64 = MIB;
/// Bytes per write.
const CHUNK: usize = 1 << 20;

/// Writes `length` zeros from `start`; does not sync.
pub(super) fn write_zeros<D: Write + Seek>(
    device: &mut D,
    start: u64,
    length: u64,
) -> io::Result<()> {
    device.seek(SeekFrom::Start(start))?;
    let zeros = vec![0; CHUNK];
    let mut left = length;
    while left > 0 {
        let next = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        device.write_all(zeros.get(..next).unwrap_or_default())?;
        left -= next as u64;
    }
    device.flush()
}

/// Zeroes the start of a partition so that it reads as empty; does not sync.
pub(super) fn wipe_start<D: Write + Seek>(
    device: &mut D,
    start: u64,
    length: u64,
) -> io::Result<()> {
    write_zeros(device, start, length.min(WIPED))
}

/// Whether `length` bytes from `start`, or all up to the end, are zeros.
pub(super) fn is_zero<D: Read + Seek>(disk: &mut D, start: u64, length: u64) -> io::Result<bool> {
    disk.seek(SeekFrom::Start(start))?;
    let mut left = disk.take(length);
    let mut part = vec![0; 1 << 20];
    loop {
        let length = left.read(&mut part)?;
        match part.get(..length) {
            None | Some([]) => return Ok(true),
            Some(read) if read.iter().any(|byte| *byte != 0) => return Ok(false),
            Some(_) => {}
        }
    }
}
