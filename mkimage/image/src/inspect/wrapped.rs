//! Disks in a virtual machine format or an archive: converts them into a temporary raw disk and
//! inspects that.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Failure, Result};
use corten_steps::tool::Tool;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{Inspection, disk, unknown};
use crate::{bytes, output};

/// Name of the disk in an archive for Google Cloud.
const IN_ARCHIVE: &str = "disk.raw";
/// Block size in bytes of the search for zeros.
const BLOCK: u64 = 1 << 16;
/// Largest disk that is unpacked, in bytes, many times the size of our disks. A small file can
/// claim a disk larger than the free space.
const LARGEST_DISK: u64 = 8 << 30;
/// Incompatible feature of qcow2: the data is in another file.
const EXTERNAL_DATA: u8 = 1 << 2;

/// QEMU's name of the format with this header.
pub(super) fn driver(head: &[u8]) -> Option<&'static str> {
    match head.get(..4)? {
        b"QFI\xfb" => Some("qcow2"),
        b"KDMV" => Some("vmdk"),
        _ => None,
    }
}

/// Inspects the disk of a virtual machine.
pub(super) fn virtual_disk(path: &Path, driver: &str, found: &mut Inspection) -> Result<()> {
    stands_alone(path, driver)?;
    let path = std::path::absolute(path)?;
    let path = path.to_str().context("its path is not UTF-8")?;
    // An explicit driver and file, so that the image's content cannot make QEMU open another file
    // of this machine.
    let file = json!({"driver": "file", "filename": path});
    let image = format!(
        "json:{}",
        json!({"driver": driver, "backing": null, "file": file})
    );
    bounded(virtual_size(&image)?)?;
    let dir = tempfile::tempdir().context("creating a temporary directory")?;
    let raw = dir.path().join(IN_ARCHIVE);
    Tool::new("qemu-img")
        .args(["convert", "-O", "raw"])
        .arg(&image)
        .arg(&raw)
        .run()?;
    disk(&mut output::open(&raw)?, found)
}

/// Inspects the disk in an OVA, an entry of its archive.
pub(super) fn archived_disk(entry: &mut impl Read, found: &mut Inspection) -> Result<()> {
    let dir = tempfile::tempdir().context("creating a temporary directory")?;
    let path = dir.path().join("disk.vmdk");
    io::copy(entry, &mut File::create(&path)?).context("unpacking its disk")?;
    virtual_disk(&path, "vmdk", found)
}

/// Inspects the disk in a compressed archive.
pub(super) fn compressed(mut file: File, found: &mut Inspection) -> Result<()> {
    file.rewind()?;
    let mut tar = tar::Archive::new(GzDecoder::new(file));
    for entry in tar.entries()? {
        let mut entry = entry?;
        if entry.path()?.to_str() == Some(IN_ARCHIVE) {
            bounded(entry.size())?;
            let mut raw = tempfile::tempfile().context("creating a temporary file")?;
            unpack(&mut entry, &mut raw).context("unpacking its disk")?;
            return disk(&mut raw, found);
        }
    }
    Err(unknown())
}

/// Size in bytes of the raw disk that QEMU would write. The size comes from QEMU because a VMDK
/// such as ours has the valid header in its footer.
fn virtual_size(image: &str) -> Result<u64> {
    let said = Tool::new("qemu-img")
        .args(["info", "--output", "json", image])
        .output()?;
    let said: Value = serde_json::from_slice(&said).context("reading the output of qemu-img")?;
    let size = said.get("virtual-size").and_then(Value::as_u64);
    size.context("the output of qemu-img has no disk size")
}

/// Refuses a disk above the size limit.
fn bounded(size: u64) -> Result<()> {
    if size <= LARGEST_DISK {
        return Ok(());
    }
    Err(Failure::new(
        format!("its disk has {size} bytes, more than the limit of {LARGEST_DISK} bytes"),
        "give an image as mkimage made it, or convert it to a raw disk with `qemu-img convert`",
    ))
}

/// Copies data, leaving holes for zeros.
fn unpack(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let mut block = Vec::new();
    loop {
        block.clear();
        let read = from.by_ref().take(BLOCK).read_to_end(&mut block)?;
        if read == 0 {
            let end = to.stream_position()?;
            return to.set_len(end);
        }
        if block.iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Current(i64::try_from(read).unwrap_or_default()))?;
        } else {
            to.write_all(&block)?;
        }
    }
}

/// Refuses an image that refers to other files, which could be any file of this machine.
fn stands_alone(path: &Path, driver: &str) -> Result<()> {
    let mut head = [0; 512];
    output::open(path)?.read_exact(&mut head)?;
    let elsewhere = match driver {
        // The last byte of incompatible_features, which version 2 lacks.
        "qcow2" => {
            head.get(7).is_some_and(|version| *version > 2)
                && head
                    .get(79)
                    .is_some_and(|features| features & EXTERNAL_DATA != 0)
        }
        // Without a capacity in the header, the descriptor lists the data files.
        _ => bytes::slice(&head, 12, 8)? == [0; 8],
    };
    match elsewhere {
        false => Ok(()),
        true => Err(Failure::new(
            "its data is in other files",
            "merge them into one file with `qemu-img convert`, in their directory",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, host, release, text};
    use crate::vmdk;

    #[test]
    fn hostile_disks_cannot_make_mkimage_read_the_files_they_name() {
        let scratch = Scratch::new();
        let secret = scratch.file("secret.raw", &[7; 1 << 20]);
        let refused = |path: &Path, driver: &str| {
            let error = virtual_disk(path, driver, &mut Inspection::default()).unwrap_err();
            format!("{error:#}")
        };
        let outside = scratch.path("outside.qcow2");
        let options = format!("data_file={}", text(&scratch.path("data")));
        let create = [
            "create",
            "-q",
            "-f",
            "qcow2",
            "-o",
            &options,
            text(&outside),
            "1M",
        ];
        host("qemu-img", &create);
        assert!(refused(&outside, "qcow2").contains("in other files"));

        let list = format!(
            "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\n\
             createType=\"monolithicFlat\"\nRW 2048 FLAT \"{}\" 0\n",
            text(&secret)
        );
        let mut image = b"KDMV".to_vec();
        image.resize(28, 0);
        // Sector and length in sectors of the descriptor.
        image.extend(1_u64.to_le_bytes());
        image.extend(20_u64.to_le_bytes());
        image.resize(512, 0);
        image.extend(list.as_bytes());
        image.resize(1 << 16, 0);
        let image = scratch.file("list.vmdk", &image);
        assert!(refused(&image, "vmdk").contains("in other files"));

        // The backing file of an overlay is not read: the overlay has no partition table.
        for driver in ["qcow2", "vmdk"] {
            let above = scratch.path(&format!("above.{driver}"));
            let below = scratch.path(&format!("below.{driver}"));
            host(
                "qemu-img",
                &["convert", "-O", driver, text(&secret), text(&below)],
            );
            let create = [
                "create",
                "-q",
                "-f",
                driver,
                "-F",
                driver,
                "-b",
                text(&below),
                text(&above),
            ];
            host("qemu-img", &create);
            std::fs::remove_file(below).unwrap();
            assert!(refused(&above, driver).contains("partition table"));
        }
        assert!(refused(&scratch.file("short", b"QFI\xfb"), "qcow2").contains("fill"));
    }

    #[test]
    fn hostile_oversized_disks_are_not_unpacked() {
        let scratch = Scratch::new();
        let refused = |path: &Path| {
            let error = super::super::inspect(path).unwrap_err();
            let said = format!("{error:#}");
            assert!(said.contains(&format!("{} bytes", 9_u64 << 30)), "{said}");
            let remedy = error.downcast_ref::<Failure>().unwrap().remedy();
            assert!(remedy.contains("as mkimage made it"), "{remedy}");
        };
        let qcow2 = scratch.path("large.qcow2");
        host(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", text(&qcow2), "9G"],
        );
        refused(&qcow2);

        // The header has the true size; the footer, which is the valid one, has another.
        let (small, vmdk) = (
            scratch.file("small.raw", &[7; 1 << 20]),
            scratch.path("large.vmdk"),
        );
        vmdk::build(&vmdk, &release(), &small).unwrap();
        let mut image = std::fs::read(&vmdk).unwrap();
        let capacity = image.len() - 1024 + 12;
        let sectors = (9_u64 << 30) / 512;
        let field = |at| bytes::slice(&image, at, 8).unwrap();
        assert_eq!(field(12), field(capacity));
        bytes::put(&mut image, capacity, &sectors.to_le_bytes()).unwrap();
        std::fs::write(&vmdk, image).unwrap();
        refused(&vmdk);

        let mut header = tar::Header::new_gnu();
        header.set_path(IN_ARCHIVE).unwrap();
        header.set_size(9 << 30);
        header.set_cksum();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(header.as_bytes()).unwrap();
        refused(&scratch.file("large.tar.gz", &gzip.finish().unwrap()));
    }

    #[test]
    fn hostile_archives_hold_no_more_than_their_bytes() {
        let scratch = Scratch::new();
        for name in ["disk.vmdk", "blobs/sha256/00"] {
            let mut header = tar::Header::new_gnu();
            header.set_path(name).unwrap();
            header.set_entry_type(tar::EntryType::GNUSparse);
            header.set_size(0);
            let gnu = header.as_gnu_mut().unwrap();
            gnu.set_real_size(1 << 20);
            gnu.sparse[0].set_offset(1 << 20);
            gnu.sparse[0].set_length(0);
            header.set_cksum();
            let mut archive = header.as_bytes().to_vec();
            archive.resize(archive.len() + 1024, 0);
            let error = super::super::inspect(&scratch.file("holes.ova", &archive)).unwrap_err();
            let said = format!("{error:#}");
            assert!(said.contains(&format!("{name} has holes")), "{said}");
        }
    }

    #[test]
    fn a_disk_is_unpacked_with_its_holes() {
        use std::os::unix::fs::MetadataExt as _;
        let mut disk = vec![0; 1 << 20];
        disk[70_000] = 1;
        let mut file = tempfile::tempfile().unwrap();
        unpack(&mut disk.as_slice(), &mut file).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!(facts.len(), 1 << 20);
        assert!(facts.blocks() * 512 < 1 << 20);
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == disk);
    }
}
