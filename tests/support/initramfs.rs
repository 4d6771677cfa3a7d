//! Takes an initramfs apart and puts it together again with a change.

use std::io::{Read, Write};
use std::path::Path;

use cpio::newc::{self, Builder};

/// One entry of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path without a leading slash.
    pub name: String,
    /// Type and permission bits.
    pub mode: u32,
    /// Device numbers of a device node.
    pub device: (u32, u32),
    /// Content of a file.
    pub data: Vec<u8>,
}

impl Entry {
    /// An executable file.
    #[must_use]
    pub fn program(name: &str, data: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            mode: 0o100_755,
            device: (0, 0),
            data,
        }
    }
}

/// Reads an uncompressed archive.
///
/// # Panics
/// When the file is not one.
#[must_use]
pub fn read(path: &Path) -> Vec<Entry> {
    let archive = std::fs::read(path).expect("initramfs is readable");
    let mut rest = archive.as_slice();
    let mut entries = Vec::new();
    loop {
        let mut reader = newc::Reader::new(rest).expect("a cpio entry");
        if reader.entry().is_trailer() {
            return entries;
        }
        let mut data = Vec::new();
        reader.read_to_end(&mut data).expect("an entry's content");
        let entry = reader.entry();
        entries.push(Entry {
            name: entry.name().trim_start_matches(['.', '/']).to_owned(),
            mode: entry.mode(),
            device: (entry.rdev_major(), entry.rdev_minor()),
            data,
        });
        rest = reader.finish().expect("the end of an entry");
    }
}

/// Writes the archive.
///
/// # Panics
/// When the file cannot be written.
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
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("initramfs");
        let entries = vec![
            Entry {
                name: "dev/console".into(),
                mode: 0o020_600,
                device: (5, 1),
                data: vec![],
            },
            Entry::program("init", vec![1, 2, 3]),
            Entry::program("empty", vec![]),
        ];
        write(&path, &entries);
        assert_eq!(read(&path), entries);
    }
}
