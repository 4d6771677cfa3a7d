//! Reads the content of an image, for `mkimage inspect`. Opens every format of the builder, and a
//! separate initramfs.

mod text;
mod wrapped;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, ensure};
use corten_installer::esp::Part;
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};
use gptman::GPT;
use serde::Serialize;
use uuid::Uuid;

use super::uki::{self, Section};
use super::{bytes, fat, initramfs, output, pxe, raw};

/// The content of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The format: `raw`, `iso`, `uki`, ...
    pub format: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// The volume name of an ISO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// GPT partitions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// META values by tag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Files of the EFI system partition, or of an archive or directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileInfo>,
    /// The unified kernel images found, or the kernel of a network boot bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The parts that were not read, and how to read them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Inspection {
    /// The architecture of its kernel.
    pub fn arch(&self) -> Option<Arch> {
        self.images.iter().find_map(|image| image.arch)
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Its name in the table.
    pub label: String,
    /// Its type: a word for the types of our images, else the GUID.
    pub kind: String,
    /// Offset of its first byte.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Its own GUID.
    pub guid: String,
}

/// A file and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    /// Path.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
}

/// A unified kernel image, or the kernel of a network boot bundle, which has no version, name and
/// release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Path in the inspected image.
    pub path: String,
    /// Its architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// `VERSION_ID` of its os-release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `PRETTY_NAME` of its os-release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `uname -r` of its kernel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// The kernel command line.
    pub cmdline: String,
    /// Its sections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// The files of its initramfs.
    pub initramfs: Vec<FileInfo>,
    /// The whole file.
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// Inspects the image at `path`, which may be the directory of a network boot bundle.
///
/// # Errors
/// The file is no image of the builder or is damaged, or `qemu-img` is missing, which opens virtual
/// machine disks.
pub fn inspect(path: &Path) -> Result<Inspection> {
    let found = match path.is_dir() {
        true => bundle(path),
        false => look(path),
    };
    let own = found
        .as_ref()
        .err()
        .and_then(|error| error.downcast_ref::<Failure>());
    let remedy = own.map_or("give a complete image made by mkimage", Failure::remedy);
    let remedy = remedy.to_owned();
    found.or_fail(format!("inspecting {}", path.display()), remedy)
}

fn look(path: &Path) -> Result<Inspection> {
    let mut file = output::open(path)?;
    let mut head = Vec::new();
    (&mut file).take(36 << 10).read_to_end(&mut head)?;
    let has =
        |at: usize, magic: &[u8]| bytes::slice(&head, at, magic.len()).is_ok_and(|m| m == magic);
    let mut found = Inspection {
        size: file.metadata()?.len(),
        ..Inspection::default()
    };
    let mut name = |format: &str| found.format = format.to_owned();
    if has(0x8001, b"CD001") {
        name("iso");
        iso(&mut file, &head, &mut found)?;
    } else if has(512, b"EFI PART") {
        name(if ends_as_vhd(&mut file)? {
            "vhd"
        } else {
            "raw"
        });
        disk(&mut file, &mut found)?;
    } else if has(0, b"MZ") {
        name("uki");
        found.images.push(image("", &output::read(path)?)?);
    } else if has(0, b"070701") || has(0, &initramfs::ZSTD) {
        name("initramfs");
        found.files = initramfs(&output::read(path)?)?;
    } else if has(257, b"ustar") {
        name("tar");
        archive(file, &mut found)?;
    } else if let Some(driver) = wrapped::driver(&head) {
        name(driver);
        wrapped::virtual_disk(path, driver, &mut found)?;
    } else if has(0, &[0x1f, 0x8b]) {
        name("gcp");
        wrapped::compressed(file, &mut found)?;
    } else {
        return Err(unknown());
    }
    Ok(found)
}

fn unknown() -> anyhow::Error {
    Failure::new(
        "mkimage does not make its format",
        "see `mkimage build --help`",
    )
}

/// A network boot bundle: a directory with a kernel, an initramfs and iPXE's script.
fn bundle(dir: &Path) -> Result<Inspection> {
    let mut found = Inspection {
        format: "pxe".to_owned(),
        ..Inspection::default()
    };
    let mut read = |name: &str| {
        let data = output::read(&dir.join(name))?;
        let size = bytes::size(data.len());
        found.size = found.size.saturating_add(size);
        found.files.push(FileInfo {
            path: name.to_owned(),
            size,
        });
        Ok::<_, anyhow::Error>(data)
    };
    let (script, kernel) = (read(pxe::SCRIPT)?, read(pxe::KERNEL)?);
    let archive = read(pxe::INITRAMFS)?;
    let script = String::from_utf8_lossy(&script);
    found.images.push(Image {
        path: pxe::KERNEL.to_owned(),
        arch: uki::arch(&kernel),
        cmdline: pxe::command_line(&script).unwrap_or_default().to_owned(),
        initramfs: initramfs(&archive).unwrap_or_default(),
        data: kernel,
        ..Image::default()
    });
    Ok(found)
}

fn ends_as_vhd(file: &mut File) -> Result<bool> {
    let mut footer = [0; 8];
    file.seek(SeekFrom::End(-512))?;
    file.read_exact(&mut footer)?;
    Ok(&footer == b"conectix")
}

fn partitions(file: &mut File, found: &mut Inspection) -> Result<()> {
    let table = GPT::read_from(file, 512).context("its partition table is damaged")?;
    for (number, entry) in table.iter().filter(|(_, entry)| entry.is_used()) {
        let kind = Uuid::from_bytes_le(entry.partition_type_guid);
        let word = match kind {
            raw::TYPE_EFI => "EFI system".to_owned(),
            raw::TYPE_BIOS => "BIOS boot".to_owned(),
            raw::TYPE_LINUX => "Linux".to_owned(),
            _ => kind.to_string(),
        };
        found.partitions.push(Partition {
            number,
            label: entry.partition_name.as_str().to_owned(),
            kind: word,
            start: entry.starting_lba.saturating_mul(512),
            size: entry.size()?.saturating_mul(512),
            guid: Uuid::from_bytes_le(entry.unique_partition_guid).to_string(),
        });
    }
    Ok(())
}

fn disk(file: &mut File, found: &mut Inspection) -> Result<()> {
    partitions(file, found)?;
    for part in found.partitions.clone() {
        if part.label == "EFI" {
            esp(file, part.start, part.size, found)?;
        } else if part.label == "META" && part.size == corten_meta::PARTITION {
            let mut data = vec![0; bytes::index(part.size)?];
            file.seek(SeekFrom::Start(part.start))?;
            file.read_exact(&mut data)?;
            match corten_meta::decode(&data) {
                Some(values) => {
                    found.meta = values
                        .into_iter()
                        .map(|(tag, v)| {
                            (
                                format!("0x{tag:02x}"),
                                String::from_utf8_lossy(&v).into_owned(),
                            )
                        })
                        .collect();
                }
                None => found
                    .notes
                    .push("META has no valid copy of its values".to_owned()),
            }
        }
    }
    Ok(())
}

/// The files of a FAT volume and the UKIs among them.
fn esp(file: &mut File, start: u64, size: u64, found: &mut Inspection) -> Result<()> {
    let is_uki = |path: &str| {
        let path = path.to_ascii_lowercase();
        path.starts_with("efi/linux/") && path.ends_with(".efi")
    };
    for entry in fat::list(Part::new(file, start, size), is_uki)? {
        if let Some(content) = &entry.content {
            let read = image(&entry.path, content);
            found
                .images
                .push(read.with_context(|| format!("reading {}", entry.path))?);
        }
        found.files.push(FileInfo {
            path: entry.path,
            size: entry.size,
        });
    }
    Ok(())
}

/// The volume name and, through the boot catalog, the EFI image.
fn iso(file: &mut File, head: &[u8], found: &mut Inspection) -> Result<()> {
    const CD_SECTOR: u64 = 2048;
    let name = bytes::slice(head, 0x8028, 32)?;
    found.volume = Some(String::from_utf8_lossy(name).trim_end().to_owned());
    ensure!(
        bytes::slice(head, 0x8807, 23)? == b"EL TORITO SPECIFICATION",
        "it does not boot"
    );
    let catalog_at = u64::from(bytes::u32_le(head, 0x8847)?).saturating_mul(CD_SECTOR);
    let mut catalog = [0; 2048];
    file.seek(SeekFrom::Start(catalog_at))?;
    file.read_exact(&mut catalog)?;
    let mut platform = 0;
    for entry in catalog.chunks_exact(32) {
        match entry {
            // The validation entry, or a section header (0x91 is the last): the platform id
            // follows.
            [1 | 0x90 | 0x91, id, ..] => platform = *id,
            [0x88, ..] if platform == 0xef => {
                let start = u64::from(bytes::u32_le(entry, 8)?).saturating_mul(CD_SECTOR);
                esp(file, start, found.size.saturating_sub(start), found)?;
            }
            _ => {}
        }
    }
    partitions(file, found)
}

/// An installer's layers, or the file names of another archive.
fn archive(mut file: File, found: &mut Inspection) -> Result<()> {
    file.rewind()?;
    let mut tar = tar::Archive::new(file);
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let size = entry.size();
        // An entry without holes is no larger than the archive.
        ensure!(
            !entry.header().entry_type().is_gnu_sparse(),
            "its entry {path} has holes, which mkimage does not write"
        );
        found.files.push(FileInfo {
            path: path.clone(),
            size,
        });
        match path.as_str() {
            "oci-layout" => found.format = "installer".to_owned(),
            path if path.ends_with(".vmdk") => {
                found.format = "ova".to_owned();
                wrapped::archived_disk(&mut entry, found)?;
            }
            path if path.starts_with("blobs/sha256/") => {
                let mut blob = Vec::new();
                entry.read_to_end(&mut blob)?;
                layer(&blob, found)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The files of a tar blob; none for any other blob.
fn layer(blob: &[u8], found: &mut Inspection) -> Result<()> {
    if !bytes::slice(blob, 257, 5).is_ok_and(|magic| magic == b"ustar") {
        return Ok(());
    }
    for entry in tar::Archive::new(blob).entries()? {
        let mut entry = entry?;
        let path = format!("/{}", entry.path()?.display());
        // `is_file` excludes sparse entries too.
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if path.ends_with("/corten.efi") {
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            found.images.push(image(&path, &data)?);
        }
        found.files.push(FileInfo {
            size: entry.size(),
            path,
        });
    }
    Ok(())
}

fn image(path: &str, data: &[u8]) -> Result<Image> {
    let sections = uki::sections(data)?;
    let text = |name| -> Result<String> {
        let content = uki::content(data, uki::section(&sections, name)?)?;
        Ok(String::from_utf8_lossy(content)
            .trim_end_matches('\0')
            .to_owned())
    };
    let os_release = text(".osrel")?;
    let value = |key: &str| {
        let line = os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let archive = uki::content(data, uki::section(&sections, ".initrd")?)?;
    Ok(Image {
        path: path.to_owned(),
        arch: uki::arch(data),
        version: value("VERSION_ID"),
        name: value("PRETTY_NAME"),
        kernel: text(".uname")?,
        cmdline: text(".cmdline")?,
        initramfs: initramfs(archive).unwrap_or_default(),
        data: data.to_vec(),
        sections,
    })
}

/// The files of an initramfs.
fn initramfs(archive: &[u8]) -> Result<Vec<FileInfo>> {
    let info = |(path, content): (String, Vec<u8>)| FileInfo {
        path,
        size: bytes::size(content.len()),
    };
    Ok(initramfs_files(archive)?.into_iter().map(info).collect())
}

/// The files of an initramfs, with their content.
pub(super) fn initramfs_files(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut entries = initramfs::read(archive)?;
    entries.retain(|entry| entry.mode & 0o170_000 == 0o100_000);
    let file = |entry: initramfs::Entry| (format!("/{}", entry.name), entry.data);
    Ok(entries.into_iter().map(file).collect())
}
