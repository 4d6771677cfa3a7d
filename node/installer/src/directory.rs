//! The directory `EFI/Linux` of a mounted EFI partition, and GRUB's files beside it.
//!
//! A rename on FAT may be two writes, and a disk that reorders them may lose the file: [`exchange`] flushes the disk
//! between them. The partition must be mounted without `dirsync`, which would write both at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, RenameFlags, fadvise, renameat_with, statvfs};
use sha2::{Digest as _, Sha256};

use crate::chunks::{CHUNK, each_chunk};
use crate::grub::{self, Start, Unfit};
use crate::versions::{Files, LOST, UNFINISHED};
use crate::{IMAGES, uki, version};

const OTHER_BYTES: &str = "the disk returns other bytes than were written to it";

/// The directory of boot entries.
#[derive(Debug, Clone)]
pub struct Directory {
    entries: PathBuf,
    grub: PathBuf,
}

impl Directory {
    /// The directory `EFI/Linux` below this mount point.
    #[must_use]
    pub fn of(mount_point: &Path) -> Directory {
        Directory {
            entries: mount_point.join(IMAGES),
            grub: mount_point.join(grub::DIRECTORY),
        }
    }

    /// Path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.entries.join(name)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.entries)?.sync_all()
    }
}

impl Files for Directory {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.entries)? {
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
        let about = statvfs(&self.entries)?;
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
            return Err(io::Error::other(OTHER_BYTES));
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        File::create_new(self.path(to))?.sync_all()?;
        self.sync()?;
        exchange(&self.entries, from, to)?;
        self.remove(from)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))?;
        self.sync()
    }

    fn start(&self, name: &str) -> Result<Start, Unfit> {
        Start::of(&self.path(name))
    }

    fn has_grub(&self) -> bool {
        self.grub.join(grub::CONFIG).exists()
    }

    fn configure(&mut self, text: &str) -> io::Result<()> {
        replace(&self.grub, grub::CONFIG, text.as_bytes())
    }

    fn block(&self) -> io::Result<Vec<u8>> {
        Ok(content(&self.grub.join(grub::BLOCK))?.unwrap_or_default())
    }

    fn arm(&mut self, block: &[u8]) -> io::Result<()> {
        let path = self.grub.join(grub::BLOCK);
        match content(&path)? {
            Some(now) if now.len() == block.len() => {
                let file = File::options().read(true).write(true).open(&path)?;
                file.write_all_at(block, 0)?;
                file.sync_all()?;
                check(&file, &path, block)
            }
            _ => replace(&self.grub, grub::BLOCK, block),
        }
    }
}

/// Exchanges two files: `to` gets the content of `from` before `from` gets that of `to`. A power cut may leave the
/// content of `from` under both names.
///
/// The kernel changes the two directory entries in memory (`fs/fat/namei_vfat.c`, `vfat_rename_exchange`). The flush of a
/// file writes its own entry alone.
fn exchange(directory: &Path, from: &str, to: &str) -> io::Result<()> {
    let opened = File::open(directory)?;
    let content = File::open(directory.join(from))?;
    let other = File::open(directory.join(to))?;
    renameat_with(&opened, from, &opened, to, RenameFlags::EXCHANGE)?;
    content.sync_all()?;
    other.sync_all()?;
    opened.sync_all()
}

/// Replaces a small file by an exchange. A power cut leaves the old or the new content.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let sync = || File::open(directory)?.sync_all();
    let unfinished = format!("{name}{UNFINISHED}");
    let (path, new) = (directory.join(name), directory.join(&unfinished));
    let now = content(&path)?;
    match content(&new)? {
        None => {}
        // A power cut within the exchange may have left two names of one file. A removal would free its clusters.
        Some(left) if Some(&left) == now.as_ref() => {
            let lost = (1..).map(|number: usize| directory.join(format!("{name}{LOST}{number}")));
            let lost = lost.into_iter().find(|lost| !lost.exists());
            fs::rename(&new, lost.unwrap_or_default())?;
            sync()?;
        }
        Some(_) => {
            fs::remove_file(&new)?;
            sync()?;
        }
    }
    let options = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    sync()?;
    check(&file, &new, bytes)?;
    if now.is_none() {
        File::create_new(&path)?.sync_all()?;
        sync()?;
    }
    exchange(directory, &unfinished, name)?;
    fs::remove_file(&new)?;
    sync()
}

/// Content of a small file; `None` if there is no such file.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(CHUNK as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Checks that the disk returns these bytes, not the page cache.
fn check(file: &File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)?;
    if content(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    Err(io::Error::other(OTHER_BYTES))
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

    #[test]
    fn replaced_file_survives_the_leftovers_of_a_power_cut() {
        let scratch = tempfile::tempdir().unwrap();
        let mut directory = Directory::of(scratch.path());
        let grub = scratch.path().join(grub::DIRECTORY);
        let (config, new) = (grub.join("grub.cfg"), grub.join("grub.cfg.new"));
        assert!(!directory.has_grub());
        directory.configure("one").unwrap();
        assert!(directory.has_grub());
        // An unfinished write.
        fs::write(&new, "tw").unwrap();
        directory.configure("two").unwrap();
        assert_eq!(fs::read(&config).unwrap(), b"two");
        assert!(!new.exists());
        // Two names of one file: neither of them may be written to or removed.
        fs::hard_link(&config, &new).unwrap();
        directory.configure("three").unwrap();
        assert_eq!(fs::read(&config).unwrap(), b"three");
        assert_eq!(fs::read(grub.join("grub.cfg.lost1")).unwrap(), b"two");
        assert!(!new.exists());
    }

    #[test]
    fn counter_is_overwritten_in_place() {
        use std::os::unix::fs::MetadataExt as _;
        let scratch = tempfile::tempdir().unwrap();
        let mut directory = Directory::of(scratch.path());
        let path = scratch.path().join("grub/grubenv");
        let file = || fs::metadata(&path).unwrap().ino();
        directory.arm(&[1; 512]).unwrap();
        let before = file();
        directory.arm(&[2; 512]).unwrap();
        assert_eq!((file(), fs::read(&path).unwrap()), (before, vec![2; 512]));
        // GRUB takes a file of another length for no block.
        fs::write(&path, [3; 99]).unwrap();
        directory.arm(&[4; 512]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [4; 512]);
    }
}
