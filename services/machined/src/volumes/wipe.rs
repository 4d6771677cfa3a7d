//! Emptying a partition.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::WIPED;

/// Makes a partition read as zeros: all of it where the disk can do that by itself, else all of it when it
/// shall be `whole`, and its beginning when that is enough to be taken for empty.
///
/// # Errors
/// `EBUSY` while it is mounted.
pub(super) fn wipe(device: &Path, whole: bool) -> io::Result<()> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let mut file = OpenOptions::new()
        .write(true)
        .custom_flags(exclusive)
        .open(device)?;
    let length = file.seek(SeekFrom::End(0))?;
    let by_itself = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(&file, by_itself, 0, length).is_err() {
        let length = if whole { length } else { length.min(WIPED) };
        write_zeros(&mut file, length)?;
    }
    file.sync_all()
}

fn write_zeros(file: &mut File, length: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut io::Read::take(io::repeat(0), length), file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LENGTH: usize = 19 << 20;

    fn full() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![0xa5; LENGTH]).unwrap();
        file
    }

    #[test]
    fn a_wiped_partition_is_zeros_and_as_long_as_before() {
        let file = full();
        wipe(file.path(), true).unwrap();
        assert!(fs::read(file.path()).unwrap() == vec![0; LENGTH]);
        wipe(Path::new("/no/such/device"), true).unwrap_err();
    }

    #[test]
    fn a_disk_that_cannot_is_written() {
        let file = full();
        let mut open = OpenOptions::new().write(true).open(file.path()).unwrap();
        write_zeros(&mut open, WIPED).unwrap();
        let content = fs::read(file.path()).unwrap();
        let (start, rest) = content.split_at(usize::try_from(WIPED).unwrap());
        assert!(start.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 0xa5));
        assert_eq!(content.len(), LENGTH);
    }
}
