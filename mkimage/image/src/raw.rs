//! The disk image: GPT with EFI (boot loader, UKI), BIOS (GRUB), META and, on request, IMAGECACHE.
//! Never contains STATE and EPHEMERAL, which the node makes in the free space.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_installer::Entry;
use corten_installer::esp;
use corten_installer::grub::{self, Code, Start};
pub use corten_installer::layout::{ALIGNMENT, TYPE_BIOS, TYPE_EFI, TYPE_LINUX};
use corten_installer::layout::{Partition, esp_size, layout};
use corten_steps::error::{Failure, Result};
use gptman::{GPT, GPTPartitionEntry};

use super::fat::{self, Content, FatFile};
use super::{Release, output};
use crate::secure_boot::enrolment;

/// The content of a disk.
#[derive(Debug)]
pub struct Disk<'a> {
    /// The unified kernel image.
    pub uki: &'a Path,
    /// systemd-boot ([`corten_steps::arch::Names::sd_boot`]).
    pub sd_boot: &'a Path,
    /// Whether BIOS starts the disk, too, with the code in the image. Otherwise its partition stays
    /// empty.
    pub bios: bool,
    /// The directory of the files that enrol the firmware's keys ([`enrolment`]).
    pub enrol: &'a Path,
    /// Initial META values.
    pub meta: &'a corten_meta::Values,
    /// The board's additions.
    pub board: &'a Board,
    /// The file system of the image cache; `None` omits the partition.
    pub images: Option<&'a Path>,
    /// Size of the disk in bytes; `None` for the smallest that holds the partitions.
    pub size: Option<u64>,
}

/// A board's additions; by default none.
#[derive(Debug, Default)]
pub struct Board {
    /// Files of the EFI partition.
    pub esp: Vec<FatFile>,
    /// Files that its firmware reads from the disk itself: offset in bytes, and file.
    pub raw: BTreeMap<u64, PathBuf>,
    /// Offset of the first partition in bytes, a multiple of [`ALIGNMENT`]; `None` for the default.
    pub start: Option<u64>,
}

const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
/// The first byte after the primary partition table (UEFI 2.10, section 5.3.1).
const TABLE_END: u64 = 34 * SECTOR;
/// Writes the disk image to `out`; the file is sparse.
pub fn build(out: &Path, release: &Release, disk: &Disk<'_>) -> Result<()> {
    let files = esp_files(release, disk)?;
    let uki = output::size_of(disk.uki)?;
    let esp = esp_size(esp::content_of(&files)?, uki, SECTOR);
    let start = disk.board.start.unwrap_or(ALIGNMENT);
    let cache = disk.images.map(output::size_of).transpose()?;
    let layout = layout(start, esp, cache.map(|size| ("IMAGECACHE", size)));
    let own = own_places(&disk.board.raw, start)?;
    let used = layout
        .last()
        .map_or(0, |last| last.start.saturating_add(last.size));
    // The backup GPT needs the last 33 sectors; 1 MiB keeps the size in whole MiB.
    let smallest = used.saturating_add(MIB);
    let size = disk.size.unwrap_or(smallest);
    if size < smallest || !size.is_multiple_of(MIB) {
        return Err(Failure::new(
            format!("a disk of {size} bytes cannot hold this image"),
            format!("give a whole number of MiB, {} or more", smallest / MIB),
        ));
    }
    let code = match disk.bios {
        true => Some(Code::of(disk.uki)?.context("the image has no code of GRUB")?),
        false => None,
    };
    output::create(out, |file| {
        file.set_len(size)?;
        partition(file, release, &layout)?;
        for (at, source) in &own {
            file.seek(SeekFrom::Start(*at))?;
            io::copy(&mut output::open(source)?, file)?;
        }
        for part in &layout {
            match part.label {
                "EFI" => fat::write(file, part.start, part.size, release, &files)?,
                "IMAGECACHE" => {
                    if let Some(images) = disk.images {
                        file.seek(SeekFrom::Start(part.start))?;
                        io::copy(&mut output::open(images)?, file)?;
                    }
                }
                "META" => write_at(file, part.start, &corten_meta::encode(disk.meta)?.repeat(2))?,
                _ => {
                    if let Some(code) = &code {
                        let (mbr, core) = code.placed(part.start / SECTOR);
                        write_at(file, 0, &mbr)?;
                        write_at(file, part.start, &core)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// The UKI's boot entry on a new disk, with all of its tries left.
fn new_entry(release: &Release) -> Entry {
    Entry::new(&release.version, 0)
}

/// The files that start a version: systemd-boot, the UKI under `name`, and the data of
/// systemd-boot. Its data are its configuration, and the files in `enrol` that set the firmware's
/// keys. `enrol` is empty when the image is signed with published keys.
pub(crate) fn boot_files(
    release: &Release,
    (sd_boot, uki): (&Path, &Path),
    name: &str,
    enrol: &Path,
) -> Vec<FatFile> {
    let file = |path: &Path| Content::File(path.to_owned());
    let architecture = release.arch.names().oci;
    let files = corten_installer::boot_files(architecture, file(sd_boot), (name, file(uki)));
    let keys = enrolment::ALL.iter().filter_map(|variable| {
        let name = variable.update();
        let file = enrol.join(&name);
        let is_there = file.exists();
        is_there.then(|| (format!("loader/keys/auto/{name}"), Content::File(file)))
    });
    files.into_iter().chain(keys).collect()
}

fn esp_files(release: &Release, disk: &Disk<'_>) -> Result<Vec<FatFile>> {
    let name = new_entry(release).to_string();
    let mut files = boot_files(release, (disk.sd_boot, disk.uki), &name, disk.enrol);
    if disk.bios {
        let entry = new_entry(release);
        let start = Start::of(disk.uki)
            .with_context(|| format!("reading {} for GRUB", disk.uki.display()))?;
        files.extend(grub::files(&entry, &release.version, start));
    }
    files.extend(disk.board.esp.iter().cloned());
    Ok(files)
}

/// The files before the first partition in order of their offsets; an error if two overlap.
fn own_places(raw: &BTreeMap<u64, PathBuf>, end: u64) -> Result<Vec<(u64, &Path)>> {
    let mut free = TABLE_END;
    let mut places = Vec::new();
    for (at, source) in raw {
        let after = at.saturating_add(output::size_of(source)?);
        if *at < free || after > end {
            return Err(Failure::new(
                format!("{} does not fit at {at} of the disk", source.display()),
                format!(
                    "place it between {free} and {end}, the start of the first partition; \
                     `partition-offset` of the overlay moves that"
                ),
            ));
        }
        free = after;
        places.push((*at, source.as_path()));
    }
    Ok(places)
}

fn partition(file: &mut File, release: &Release, layout: &[Partition]) -> Result<()> {
    let mut table = GPT::new_from(file, SECTOR, release.uuid("disk").to_bytes_le())?;
    for (number, part) in (1..).zip(layout) {
        table[number] = GPTPartitionEntry {
            partition_type_guid: part.kind.to_bytes_le(),
            unique_partition_guid: release.uuid(part.label).to_bytes_le(),
            starting_lba: part.start / SECTOR,
            ending_lba: part.start.saturating_add(part.size) / SECTOR - 1,
            attribute_bits: part.attributes,
            partition_name: part.label.into(),
        };
    }
    table.write_into(file)?;
    GPT::write_protective_mbr_into(file, SECTOR)?;
    write_at(file, 440, &release.id32("mbr").to_le_bytes())
}

fn write_at(file: &mut File, at: u64, data: &[u8]) -> Result<()> {
    file.seek(SeekFrom::Start(at))?;
    Ok(file.write_all(data)?)
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
