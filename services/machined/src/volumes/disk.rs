//! Which disk is the system's, and what its partitions hold.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corten_luks::Luks;
use corten_sys::diskseq;

use super::table::{Extent, Table};
use crate::sysfs::read;

/// A whole disk, as the kernel names it (`vda`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The kernel's name, which another disk has when this one was taken out and that one put in.
    pub name: String,
    /// The kernel's number of it, which no other disk gets in this boot; 0: it is not known.
    pub sequence: u64,
    sysfs: PathBuf,
}

impl Disk {
    /// The disk of this name and this number on this machine.
    #[must_use]
    pub fn new(name: &str, sequence: u64) -> Disk {
        Disk {
            name: name.to_owned(),
            sequence,
            sysfs: "/sys".into(),
        }
    }

    fn found(sysfs: &Path, name: &str) -> Disk {
        let number = read(&sysfs.join("block").join(name).join("diskseq"));
        Disk {
            sysfs: sysfs.to_owned(),
            ..Disk::new(name, number.parse().unwrap_or_default())
        }
    }

    /// Opens it to read. As long as it is open, no other disk gets its name.
    ///
    /// # Errors
    /// Another disk has its name by now.
    pub fn open(&self) -> io::Result<File> {
        open_on(self.sequence, &self.device(), File::options().read(true))
    }

    /// Opens it to read and write.
    ///
    /// # Errors
    /// Another disk has its name by now.
    pub fn open_to_write(&self) -> io::Result<File> {
        let options = &mut File::options();
        open_on(
            self.sequence,
            &self.device(),
            options.read(true).write(true),
        )
    }

    /// The unit it can be read in, in bytes.
    #[must_use]
    pub fn sector(&self) -> u64 {
        let queue = self.sysfs.join("block").join(&self.name).join("queue");
        let size = read(&queue.join("logical_block_size"));
        size.parse().unwrap_or(512)
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Whether nothing can be written to it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        read(&self.sysfs.join("block").join(&self.name).join("ro")) == "1"
    }

    /// The device of the partition with this name, as the table on the disk has it: of one that was added
    /// since the kernel read the table, the kernel knows no name.
    ///
    /// # Errors
    /// It has none, or its table cannot be read.
    pub fn named(&self, name: &str) -> io::Result<PathBuf> {
        let table = Table::read(&mut self.open()?)?;
        let found = table
            .find(name)
            .ok_or_else(|| io::Error::other(format!("{} has no partition {name}", self.name)))?;
        self.partition(found.number)
    }

    /// The device of one of its partitions.
    ///
    /// # Errors
    /// The kernel knows no partition of this number.
    pub fn partition(&self, number: u32) -> io::Result<PathBuf> {
        let found = partitions(&self.sysfs, &self.name)?
            .into_iter()
            .find(|(_, path)| read(&path.join("partition")) == number.to_string());
        let (name, _) = found
            .ok_or_else(|| io::Error::other(format!("{} has no partition {number}", self.name)))?;
        Ok(Path::new("/dev").join(name))
    }
}

/// Opens a device, if it is the disk of this number, or a partition of it; of 0, whichever it is.
///
/// # Errors
/// It is on another disk.
pub(super) fn open_on(sequence: u64, device: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(device)?;
    if sequence == 0 || diskseq::of(&file)? == sequence {
        return Ok(file);
    }
    let shown = device.display();
    Err(io::Error::other(format!(
        "{shown} is another disk by now than the one that was chosen"
    )))
}

/// The disk with a partition named META, as the images make it; `None` when there is no such disk.
///
/// # Errors
/// More than one: which of them this node is must not be a guess.
pub fn system_disk(sysfs: &Path) -> io::Result<Option<Disk>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sysfs.join("block"))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let all = partitions(sysfs, &name).unwrap_or_default();
        let is_meant = |(_, path): &(String, PathBuf)| label(path).as_deref() == Some("META");
        if all.iter().any(is_meant) {
            found.push(Disk::found(sysfs, &name));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let names: Vec<_> = several.iter().map(|disk| disk.name.as_str()).collect();
            Err(io::Error::other(format!(
                "the disks {} all have a META partition; take out or wipe all but one",
                names.join(", ")
            )))
        }
    }
}

/// Name and sysfs directory of each partition of a disk.
fn partitions(sysfs: &Path, disk: &str) -> io::Result<Vec<(String, PathBuf)>> {
    Ok(fs::read_dir(sysfs.join("block").join(disk))?
        .flatten()
        .filter(|entry| entry.path().join("partition").is_file())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, entry.path())
        })
        .collect())
}

/// A disk's partitions, as far as the kernel knows them.
pub(super) fn extents(sysfs: &Path, disk: &str) -> Vec<Extent> {
    let all = partitions(sysfs, disk).unwrap_or_default();
    let extent = |path: &Path| {
        // Whatever the disk's own unit is (Documentation/ABI/stable/sysfs-block).
        let bytes = |name| Some(read(&path.join(name)).parse::<u64>().ok()? * 512);
        Some(Extent {
            number: read(&path.join("partition")).parse().ok()?,
            start: bytes("start")?,
            length: bytes("size")?,
        })
    };
    all.iter().filter_map(|(_, path)| extent(path)).collect()
}

/// The name of a partition in the partition table.
fn label(partition: &Path) -> Option<String> {
    let uevent = fs::read_to_string(partition.join("uevent")).ok()?;
    let line = uevent
        .lines()
        .find_map(|line| line.strip_prefix("PARTNAME="))?;
    Some(line.to_owned())
}

/// What a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing yet, or a file system that was not finished.
    Nothing,
    /// XFS.
    Xfs,
    /// LUKS, one that can be opened or a damaged one.
    Luks,
    /// Something else, which is not ours to overwrite.
    Foreign,
}

/// What a partition holds, by its first sectors (XFS: `struct xfs_dsb`, big-endian, at offset 0; the magic,
/// and at 126 whether `mkfs` is still at work). Of a LUKS header whose first copy was never written there is
/// the second.
///
/// # Errors
/// The device cannot be read.
pub fn content(device: &Path) -> io::Result<Content> {
    let mut start = [0; 4096];
    let mut file = File::open(device)?;
    file.read_exact(&mut start)?;
    if start.starts_with(b"LUKS\xba\xbe") {
        return Ok(Content::Luks);
    }
    if start.iter().all(|byte| *byte == 0) {
        return match Luks::read(&file) {
            Ok(None) => Ok(Content::Nothing),
            Err(corten_luks::LuksError::Device(error)) => Err(error),
            // Opening it says what is wrong.
            Ok(Some(_)) | Err(_) => Ok(Content::Luks),
        };
    }
    if !start.starts_with(b"XFSB") {
        return Ok(Content::Foreign);
    }
    let in_progress = start.get(126).is_some_and(|byte| *byte != 0);
    Ok(if in_progress {
        Content::Nothing
    } else {
        Content::Xfs
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(sysfs: &Path, disk: &str, number: u32, label: &str) {
        let dir = sysfs.join(format!("block/{disk}/{disk}{number}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("partition"), format!("{number}\n")).unwrap();
        let uevent = format!("MAJOR=254\nDEVTYPE=partition\nPARTN={number}\nPARTNAME={label}\n");
        fs::write(dir.join("uevent"), uevent).unwrap();
        fs::write(dir.join("start"), format!("{}\n", number * 2048)).unwrap();
        fs::write(dir.join("size"), "4096\n").unwrap();
    }

    #[test]
    fn the_system_disk_is_the_one_with_meta() {
        let sysfs = tempfile::tempdir().unwrap();
        fs::create_dir_all(sysfs.path().join("block/sr0/queue")).unwrap();
        assert_eq!(system_disk(sysfs.path()).unwrap(), None);
        partition(sysfs.path(), "sda", 1, "EFI");
        assert_eq!(system_disk(sysfs.path()).unwrap(), None);
        partition(sysfs.path(), "vda", 1, "EFI");
        partition(sysfs.path(), "vda", 3, "META");
        let disk = system_disk(sysfs.path()).unwrap().unwrap();
        assert_eq!(disk.device(), Path::new("/dev/vda"));
        assert_eq!(disk.sequence, 0);
        fs::write(sysfs.path().join("block/vda/diskseq"), "9\n").unwrap();
        let disk = system_disk(sysfs.path()).unwrap().unwrap();
        assert_eq!(disk.sequence, 9);
        assert_eq!(disk.partition(3).unwrap(), Path::new("/dev/vda3"));
        disk.partition(2).unwrap_err();
        let mut known = extents(sysfs.path(), "vda");
        known.sort_by_key(|extent| extent.number);
        let known: Vec<_> = known
            .iter()
            .map(|extent| (extent.number, extent.start, extent.length))
            .collect();
        assert_eq!(known, [(1, 1 << 20, 2 << 20), (3, 3 << 20, 2 << 20)]);
        assert!(!disk.is_read_only());
        fs::write(sysfs.path().join("block/vda/ro"), "1\n").unwrap();
        assert!(disk.is_read_only());
        partition(sysfs.path(), "sda", 2, "META");
        let error = system_disk(sysfs.path()).unwrap_err().to_string();
        assert!(error.contains("sda, vda"), "{error}");
    }

    #[test]
    fn a_disk_is_opened_when_it_is_the_one_that_is_meant() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |number| open_on(number, file.path(), File::options().read(true));
        open(0).unwrap();
        // It is none at all.
        open(9).unwrap_err();
    }

    #[test]
    fn content_is_told_by_the_first_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is = |bytes: &[u8]| {
            fs::write(file.path(), bytes).unwrap();
            content(file.path())
        };
        let mut block = vec![0; 4096];
        assert_eq!(is(&block).unwrap(), Content::Nothing);
        block[4095] = 1;
        assert_eq!(is(&block).unwrap(), Content::Foreign);
        block[..4].copy_from_slice(b"XFSB");
        assert_eq!(is(&block).unwrap(), Content::Xfs);
        block[126] = 1;
        assert_eq!(is(&block).unwrap(), Content::Nothing);
        // Version 1 is no volume of ours, and not to be overwritten either.
        block[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
        assert_eq!(is(&block).unwrap(), Content::Luks);
        is(&[0; 100]).unwrap_err();
    }
}
