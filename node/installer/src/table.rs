//! Writes the partition table (UEFI 2.10, section 5.3) in an order that survives a power cut.

use std::io::{self, Seek, SeekFrom, Write};

use gptman::{GPTHeader, GPTPartitionEntry};

/// Size of the MBR in bytes, and its signature.
const MBR_SIZE: usize = 512;
const MBR_END: [u8; 2] = [0x55, 0xaa];
/// Length of the boot code. Offset of the first of the four partition entries, its status "active", and the partition
/// type of a GPT.
const MBR_CODE: usize = 440;
const MBR_FIRST: usize = 446;
const MBR_ACTIVE: u8 = 0x80;
const MBR_PROTECTIVE: u8 = 0xee;

/// The parts of a protective MBR that differ between disks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mbr<'a> {
    /// Boot code for BIOS.
    pub code: &'a [u8],
    /// Whether the partition is marked as active.
    pub is_active: bool,
}

/// Writes both copies of the table: the backup at the end first, and once it is durable, the primary at the start.
/// `first` is the primary header.
///
/// # Errors
/// The disk fails, or the partitions overlap.
pub fn write_copies<D: Write + Seek>(
    disk: &mut D,
    first: &GPTHeader,
    sector: u64,
    entries: &[GPTPartitionEntry],
    flush: impl Fn(&mut D) -> io::Result<()>,
) -> io::Result<()> {
    let mut first = first.clone();
    let mut second = first.clone();
    second.primary_lba = first.backup_lba;
    second.backup_lba = first.primary_lba;
    second.partition_entry_lba = first.last_usable_lba + 1;
    for header in [&mut second, &mut first] {
        header
            .write_into(disk, sector, entries)
            .map_err(io::Error::other)?;
        flush(disk)?;
    }
    Ok(())
}

/// Writes the protective MBR (section 5.2.3) of a disk of `sectors` sectors. Kernel and firmware read no table without
/// it.
///
/// # Errors
/// The disk fails.
pub fn write_protective<D: Write + Seek>(
    disk: &mut D,
    sectors: u64,
    Mbr { code, is_active }: Mbr<'_>,
) -> io::Result<()> {
    let behind = sectors.saturating_sub(1);
    let mut mbr: Vec<u8> = code.iter().copied().take(MBR_CODE).collect();
    mbr.resize(MBR_FIRST, 0);
    let status = if is_active { MBR_ACTIVE } else { 0 };
    mbr.extend([
        status,
        0,
        2,
        0,
        MBR_PROTECTIVE,
        0xff,
        0xff,
        0xff,
        1,
        0,
        0,
        0,
    ]);
    mbr.extend(u32::try_from(behind).unwrap_or(u32::MAX).to_le_bytes());
    mbr.resize(MBR_SIZE - MBR_END.len(), 0);
    mbr.extend(MBR_END);
    disk.seek(SeekFrom::Start(0))?;
    disk.write_all(&mbr)
}
