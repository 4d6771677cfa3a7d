//! How a format writes its file: sparse where possible, with errors that name the file and report a
//! full disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Failure, Remedy as _, Result};
use rustix::io::Errno;

use super::bytes;

/// Runs `write` with a new, empty file at `path`, mode 0644 whatever the umask.
pub fn create<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
    checked(path, || {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        readable(path)?;
        let value = write(&mut file)?;
        file.flush()?;
        Ok(value)
    })
}

/// Sets mode 0644, whatever the umask was.
pub fn readable(path: &Path) -> Result<()> {
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o644),
    )?)
}

/// Adds the file to every error of `write`, and a remedy for a full disk.
pub fn checked<T>(path: &Path, write: impl FnOnce() -> Result<T>) -> Result<T> {
    write().map_err(|error| {
        let full = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|io| {
                matches!(
                    io.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::FileTooLarge
                )
            });
        let remedy = match error.downcast_ref::<Failure>() {
            Some(inner) => inner.remedy().to_owned(),
            None if full => "free disk space, or write to another disk with --out".to_owned(),
            None => "check that the directory exists and can be written".to_owned(),
        };
        Err::<T, _>(error)
            .or_fail(format!("writing {}", path.display()), remedy)
            .err()
            .unwrap_or_else(|| anyhow::anyhow!("writing {}", path.display()))
    })
}

/// Reads a whole input file; the error names it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// Opens an input file; the error names it.
pub(crate) fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("opening {}", path.display()))
}

/// Size of an input file in bytes.
pub(crate) fn size_of(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path)
        .with_context(|| format!("reading {}", path.display()))?
        .len())
}

/// Calls `each` with (index, data) for every block of `disk` with a non-zero byte. Skips the holes
/// of a sparse file without reading them. `size` is the block size; the last block is padded.
pub(crate) fn blocks(
    disk: &mut File,
    size: usize,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let end = disk.metadata()?.len();
    let step = bytes::size(size);
    let mut buffer = vec![0; size];
    let mut at = 0;
    while at < end {
        match rustix::fs::seek(&*disk, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = at.max(data / step * step),
            Err(Errno::NXIO) => break,
            Err(_) => {} // the file system has no holes: read everything
        }
        disk.seek(SeekFrom::Start(at))?;
        buffer.fill(0);
        let len = bytes::index(step.min(end.saturating_sub(at)))?;
        disk.read_exact(buffer.get_mut(..len).unwrap_or_default())?;
        if buffer.iter().any(|byte| *byte != 0) {
            each(at / step, &buffer)?;
        }
        at = at.saturating_add(step);
    }
    Ok(())
}

/// Copies a disk, leaving holes for zeros; the copy has the same size.
pub(crate) fn copy_sparse(from: &mut File, to: &mut File) -> Result<()> {
    const CHUNK: usize = 1 << 16;
    let size = from.metadata()?.len();
    blocks(from, CHUNK, |index, data| {
        to.seek(SeekFrom::Start(index.saturating_mul(bytes::size(CHUNK))))?;
        Ok(to.write_all(data)?)
    })?;
    Ok(to.set_len(size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_a_remedy() {
        let error = checked(Path::new("/dev/full"), || {
            File::options()
                .write(true)
                .open("/dev/full")?
                .write_all(b"x")?;
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "writing /dev/full");
        assert!(
            error
                .downcast_ref::<Failure>()
                .unwrap()
                .remedy()
                .contains("free disk space")
        );
    }

    #[test]
    fn blocks_skip_zeros_and_holes() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.seek(SeekFrom::Start(70_000)).unwrap();
        file.write_all(b"data").unwrap();
        let mut seen = Vec::new();
        blocks(&mut file, 4096, |index, data| {
            seen.push((index, data.iter().filter(|byte| **byte != 0).count()));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [(17, 4)]);
    }
}
