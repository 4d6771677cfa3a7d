//! qcow2 (QEMU's docs/interop/qcow2, version 3), clusters compressed with zstd.
//!
//! Written here and not by qemu-img, so that no byte depends on the host's QEMU or libzstd.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::ensure;
use corten_steps::error::Result;

use super::{bytes, output};

/// QEMU's default, 64 KiB.
const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
const ENTRIES: u64 = CLUSTER / 8;
/// Reference counts of 16 bits.
const REFCOUNT_ORDER: u32 = 4;
const REFCOUNTS: u64 = CLUSTER / 2;
/// The entry's cluster has exactly one reference.
const COPIED: u64 = 1 << 63;
/// The entry describes compressed data.
const COMPRESSED: u64 = 1 << 62;
/// Bits of a compressed entry that hold the offset; the rest counts 512-byte sectors.
const OFFSET_BITS: u32 = 62 - (CLUSTER_BITS - 8);
/// Incompatible feature: the header's compression type is not the default.
const COMPRESSION_TYPE: u64 = 1 << 3;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 9;
const HEADER: u32 = 112;

/// Writes the disk image `raw` to `out` as qcow2.
pub fn build(out: &Path, raw: &Path) -> Result<()> {
    let mut disk = output::open(raw)?;
    let size = disk.metadata()?.len();
    output::create(out, |file| write(file, &mut disk, size))
}

/// The layout of the file during writing.
struct Image {
    /// Offset of the next free byte.
    end: u64,
    /// Reference count of each cluster.
    references: Vec<u16>,
    /// Second-level mapping tables by their index in the first-level table; empty ones are not
    /// stored.
    tables: Vec<Option<Vec<u64>>>,
}

impl Image {
    /// Adds a reference to every cluster that the bytes touch, and reserves those clusters.
    fn take(&mut self, at: u64, len: u64) -> Result<()> {
        let last = bytes::index(at.saturating_add(len).saturating_sub(1) / CLUSTER)?;
        if self.references.len() <= last {
            self.references.resize(last.saturating_add(1), 0);
        }
        for count in self
            .references
            .iter_mut()
            .take(last + 1)
            .skip(bytes::index(at / CLUSTER)?)
        {
            *count = count
                .checked_add(1)
                .ok_or_else(|| anyhow::anyhow!("too many references"))?;
        }
        self.end = self.end.max(at.saturating_add(len));
        Ok(())
    }

    /// Allocates a run of whole clusters.
    fn clusters(&mut self, count: u64) -> Result<u64> {
        let at = bytes::align(self.end, CLUSTER);
        self.take(at, count.saturating_mul(CLUSTER))?;
        Ok(at)
    }

    /// Sets the mapping entry of guest cluster `index`.
    fn map(&mut self, index: u64, entry: u64) -> Result<()> {
        let slot = bytes::index(index / ENTRIES)?;
        let table = self
            .tables
            .get_mut(slot)
            .ok_or_else(|| anyhow::anyhow!("a cluster outside the disk"))?
            .get_or_insert_with(|| vec![0; 1 << (CLUSTER_BITS - 3)]);
        if let Some(target) = table.get_mut(bytes::index(index % ENTRIES)?) {
            *target = entry;
        }
        Ok(())
    }
}

fn write(file: &mut File, disk: &mut File, size: u64) -> Result<()> {
    let slots = size.div_ceil(CLUSTER * ENTRIES);
    let mut image = Image {
        end: 0,
        references: Vec::new(),
        tables: vec![None; bytes::index(slots)?],
    };
    image.clusters(1)?;
    let l1 = image.clusters((slots * 8).div_ceil(CLUSTER))?;
    data(file, disk, &mut image)?;

    let mut first = Vec::new();
    for table in std::mem::take(&mut image.tables) {
        let at = match table {
            Some(entries) => {
                let at = image.clusters(1)?;
                put(file, at, &big_endian(&entries))?;
                at | COPIED
            }
            None => 0,
        };
        first.push(at);
    }
    put(file, l1, &big_endian(&first))?;
    let (table, clusters) = references(file, &mut image)?;
    put(
        file,
        0,
        &header(size, bytes::fit32(slots, "L1")?, l1, table, clusters),
    )?;
    file.set_len(bytes::align(image.end, CLUSTER))?;
    Ok(())
}

/// Writes the non-zero clusters: compressed and packed, or whole where compression saves nothing.
fn data(file: &mut File, disk: &mut File, image: &mut Image) -> Result<()> {
    let mut out = BufWriter::new(&mut *file);
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    output::blocks(disk, 1 << CLUSTER_BITS, |index, block| {
        let packed = compressor.compress(block)?;
        let len = bytes::size(packed.len());
        // Rounded up to sectors it must be smaller than a cluster.
        if bytes::align(len, 512).saturating_add(512) >= CLUSTER {
            let at = image.clusters(1)?;
            out.seek(SeekFrom::Start(at))?;
            out.write_all(block)?;
            return image.map(index, at | COPIED);
        }
        let at = image.end;
        // A reader reads whole sectors; the reference counts cover all clusters it may touch.
        let sectors = (at % 512).saturating_add(len).div_ceil(512);
        let touched = (sectors * 512).saturating_sub(at % 512);
        image.take(at, touched)?;
        image.end = at.saturating_add(len);
        out.seek(SeekFrom::Start(at))?;
        out.write_all(&packed)?;
        image.map(index, at | ((sectors - 1) << OFFSET_BITS) | COMPRESSED)
    })?;
    Ok(out.flush()?)
}

/// Writes the reference counts of every cluster, including their own; the last part of the file.
fn references(file: &mut File, image: &mut Image) -> Result<(u64, u32)> {
    let before = bytes::align(image.end, CLUSTER) / CLUSTER;
    let mut blocks = 1;
    let total = loop {
        let table = (blocks * 8_u64).div_ceil(CLUSTER);
        let total = before + table + blocks;
        if total.div_ceil(REFCOUNTS) <= blocks {
            break total;
        }
        blocks += 1;
    };
    let table_clusters = (blocks * 8).div_ceil(CLUSTER);
    let table = image.clusters(table_clusters)?;
    let first = image.clusters(blocks)?;
    ensure!(
        bytes::size(image.references.len()) == total,
        "the number of clusters is wrong"
    );
    let offsets: Vec<u64> = (0..blocks).map(|block| first + block * CLUSTER).collect();
    put(file, table, &big_endian(&offsets))?;
    let counts: Vec<u8> = image
        .references
        .iter()
        .flat_map(|count| count.to_be_bytes())
        .collect();
    put(file, first, &counts)?;
    Ok((table, bytes::fit32(table_clusters, "the reference table")?))
}

fn header(size: u64, slots: u32, l1: u64, references: u64, clusters: u32) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(b"QFI\xfb");
    header.extend(3_u32.to_be_bytes());
    header.extend([0; 12]); // no backing file
    header.extend(CLUSTER_BITS.to_be_bytes());
    header.extend(size.to_be_bytes());
    header.extend(0_u32.to_be_bytes()); // not encrypted
    header.extend(slots.to_be_bytes());
    header.extend(l1.to_be_bytes());
    header.extend(references.to_be_bytes());
    header.extend(clusters.to_be_bytes());
    header.extend([0; 12]); // no snapshots
    header.extend(COMPRESSION_TYPE.to_be_bytes());
    header.extend([0; 16]); // no compatible or autoclear features
    header.extend(REFCOUNT_ORDER.to_be_bytes());
    header.extend(HEADER.to_be_bytes());
    header.extend([ZSTD, 0, 0, 0, 0, 0, 0, 0]);
    header.extend([0; 8]); // no extensions
    header
}

fn big_endian(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn put(file: &mut File, at: u64, data: &[u8]) -> Result<()> {
    file.seek(SeekFrom::Start(at))?;
    Ok(file.write_all(data)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, disk, host, text};

    #[test]
    fn qemu_reads_the_same_disk_from_the_qcow2_image() {
        let scratch = Scratch::new();
        let raw = disk(&scratch);
        let (one, two) = (scratch.path("one.qcow2"), scratch.path("two.qcow2"));
        build(&one, &raw).unwrap();
        build(&two, &raw).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
        let said = host("qemu-img", &["check", "-f", "qcow2", text(&one)]);
        assert!(said.contains("No errors were found"), "{said}");
        host(
            "qemu-img",
            &[
                "compare",
                "-f",
                "raw",
                "-F",
                "qcow2",
                text(&raw),
                text(&one),
            ],
        );
        assert!(std::fs::metadata(&one).unwrap().len() < 2 << 20);
    }
}
