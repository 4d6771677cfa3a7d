//! Tables read, changed and written.

use std::io::Cursor;

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
fn a_power_cut_at_any_write_leaves_a_table() {
    // Every prefix of the sequence of writes, the last one torn.
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
fn what_is_no_table_is_an_error_and_no_panic() {
    let mut blank = Cursor::new(vec![0; 1 << 20]);
    Table::read(&mut blank).unwrap_err();
    Table::read(&mut Cursor::new(Vec::new())).unwrap_err();
    // Sizes in the header, then every byte of it.
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
    // Shorter than the table says.
    let mut short = disk(16 * MIB);
    short.get_mut().truncate(1 << 20);
    Table::read(&mut short).unwrap_err();
}
