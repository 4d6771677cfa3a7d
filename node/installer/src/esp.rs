//! Writes and reads EFI system partitions. They are FAT32 at any size, because firmware must support only that.
//!
//! hadris-fat writes the file system. This module fixes two of its timestamps: that of new entries by a
//! [`TimeProvider`], that of the volume label by overwriting its date.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::LazyLock;

use hadris_fat::format::{FatFormatOptions, FatTypeSelection, FatVolumeFormatter, SectorSize};
use hadris_fat::time::TimeProvider;
use hadris_fat::{FatDateTime, FatVolume, FatVolumeReadExt as _, FatVolumeWriteExt as _};

use crate::chunks::{self, CHUNK};

/// Source of a file's bytes.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file on this machine.
    File(PathBuf),
}

/// A file of the partition: its path there (`EFI/BOOT/BOOTX64.EFI`), and its content.
pub type FatFile = (String, Content);

/// systemd-boot's configuration: no menu unless the operator holds a key, no editing of the command line. In setup
/// mode, systemd-boot enrols our keys by itself only in a virtual machine; elsewhere the operator chooses the enrolment
/// in the menu.
pub const LOADER_CONF: &str = "timeout 0\neditor no\nsecure-boot-enroll if-safe\n";

/// The single timestamp of everything in a volume.
#[derive(Debug, Clone, Copy)]
pub struct Stamp(pub FatDateTime);

impl TimeProvider for Stamp {
    fn now(&self) -> FatDateTime {
        self.0
    }
}

/// Timestamp of volumes that a node makes: the earliest FAT date.
pub static DATELESS: LazyLock<Stamp> =
    LazyLock::new(|| Stamp(FatDateTime::new(1980, 1, 1, 0, 0, 0)));

/// Lower limit of the number of clusters. FAT32 starts at 65525; drivers disagree by a few, so this keeps a margin.
const FEWEST_CLUSTERS: u64 = 65_600;
const LABEL: &[u8; 11] = b"EFI        ";

/// Smallest size of a volume with `content` bytes in it, in bytes: whole MiB.
#[must_use]
pub fn size_of(content: u64) -> u64 {
    // Two tables of 4 bytes per cluster: less than 1/64 at the smallest cluster size.
    let size = content.saturating_add(content / 60).saturating_add(1 << 20);
    size.max(36 << 20).next_multiple_of(1 << 20)
}

/// Space that the files take in a volume, in bytes.
///
/// # Errors
/// A file cannot be read.
pub fn content_of(files: &[FatFile]) -> io::Result<u64> {
    files.iter().try_fold(0_u64, |all, (_, content)| {
        // Each file wastes at most one cluster; a directory entry with its long name is small.
        let one = length(content)?.saturating_add(16 << 10);
        Ok(all.saturating_add(one))
    })
}

/// Length of a content, in bytes.
///
/// # Errors
/// The content cannot be read.
pub fn length(content: &Content) -> io::Result<u64> {
    match content {
        Content::Bytes(data) => Ok(u64::try_from(data.len()).unwrap_or(u64::MAX)),
        Content::File(path) => std::fs::metadata(path)
            .map(|about| about.len())
            .map_err(|error| named(path, &error)),
    }
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Place and ID of a volume on a disk. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Offset of the volume on the disk.
    pub start: u64,
    /// Size of the volume.
    pub size: u64,
    /// Sector size of the disk: 512 or 4096.
    pub sector: u64,
    /// Serial number of the volume.
    pub id: u32,
}

/// Makes the file system in its place on `disk`, whatever lay there before.
///
/// # Errors
/// The disk fails, or the place is too small.
pub fn write<D: Read + Write + Seek>(
    disk: &mut D,
    place: Place,
    files: &[FatFile],
    stamp: &'static Stamp,
) -> io::Result<()> {
    let failure = Rc::new(RefCell::new(None));
    let part = Part {
        failure: Rc::clone(&failure),
        ..Part::new(disk, place.start, place.size)
    };
    let made = format(part, place, stamp).and_then(|volume| {
        for (path, content) in files {
            add(&volume, path, content)
                .map_err(|error| io::Error::other(format!("adding {path} to the ESP: {error}")))?;
        }
        volume.sync().map_err(io::Error::other)
    });
    // The crate keeps only the kind of an I/O error. The original error says whether the disk is full.
    match failure.take() {
        Some(error) => Err(error),
        None => made,
    }?;
    stop_label_clock(disk, place, stamp)
}

/// Reads one file of a volume chunk by chunk.
///
/// # Errors
/// The volume or the file does not exist, or `take` fails.
pub fn read<D: Read + Seek>(
    disk: &mut D,
    (start, size): (u64, u64),
    path: &str,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let broken = |error: hadris_fat::Error| io::Error::other(format!("reading {path}: {error}"));
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no {path}"));
    let volume = FatVolume::open(Part::new(disk, start, size)).map_err(broken)?;
    let mut directory = volume.root_dir();
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        let entry = directory.find(part).map_err(broken)?.ok_or_else(missing)?;
        directory = volume.open_dir_entry(&entry).map_err(broken)?;
    }
    let entry = directory.find(name).map_err(broken)?.ok_or_else(missing)?;
    let mut file = volume.read_file(&entry).map_err(broken)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = file.read(&mut chunk).map_err(broken)?;
        if count == 0 {
            return Ok(());
        }
        take(chunk.get(..count).unwrap_or_default())?;
    }
}

/// File names in a directory of a volume.
///
/// # Errors
/// As for [`read`].
pub fn list<D: Read + Seek>(
    disk: &mut D,
    (start, size): (u64, u64),
    directory: &str,
) -> io::Result<Vec<String>> {
    let broken =
        |error: hadris_fat::Error| io::Error::other(format!("reading {directory}: {error}"));
    let volume = FatVolume::open(Part::new(disk, start, size)).map_err(broken)?;
    let mut found = volume.root_dir();
    for part in directory.split('/') {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no {directory}"));
        let entry = found.find(part).map_err(broken)?.ok_or_else(missing)?;
        found = volume.open_dir_entry(&entry).map_err(broken)?;
    }
    let mut names = Vec::new();
    let mut entries = found.entries();
    while let Some(entry) = entries.next_entry() {
        let entry = entry.map_err(broken)?;
        if entry.as_entry().is_some_and(hadris_fat::FileEntry::is_file) {
            names.push(entry.name().into_owned());
        }
    }
    Ok(names)
}

type Volume<'a, D> = FatVolume<Part<'a, D>>;

fn format<'a, D: Read + Write + Seek>(
    part: Part<'a, D>,
    place: Place,
    stamp: &'static Stamp,
) -> io::Result<Volume<'a, D>> {
    let (size, sector) = (place.size, place.sector);
    let sectors = size / sector;
    let per_cluster = [8_u8, 4, 2, 1]
        .into_iter()
        .find(|count| {
            let fat = sectors / u64::from(*count) * 4 / sector;
            sectors.saturating_sub(2 * fat).saturating_sub(64) / u64::from(*count)
                >= FEWEST_CLUSTERS
        })
        .ok_or_else(|| io::Error::other("the ESP is too small for FAT32"))?;
    let hidden = u32::try_from(place.start / sector)
        .map_err(|_| io::Error::other("the ESP starts beyond the range of FAT32"))?;
    let unit = match sector {
        4096 => SectorSize::S4096,
        _ => SectorSize::S512,
    };
    let options = FatFormatOptions::new(size)
        .fat_type(FatTypeSelection::Fat32)
        .sector_size(unit)
        .sectors_per_cluster(per_cluster)
        .hidden_sectors(hidden)
        .volume_label("EFI")
        .volume_id(place.id);
    let formatted = FatVolumeFormatter::format(part, options).map_err(io::Error::other)?;
    let mut part = formatted.into_inner();
    part.rewind()?;
    let opened = FatVolume::builder(part).time_provider(stamp).open();
    opened.map_err(io::Error::other)
}

/// Copies one file, and makes its parent directories.
fn add<D: Read + Write + Seek>(
    volume: &Volume<'_, D>,
    path: &str,
    content: &Content,
) -> io::Result<()> {
    let broken = io::Error::other::<hadris_fat::Error>;
    let mut directory = volume.root_dir();
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        directory = match directory.find(part).map_err(broken)? {
            Some(entry) => volume.open_dir_entry(&entry),
            None => volume.create_dir(&directory, part),
        }
        .map_err(broken)?;
    }
    if directory.find(name).map_err(broken)?.is_some() {
        return Err(io::Error::other("the path occurs twice"));
    }
    let entry = volume.create_file(&directory, name).map_err(broken)?;
    let mut writer = volume.write_file(&entry).map_err(broken)?;
    each_chunk(content, |chunk| {
        let count = writer.write(chunk).map_err(broken)?;
        if count == chunk.len() {
            return Ok(());
        }
        Err(io::Error::other(format!("only {count} bytes were written")))
    })?;
    writer.finish().map_err(broken)
}

/// Passes the bytes of a content to `take`, chunk by chunk.
///
/// # Errors
/// The content cannot be read, or `take` fails.
pub fn each_chunk(
    content: &Content,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match content {
        Content::Bytes(data) if data.is_empty() => Ok(()),
        Content::Bytes(data) => take(data),
        Content::File(path) => {
            let mut source = File::open(path).map_err(|error| named(path, &error))?;
            chunks::each_chunk(&mut source, take).map(drop)
        }
    }
}

/// Overwrites the date of the label, which is the first entry of the root directory: the crate takes it from the clock.
fn stop_label_clock<D: Read + Write + Seek>(
    disk: &mut D,
    place: Place,
    stamp: &Stamp,
) -> io::Result<()> {
    let mut boot = [0; 512];
    disk.seek(SeekFrom::Start(place.start))?;
    disk.read_exact(&mut boot)?;
    let number = |at: usize, length: usize| {
        let bytes = boot.get(at..at + length).unwrap_or_default().iter().rev();
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (reserved, fats, fat) = (number(14, 2), number(16, 1), number(36, 4));
    let before = reserved.saturating_add(fats.saturating_mul(fat));
    let root = place.start + before.saturating_mul(place.sector);
    let mut entry = [0; 32];
    disk.seek(SeekFrom::Start(root))?;
    disk.read_exact(&mut entry)?;
    if !entry.starts_with(LABEL) {
        return Err(io::Error::other(
            "the label is not the first entry of the root directory",
        ));
    }
    let (date, time, _) = stamp.0.to_raw();
    for (at, field) in [(14, time), (16, date), (18, date), (22, time), (24, date)] {
        if let Some(bytes) = entry.get_mut(at..at + 2) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
    }
    disk.seek(SeekFrom::Start(root))?;
    disk.write_all(&entry)
}

/// A part of a disk as a file of its own, such as a partition. It keeps the first I/O error.
#[derive(Debug)]
pub struct Part<'a, D> {
    disk: &'a mut D,
    start: u64,
    length: u64,
    at: u64,
    failure: Rc<RefCell<Option<io::Error>>>,
}

impl<'a, D: Seek> Part<'a, D> {
    /// The `length` bytes from `start`.
    pub fn new(disk: &'a mut D, start: u64, length: u64) -> Part<'a, D> {
        Part {
            disk,
            start,
            length,
            at: 0,
            failure: Rc::default(),
        }
    }

    fn room(&mut self, wanted: usize) -> io::Result<usize> {
        let at = self.start.saturating_add(self.at);
        self.disk.seek(SeekFrom::Start(at))?;
        let left = self.length.saturating_sub(self.at);
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(wanted))
    }

    fn done(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(count) => {
                let count_64 = u64::try_from(count).unwrap_or(u64::MAX);
                self.at = self.at.saturating_add(count_64);
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.failure.borrow_mut().get_or_insert(error);
                Err(kind.into())
            }
        }
    }
}

impl<D: Read + Seek> Read for Part<'_, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.room(buffer.len()).and_then(|room| {
            let buffer = buffer.get_mut(..room).unwrap_or_default();
            self.disk.read(buffer)
        });
        self.done(result)
    }
}

impl<D: Write + Seek> Write for Part<'_, D> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let result = self.room(data.len()).and_then(|room| {
            let data = data.get(..room).unwrap_or_default();
            self.disk.write(data)
        });
        self.done(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.disk.flush().map(|()| 0);
        self.done(result).map(drop)
    }
}

impl<D: Seek> Seek for Part<'_, D> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
