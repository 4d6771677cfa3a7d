//! The directory `EFI/Linux` of a mounted EFI partition. The partition must be mounted with `dirsync`: the kernel then
//! writes the new name of a file before it removes the old one (`fs/fat/namei_vfat.c`, `vfat_rename`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, RenameFlags, fadvise, renameat_with, statvfs};
use sha2::{Digest as _, Sha256};

use crate::versions::Files;
use crate::{IMAGES, uki, version};

/// Size of one read or write, in bytes.
const CHUNK: usize = 1 << 20;

/// The directory of boot entries.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory `EFI/Linux` below this mount point.
    #[must_use]
    pub fn of(mount_point: &Path) -> Directory {
        Directory(mount_point.join(IMAGES))
    }

    /// Path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

impl Files for Directory {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_file() {
                files.push((
                    entry.file_name().to_string_lossy().into_owned(),
                    about.len(),
                ));
            }
        }
        Ok(files)
    }

    fn version(&self, name: &str) -> io::Result<String> {
        match version(&self.path(name)) {
            Ok(version) => Ok(version),
            // The boot loader skips such a file, too.
            Err(uki::UkiError::Format(_)) => Ok(String::new()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn free(&self) -> io::Result<u64> {
        let about = statvfs(&self.0)?;
        Ok(about.f_bavail.saturating_mul(about.f_frsize))
    }

    fn write(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(name);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let mut file = options?;
        let mut written = Sha256::new();
        let length = each_chunk(content, |chunk| {
            written.update(chunk);
            file.write_all(chunk)
        })?;
        file.sync_all()?;
        self.sync()?;
        // The check must read the disk, not the page cache.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let mut read = Sha256::new();
        let read_length = each_chunk(&mut File::open(&path)?, |chunk| {
            read.update(chunk);
            Ok(())
        })?;
        if (read_length, read.finalize()) != (length, written.finalize()) {
            return Err(io::Error::other(
                "the disk returns other bytes than were written to it",
            ));
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let directory = File::open(&self.0)?;
        renameat_with(&directory, from, &directory, to, RenameFlags::NOREPLACE)?;
        self.sync()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))?;
        self.sync()
    }
}

pub(crate) fn each_chunk(
    from: &mut dyn Read,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut total: u64 = 0;
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(total),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        take(chunk.get(..read).unwrap_or_default())?;
        total = total.saturating_add(u64::try_from(read).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_file_is_complete_and_existing_files_are_not_overwritten() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("EFI/Linux")).unwrap();
        let mut directory = Directory::of(scratch.path());
        let content: Vec<u8> = (0..CHUNK + 7)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        directory.write("a", &mut content.as_slice()).unwrap();
        assert_eq!(fs::read(directory.path("a")).unwrap(), content);
        directory.write("a", &mut content.as_slice()).unwrap_err();
        directory.write("b", &mut &b""[..]).unwrap();
        directory.rename("a", "b").unwrap_err();
        directory.rename("a", "c").unwrap();
        directory.remove("b").unwrap();
        let length = u64::try_from(content.len()).unwrap();
        assert_eq!(directory.list().unwrap(), [("c".to_owned(), length)]);
        assert_eq!(directory.version("c").unwrap(), "");
        assert!(directory.free().unwrap() > 0);
    }
}
