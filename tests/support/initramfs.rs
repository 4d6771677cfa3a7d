//! Reads an initramfs and writes a changed one.

use std::io::Write;
use std::path::Path;

use corten_image::initramfs;
pub use corten_image::initramfs::Entry;
use cpio::newc::{self, Builder};

/// An executable file.
#[must_use]
pub fn program(name: &str, data: Vec<u8>) -> Entry {
    Entry {
        name: name.to_owned(),
        mode: 0o100_755,
        device: (0, 0),
        data,
    }
}

/// Reads an initramfs.
///
/// # Panics
/// The file is no initramfs.
#[must_use]
pub fn read(path: &Path) -> Vec<Entry> {
    let archive = std::fs::read(path).expect("initramfs is readable");
    initramfs::read(&archive).expect("an initramfs")
}

/// Writes it as one uncompressed archive.
///
/// # Panics
/// The file cannot be written.
pub fn write(path: &Path, entries: &[Entry]) {
    let file = std::fs::File::create(path).expect("initramfs is writable");
    let mut file = std::io::BufWriter::new(file);
    for (number, entry) in (1..).zip(entries) {
        let size = u32::try_from(entry.data.len()).expect("an entry below 4 GiB");
        let mut writer = Builder::new(&entry.name)
            .ino(number)
            .mode(entry.mode)
            .rdev_major(entry.device.0)
            .rdev_minor(entry.device.1)
            .write(&mut file, size);
        writer
            .write_all(&entry.data)
            .expect("room for the initramfs");
        writer.finish().expect("room for the initramfs");
    }
    newc::trailer(&mut file).expect("room for the initramfs");
    file.flush().expect("room for the initramfs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initramfs_archive_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("initramfs");
        let entries = vec![
            Entry {
                name: "dev/console".into(),
                mode: 0o020_600,
                device: (5, 1),
                data: vec![],
            },
            program("init", vec![1, 2, 3]),
            program("empty", vec![]),
        ];
        write(&path, &entries);
        assert_eq!(read(&path), entries);
    }
}
