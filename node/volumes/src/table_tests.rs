//! Tables read, changed and written.

use std::io::Cursor;

use corten_corpus::{hostile, sample};
use proptest::prelude::{Just, any, prop_assert, prop_oneof};
use proptest::proptest;

use super::*;

const MIB: u64 = 1 << 20;

/// A disk of 4 MiB with META from 1 to 2 MiB, then lengthened to `length`.
fn disk(length: u64) -> Cursor<Vec<u8>> {
    let mut disk = Cursor::new(vec![0; 4 << 20]);
    let mut gpt = GPT::new_from(&mut disk, 512, [7; 16]).unwrap();
    gpt[3] = GPTPartitionEntry {
        partition_type_guid: TYPE_LINUX.to_bytes_le(),
        unique_partition_guid: [9; 16],
        starting_lba: 2048,
        ending_lba: 4095,
        attribute_bits: 0,
        partition_name: "META".into(),
    };
    gpt.write_into(&mut disk).unwrap();
    disk.get_mut().resize(usize::try_from(length).unwrap(), 0);
    disk
}

fn write(table: &Table, disk: &mut Cursor<Vec<u8>>) {
    table.write(disk, |_| Ok(())).unwrap();
}

#[test]
fn partitions_are_added_and_grow_with_the_disk() {
    let mut disk = disk(64 * MIB);
    let mut table = Table::read(&mut disk).unwrap();
    let state = table
        .append("STATE", TYPE_LINUX, Some(10 * MIB + 5))
        .unwrap();
    let expected = Extent {
        number: 1,
        start: 2 * MIB,
        length: 10 * MIB,
    };
    assert_eq!(state, expected);
    let rest = table.append("EPHEMERAL", TYPE_LINUX, None).unwrap();
    assert_eq!((rest.number, rest.length), (2, 51 * MIB));
    assert_eq!(table.room(), 0);
    table.append("MORE", TYPE_LINUX, None).unwrap_err();
    write(&table, &mut disk);

    disk.get_mut().resize(100 << 20, 0);
    let mut table = Table::read(&mut disk).unwrap();
    assert_eq!(table.find("STATE"), Some(state));
    assert_eq!(table.grow(state, None), None);
    let limited = table.grow(rest, Some(60 * MIB + 5));
    assert_eq!(limited.unwrap().length, 60 * MIB);
    let larger = limited.unwrap();
    assert_eq!(table.grow(larger, Some(60 * MIB)), None);
    let largest = table.grow(larger, None).unwrap();
    assert_eq!(largest.length, 87 * MIB);
    assert_eq!(table.grow(largest, None), None);
    assert_eq!(table.find("EPHEMERAL").unwrap().length, 87 * MIB);

    let second = table.remove(2).unwrap();
    assert_eq!(second.number, 2);
    for absent in [0, 2, 128, 129] {
        table.remove(absent).unwrap_err();
    }
    write(&table, &mut disk);
    let table = Table::read(&mut disk).unwrap();
    let left: Vec<&str> = table.partitions().map(|(name, _)| name).collect();
    assert_eq!(left, ["STATE", "META"]);
}

#[test]
fn power_cut_at_any_write_leaves_a_valid_table() {
    // Cuts the sequence of writes at every length; the last write is torn.
    struct Cut {
        disk: Cursor<Vec<u8>>,
        left: usize,
    }
    impl Write for Cut {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let taken = data.len().min(self.left);
            self.left -= taken;
            let done = self.disk.write(data.get(..taken).unwrap_or_default())?;
            if done < data.len() {
                return Err(io::Error::other("power cut"));
            }
            Ok(done)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Seek for Cut {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.disk.seek(to)
        }
    }
    for left in (0..34_000).step_by(97) {
        let before = disk(8 * MIB);
        let mut table = Table::read(&mut before.clone()).unwrap();
        table.append("STATE", TYPE_LINUX, Some(4 * MIB)).unwrap();
        let mut cut = Cut { disk: before, left };
        let whole = table.write(&mut cut, |_| Ok(())).is_ok();
        let after = Table::read(&mut cut.disk).unwrap();
        assert!(after.find("META").is_some());
        assert!(after.find("STATE").is_some() || !whole);
    }
}

#[test]
fn malformed_partition_tables_are_errors() {
    let mut blank = Cursor::new(vec![0; 1 << 20]);
    Table::read(&mut blank).unwrap_err();
    Table::read(&mut Cursor::new(Vec::new())).unwrap_err();
    // Every size in the header, then every byte of it.
    let good = disk(16 * MIB);
    for at in 512..604 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad.get_mut()[at] = value;
            if let Ok(table) = Table::read(&mut bad) {
                assert!(table.find("META").is_some());
            }
        }
    }
    // The disk is shorter than the table says.
    let mut short = disk(16 * MIB);
    short.get_mut().truncate(1 << 20);
    Table::read(&mut short).unwrap_err();
}

/// The checksum of UEFI (section 5.3.2; ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

/// A disk of 4 MiB with a sample's table for this sector size, as the first or the last copy. The checksums are
/// correct, as an attacker would make them.
fn disk_of(sample: &[u8], sector: usize, at_end: bool) -> Cursor<Vec<u8>> {
    const LENGTH: usize = 4 << 20;
    let mut disk = vec![0; LENGTH];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in disk.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(0, &sample[..sample.len().min(512)]);
    put(2 * sector, sample.get(1024..).unwrap_or_default());
    let mut header = sample.get(512..).unwrap_or_default().to_vec();
    header.resize(92, 0);
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let entries = u64::from_le_bytes(header[72..80].try_into().unwrap());
    let start = usize::try_from(entries).unwrap().checked_mul(sector);
    let length = usize::try_from(number(80)).unwrap() * 128;
    let end = start.and_then(|start| start.checked_add(length));
    let array = start.zip(end).and_then(|(start, end)| disk.get(start..end));
    if let Some(array) = array {
        header[88..92].copy_from_slice(&crc32(array).to_le_bytes());
    }
    header[16..20].fill(0);
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    let at = if at_end { LENGTH - sector } else { sector };
    disk[at..at + 92].copy_from_slice(&header);
    Cursor::new(disk)
}

#[test]
fn impossible_partition_table_is_refused_with_a_reason() {
    let good = sample("gpt", "two");
    let names = |table: Table| {
        let names = table.partitions().map(|(name, _)| name.to_owned());
        names.collect::<Vec<_>>()
    };
    for at_end in [false, true] {
        let table = Table::read(&mut disk_of(&good, 512, at_end)).unwrap();
        assert_eq!(names(table), ["META", "u-data"]);
    }
    let refusal = |table: &[u8]| {
        let error = Table::read(&mut disk_of(table, 512, false)).unwrap_err();
        assert!(is_impossible(&error), "{error}");
        error.to_string()
    };
    let why = refusal(&sample("gpt", "from-sector-zero"));
    assert!(why.contains("partition 1 at sector 0") && why.contains("wipe the disk"));
    // Offsets of the header's fields in the sample.
    for (at, value, what) in [
        (512 + 84, 64, "sizes"),
        (512 + 80, 100_000, "sizes"),
        (512 + 72, 9000, "entries at sector 9000"),
        (512 + 40, 3, "at sector 3, inside the table"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&i32::to_le_bytes(value));
        let why = refusal(&bad);
        assert!(why.contains(what), "{why}");
    }
    // The second copy is not read while the first is intact.
    let mut bad = good.clone();
    bad[512 + 40..512 + 44].copy_from_slice(&3_i32.to_le_bytes());
    let mut disk = disk_of(&good, 512, false);
    let end = disk.get_ref().len() - 512;
    disk.get_mut()[end..].copy_from_slice(&disk_of(&bad, 512, true).get_ref()[end..]);
    assert_eq!(names(Table::read(&mut disk).unwrap()), ["META", "u-data"]);
    disk.get_mut()[512..1024].fill(0);
    assert!(is_impossible(&Table::read(&mut disk).unwrap_err()));
    // A damaged table is not an impossible one.
    let mut damaged = disk_of(&good, 512, false);
    damaged.get_mut()[512 + 40] ^= 1;
    assert!(!is_impossible(&Table::read(&mut damaged).unwrap_err()));
}

proptest! {
    #[test]
    fn hostile_tables_never_panic(
        bytes in hostile("gpt"),
        sector in prop_oneof![Just(512), Just(4096)],
        at_end in any::<bool>(),
        number in 0..6_u32,
    ) {
        let mut disk = disk_of(&bytes, sector, at_end);
        let Ok(mut table) = Table::read(&mut disk) else {
            return Ok(());
        };
        let extents: Vec<Extent> = table.partitions().map(|(_, extent)| extent).collect();
        for extent in &extents {
            prop_assert!(extent.start + extent.length <= table.disk_length());
            table.grow(*extent, Some(MIB));
            prop_assert!(table.find_id(table.id(*extent)).is_some());
        }
        let made = table.append("u-data", TYPE_LINUX, None).ok();
        prop_assert!(made.is_none_or(|made| table.find_id(table.id(made)).is_some()));
        let _ = table.remove(number);
        table.individualize();
        write(&table, &mut disk);
        let left = Table::read(&mut disk).unwrap();
        prop_assert!(left.partitions().eq(table.partitions()));
    }
}
