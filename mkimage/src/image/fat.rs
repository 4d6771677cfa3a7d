//! The EFI system partition: FAT32 at any size, because UEFI requires firmware to read only FAT32
//! there.
//!
//! hadris-fat writes it. This module stops two clocks of that crate: the clock of new entries by a
//! [`TimeProvider`], the clock of the volume label by overwriting its date.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, ensure};
use hadris_fat::format::{FatFormatOptions, FatTypeSelection, FatVolumeFormatter};
use hadris_fat::time::TimeProvider;
use hadris_fat::{FatDateTime, FatVolume, FatVolumeReadExt as _, FatVolumeWriteExt as _};

use super::output::{self, Window};
use super::{Release, bytes};
use crate::error::Result;

/// The source of a file's bytes.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file on this machine.
    File(PathBuf),
}

/// A file of the partition: its path there (`EFI/BOOT/BOOTX64.EFI`) and its content.
pub type FatFile = (String, Content);

/// A FAT32 volume has at least 65525 clusters; drivers disagree on the exact limit, hence the
/// margin.
const FEWEST_CLUSTERS: u64 = 65_600;
const SECTOR: u64 = 512;
/// Copies of 1 MiB keep memory use independent of the size of a kernel image.
const CHUNK: usize = 1 << 20;

/// The smallest size, in whole MiB, of a volume with `files` and `room` spare bytes.
pub fn size_for(files: &[FatFile], room: u64) -> Result<u64> {
    let mut content = room;
    for (_, source) in files {
        // A file wastes at most one cluster; a directory entry with its long name is small.
        content = content
            .saturating_add(length(source)?)
            .saturating_add(16 << 10);
    }
    // Two tables of 4 bytes per cluster: less than 1/64 at the smallest cluster.
    let size = content.saturating_add(content / 60).saturating_add(1 << 20);
    Ok(bytes::align(size.max(36 << 20), 1 << 20))
}

/// Writes a volume of `size` bytes as a file of its own.
pub fn build(out: &Path, release: &Release, size: u64, files: &[FatFile]) -> Result<()> {
    output::create(out, |file| {
        file.set_len(size)?;
        write(file, 0, size, release, files)
    })
}

/// Makes the file system in `disk` at `start`, in `size` bytes that are zero.
pub(crate) fn write(
    disk: &mut File,
    start: u64,
    size: u64,
    release: &Release,
    files: &[FatFile],
) -> Result<()> {
    let clock: &'static Clock = Box::leak(Box::new(Clock(release.epoch)));
    let failure = Rc::new(RefCell::new(None));
    let device = Device {
        window: Window::new(disk, start, size),
        failure: Rc::clone(&failure),
    };
    let made = format(device, start, size, release, clock).and_then(|volume| {
        for (path, content) in files {
            add(&volume, path, content).with_context(|| format!("adding {path} to the ESP"))?;
        }
        Ok(volume.sync()?)
    });
    // The crate keeps only the class of an I/O error; the original error tells whether the disk is
    // full.
    match failure.take() {
        Some(error) => Err(anyhow::Error::new(error).context("writing the ESP")),
        None => made,
    }?;
    stop_label_clock(disk, start, clock)
}

type Volume<'a> = FatVolume<Device<'a>>;

fn format<'a>(
    device: Device<'a>,
    start: u64,
    size: u64,
    release: &Release,
    clock: &'static Clock,
) -> Result<Volume<'a>> {
    let sectors = size / SECTOR;
    let per_cluster = [8_u8, 4, 2, 1]
        .into_iter()
        .find(|count| {
            let fat = sectors / u64::from(*count) * 4 / SECTOR;
            sectors.saturating_sub(2 * fat).saturating_sub(64) / u64::from(*count)
                >= FEWEST_CLUSTERS
        })
        .context("the ESP is too small for FAT32")?;
    let options = FatFormatOptions::new(size)
        .fat_type(FatTypeSelection::Fat32)
        .sectors_per_cluster(per_cluster)
        .hidden_sectors(bytes::fit32(start / SECTOR, "the start of the ESP")?)
        .volume_label("EFI")
        .volume_id(release.id32("efi"));
    let mut device = FatVolumeFormatter::format(device, options)?.into_inner();
    device.rewind()?;
    Ok(FatVolume::builder(device).time_provider(clock).open()?)
}

/// Copies one file and makes its parent directories.
fn add(volume: &Volume<'_>, path: &str, content: &Content) -> Result<()> {
    let mut directory = volume.root_dir();
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        directory = match directory.find(part)? {
            Some(entry) => volume.open_dir_entry(&entry)?,
            None => volume.create_dir(&directory, part)?,
        };
    }
    ensure!(directory.find(name)?.is_none(), "there are two of it");
    let entry = volume.create_file(&directory, name)?;
    let mut writer = volume.write_file(&entry)?;
    match content {
        Content::Bytes(data) => {
            let count = writer.write(data)?;
            ensure!(count == data.len(), "only {count} bytes were written");
        }
        Content::File(path) => {
            let mut source = output::open(path)?;
            let mut buffer = vec![0; CHUNK];
            loop {
                let count = source.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                writer.write(buffer.get(..count).unwrap_or_default())?;
            }
        }
    }
    Ok(writer.finish()?)
}

/// Overwrites the date of the label, the first entry of the root directory, which the crate's clock
/// set.
fn stop_label_clock(disk: &mut File, start: u64, clock: &Clock) -> Result<()> {
    const LABEL: &[u8; 11] = b"EFI        ";
    let mut boot = [0; 512];
    disk.seek(SeekFrom::Start(start))?;
    disk.read_exact(&mut boot)?;
    let reserved = u64::from(bytes::u16_le(&boot, 14)?);
    let fats = u64::from(bytes::get::<1>(&boot, 16).map(u8::from_le_bytes)?);
    let fat = u64::from(bytes::u32_le(&boot, 36)?);
    let root = start.saturating_add(reserved.saturating_add(fats * fat).saturating_mul(SECTOR));
    let mut entry = [0; 32];
    disk.seek(SeekFrom::Start(root))?;
    disk.read_exact(&mut entry)?;
    ensure!(
        entry.starts_with(LABEL),
        "the label is not where FAT32 has it"
    );
    let (date, time, _) = clock.now().to_raw();
    for (at, field) in [(14, time), (16, date), (18, date), (22, time), (24, date)] {
        bytes::put(&mut entry, at, &field.to_le_bytes())?;
    }
    disk.seek(SeekFrom::Start(root))?;
    Ok(disk.write_all(&entry)?)
}

/// The size of a content in bytes.
fn length(content: &Content) -> Result<u64> {
    match content {
        Content::Bytes(data) => Ok(bytes::size(data.len())),
        Content::File(path) => output::size_of(path),
    }
}

/// A file found in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) size: u64,
    /// Its bytes, if requested.
    pub(crate) content: Option<Vec<u8>>,
}

/// Every file of the volume at `start`, by path, with the content of the files that `wanted`
/// selects.
pub(crate) fn list(
    disk: &mut File,
    start: u64,
    size: u64,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Found>> {
    let device = Device {
        window: Window::new(disk, start, size),
        failure: Rc::default(),
    };
    let volume = FatVolume::open(device)?;
    let mut files = Vec::new();
    let mut pending = vec![(String::new(), volume.root_dir())];
    while let Some((above, directory)) = pending.pop() {
        let mut entries = directory.entries();
        while let Some(entry) = entries.next_entry() {
            let entry = entry?;
            let name = entry.name().into_owned();
            let Some(file) = entry.as_entry().filter(|_| name != "." && name != "..") else {
                continue;
            };
            let path = format!("{above}{name}");
            if file.is_directory() {
                pending.push((format!("{path}/"), volume.open_dir_entry(file)?));
            } else if file.is_file() {
                let content = wanted(&path).then(|| volume.read_file(file)?.read_to_vec());
                let content = content.transpose()?;
                files.push(Found {
                    path,
                    size: file.len(),
                    content,
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// A clock stopped at a number of seconds since 1970.
#[derive(Debug)]
struct Clock(u64);

impl TimeProvider for Clock {
    fn now(&self) -> FatDateTime {
        let (year, month, day) = super::calendar::date(self.0);
        let part = |per: u64, of: u64| u8::try_from(self.0 / per % of).unwrap_or(0);
        let year = u16::try_from(year).unwrap_or(u16::MAX);
        FatDateTime::new(year, month, day, part(3600, 24), part(60, 60), part(1, 60))
    }
}

/// A window that keeps its first I/O error.
#[derive(Debug)]
struct Device<'a> {
    window: Window<'a>,
    failure: Rc<RefCell<Option<io::Error>>>,
}

impl Device<'_> {
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.failure.borrow_mut().get_or_insert(error);
            kind.into()
        })
    }
}

impl Read for Device<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.window.read(buffer);
        self.note(result)
    }
}

impl Write for Device<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let result = self.window.write(data);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.window.flush();
        self.note(result)
    }
}

impl Seek for Device<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let result = self.window.seek(to);
        self.note(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;
    use crate::image::testing::{Scratch, host, noise, release, text};

    fn files(scratch: &Scratch) -> Vec<FatFile> {
        let big = scratch.file("big", &noise(3 << 20));
        vec![
            (
                "EFI/BOOT/BOOTX64.EFI".to_owned(),
                Content::Bytes(noise(70_000)),
            ),
            (
                "EFI/Linux/corten-1.2.3+3.efi".to_owned(),
                Content::File(big),
            ),
            (
                "loader/loader.conf".to_owned(),
                Content::Bytes(b"timeout 0\n".to_vec()),
            ),
        ]
    }

    #[test]
    fn fsck_finds_nothing_and_mtools_reads_it_back() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        for size in [size_for(&files, 0).unwrap(), 256 << 20] {
            let out = scratch.path("esp");
            build(&out, &release(), size, &files).unwrap();
            let said = host("fsck.fat", &["-n", "-v", text(&out)]);
            assert!(said.contains("32 bit entries"), "{said}");
            assert!(
                !said.contains("Dirty") && !said.contains("differ"),
                "{said}"
            );
            let copy = scratch.path("copy");
            let image = text(&out);
            host(
                "mcopy",
                &[
                    "-n",
                    "-i",
                    image,
                    "::EFI/Linux/corten-1.2.3+3.efi",
                    text(&copy),
                ],
            );
            assert_eq!(std::fs::read(&copy).unwrap(), noise(3 << 20));
            std::fs::remove_file(&copy).unwrap();
            let listing = host("mdir", &["-i", image, "-/", "::"]);
            assert!(listing.contains("2023-11-14  22:13"), "{listing}");
        }
    }

    #[test]
    fn it_is_the_same_twice_at_another_second() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        build(&one, &release(), 40 << 20, &files).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2100)); // FAT has a resolution of 2 seconds
        build(&two, &release(), 40 << 20, &files).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
    }

    #[test]
    fn what_is_written_is_listed() {
        let scratch = Scratch::new();
        let out = scratch.path("esp");
        build(&out, &release(), 40 << 20, &files(&scratch)).unwrap();
        let mut disk = File::options().read(true).write(true).open(&out).unwrap();
        let seen = list(&mut disk, 0, 40 << 20, |path| path.ends_with(".conf")).unwrap();
        let names: Vec<_> = seen
            .iter()
            .map(|file| (file.path.as_str(), file.size))
            .collect();
        assert_eq!(
            names,
            [
                ("EFI/BOOT/BOOTX64.EFI", 70_000),
                ("EFI/Linux/corten-1.2.3+3.efi", 3 << 20),
                ("loader/loader.conf", 10),
            ]
        );
        assert_eq!(seen[2].content.as_deref(), Some(b"timeout 0\n".as_slice()));
        assert_eq!(seen[1].content, None);
    }

    #[test]
    fn too_small_and_full_are_errors() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        let error = build(&scratch.path("small"), &release(), 1 << 20, &files).unwrap_err();
        assert!(format!("{error:#}").contains("too small for FAT32"));
        let huge = scratch.path("huge");
        File::create(&huge).unwrap().set_len(60 << 20).unwrap();
        let more = [("x".to_owned(), Content::File(huge))];
        let error = build(&scratch.path("full"), &release(), 40 << 20, &more).unwrap_err();
        assert!(error.downcast_ref::<Failure>().is_some());
        assert!(
            format!("{error:#}").contains("adding x to the ESP"),
            "{error:#}"
        );
    }
}
