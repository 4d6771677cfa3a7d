//! Partitions planned, made, found again and grown.

use std::io::Cursor;

use super::*;

const LENGTH: usize = 64 << 20;

fn empty() -> Cursor<Vec<u8>> {
    Cursor::new(vec![0; LENGTH])
}

fn wish(label: &str) -> Wish<'_> {
    Wish {
        label,
        id: None,
        kind: TYPE_LINUX,
        least: 8 * MIB,
        most: Some(MaxSize::Bytes(20 * MIB)),
        grow: false,
    }
}

fn make(disk: &mut Cursor<Vec<u8>>, wish: &Wish<'_>) -> Plan {
    let plan = Plan::on(disk, 512, wish).unwrap();
    plan.carry_out(disk, |_| Ok(())).unwrap();
    plan
}

fn refusal(disk: &mut Cursor<Vec<u8>>, wish: &Wish<'_>) -> String {
    let before = disk.get_ref().clone();
    let why = Plan::on(disk, 512, wish).unwrap_err().to_string();
    assert!(before == *disk.get_ref());
    why
}

#[test]
fn empty_disk_gets_a_table_and_its_partitions_are_found_again() {
    for sector in [512, 4096] {
        let mut disk = empty();
        let first = Plan::on(&mut disk, sector, &wish("u-a")).unwrap();
        first.carry_out(&mut disk, |_| Ok(())).unwrap();
        assert_eq!(first.change, Change::New);
        assert_eq!((first.extent.start, first.extent.length), (MIB, 20 * MIB));
        let second = make(&mut disk, &wish("r-b"));
        assert_eq!((second.extent.number, second.extent.start), (2, 21 * MIB));
        let again = Plan::on(&mut disk, sector, &wish("u-a")).unwrap();
        assert_eq!((again.change, again.extent), (Change::None, first.extent));
        assert!(!again.writes());
        // Without it the kernel reads no table.
        assert_eq!(disk.get_ref()[450], 0xee);
        assert_eq!(disk.get_ref()[510..512], [0x55, 0xaa]);
    }
}

#[test]
fn new_partition_erases_old_signatures_in_its_own_range_only() {
    let mut disk = empty();
    make(&mut disk, &wish("u-a"));
    disk.get_mut()[usize::try_from(2 * MIB).unwrap()] = 7;
    disk.get_mut()[usize::try_from(22 * MIB).unwrap()] = 7;
    make(&mut disk, &wish("u-b"));
    assert_eq!(disk.get_ref()[usize::try_from(2 * MIB).unwrap()], 7);
    assert_eq!(disk.get_ref()[usize::try_from(22 * MIB).unwrap()], 0);
}

#[test]
fn partition_size_limits_are_enforced() {
    let mut disk = empty();
    let half = Wish {
        most: Some(MaxSize::Percent(50)),
        ..wish("u-a")
    };
    assert_eq!(make(&mut disk, &half).extent.length, 31 * MIB);
    let too_large = Wish {
        least: 40 * MIB,
        most: None,
        ..wish("u-b")
    };
    let why = refusal(&mut disk, &too_large);
    assert_eq!(why, "it has 31 MiB for the volume, and 40 are needed");
    let larger_than_any = Wish {
        least: u64::MAX,
        most: None,
        ..wish("u-b")
    };
    refusal(&mut disk, &larger_than_any);
    let rest = Wish {
        most: None,
        ..wish("u-b")
    };
    assert_eq!(make(&mut disk, &rest).extent.length, 31 * MIB);
    // It is not the last partition, and the disk is full.
    let grow = Wish {
        grow: true,
        most: None,
        ..wish("u-a")
    };
    assert!(!Plan::on(&mut disk, 512, &grow).unwrap().writes());
    disk.get_mut().resize(LENGTH * 2, 0);
    let grow = Wish {
        label: "u-b",
        ..grow
    };
    let grown = make(&mut disk, &grow);
    assert_eq!(
        (grown.change, grown.extent.length),
        (Change::Grown, 95 * MIB)
    );
    assert!(!Plan::on(&mut disk, 512, &grow).unwrap().writes());
}

#[test]
fn disk_with_content_is_refused() {
    // XFS, ext4, btrfs, an array member at the end, an MBR table.
    let contents: [(usize, &[u8]); 6] = [
        (0, b"XFSB"),
        (1080, &[0x53, 0xef]),
        (0x1_0040, b"_BHRfS_M"),
        (LENGTH - 8192, &[0xfc, 0x4e, 0x2b, 0xa9]),
        (LENGTH - (64 << 10), &[0xfc, 0x4e, 0x2b, 0xa9]),
        (450, &[0x83]),
    ];
    for (at, bytes) in contents {
        let mut disk = empty();
        disk.get_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        let why = refusal(&mut disk, &wish("u-a"));
        assert!(why.contains("it is not empty and"), "{why}");
    }
    let mut small = Cursor::new(vec![0; 1 << 20]);
    let why = refusal(&mut small, &wish("u-a"));
    assert!(why.contains("too small"), "{why}");
    Plan::on(&mut Cursor::new(vec![]), 512, &wish("u-a")).unwrap_err();
}

#[test]
fn partition_is_searched_on_disks_of_every_kind() {
    let found = |disk: &mut Cursor<Vec<u8>>| ids(disk, "u-a").unwrap();
    let mut disk = empty();
    assert!(found(&mut disk).is_empty(), "empty");
    disk.get_mut()[..4].copy_from_slice(b"XFSB");
    assert!(found(&mut disk).is_empty(), "a file system");
    let mut disk = empty();
    disk.get_mut()[450] = 0x83;
    disk.get_mut()[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert!(found(&mut disk).is_empty(), "a table of MBR");
    let mut disk = empty();
    let made = make(&mut disk, &wish("u-a"));
    make(&mut disk, &wish("u-b"));
    assert_eq!(found(&mut disk), [made.id]);
    // The id decides, not the name.
    let known = Wish {
        id: Some(made.id),
        ..wish("renamed")
    };
    let again = Plan::on(&mut disk, 512, &known).unwrap();
    assert_eq!((again.extent, again.id), (made.extent, made.id));
    // With both copies damaged, the table's content is unknown.
    disk.get_mut()[512..520].fill(0);
    disk.get_mut()[LENGTH - 512..LENGTH - 504].fill(0);
    ids(&mut disk, "u-a").unwrap_err();
    ids(&mut Cursor::new(vec![]), "u-a").unwrap_err();
}

#[test]
fn zero_check_covers_the_requested_range() {
    let mut disk = Cursor::new(vec![0; (1 << 20) + 9]);
    assert!(is_zero(&mut disk, 0, u64::MAX).unwrap());
    assert!(is_zero(&mut Cursor::new(vec![]), 0, 1).unwrap());
    disk.get_mut()[1 << 20] = 1;
    assert!(is_zero(&mut disk, 0, 1 << 20).unwrap());
    assert!(!is_zero(&mut disk, 0, (1 << 20) + 1).unwrap());
    assert!(is_zero(&mut disk, (1 << 20) + 1, MIB).unwrap());
}

#[test]
fn file_system_written_over_a_table_is_refused() {
    let mut disk = empty();
    make(&mut disk, &wish("u-a"));
    // mke2fs clears the first two sectors and writes its own; the copy at the end stays.
    disk.get_mut()[..2048].fill(0);
    disk.get_mut()[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let why = refusal(&mut disk, &wish("u-b"));
    assert!(why.contains("it is not empty and"), "{why}");
}

/// A disk that accepts so many bytes; each write is atomic.
struct Cut {
    disk: Cursor<Vec<u8>>,
    left: usize,
}

impl Write for Cut {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(data.len());
        self.left = left.ok_or_else(|| io::Error::other("power cut"))?;
        self.disk.write(data)
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

#[test]
fn partitioning_resumes_after_a_power_cut_at_any_write() {
    let small = Wish {
        least: MIB,
        most: Some(MaxSize::Bytes(MIB)),
        ..wish("r-a")
    };
    let before = Cursor::new(vec![0; 4 << 20]);
    let plan = Plan::on(&mut before.clone(), 512, &small).unwrap();
    let wiped = 1 << 20;
    // Two tables of 16.1 KiB and the first sector; the cut is past the initial wipe.
    let mut whole = 0;
    for left in (wiped..wiped + 33_600).step_by(61) {
        let mut cut = Cut {
            disk: before.clone(),
            left,
        };
        whole += usize::from(plan.carry_out(&mut cut, |_| Ok(())).is_ok());
        make(&mut cut.disk, &small);
        let again = Plan::on(&mut cut.disk, 512, &small).unwrap();
        assert!(!again.writes(), "{left}");
    }
    assert!(whole > 0);
}
