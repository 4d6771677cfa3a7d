//! The content of a disk after a wipe.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt as _;

use gptman::{GPT, GPTPartitionEntry};

use super::super::reset::Target;
use super::super::table::{Marks, TYPE_LINUX};
use super::*;

/// Partitions of the smallest possible node disk: name, first MiB and length in MiB.
const PARTITIONS: [(&str, u64, u64); 6] = [
    ("EFI", 1, 2),
    ("BIOS", 3, 1),
    ("META", 4, 1),
    ("STATE", 5, 20),
    ("EPHEMERAL", 25, 18),
    ("u-data", 43, 17),
];
const LENGTH: u64 = 61 * MIB;
const SECTOR: u64 = 512;

/// Every partition is filled with one byte value.
fn node_disk() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut disk = file.reopen().unwrap();
    disk.set_len(LENGTH).unwrap();
    let mut gpt = GPT::new_from(&mut disk, SECTOR, [7; 16]).unwrap();
    for (number, (name, start, length)) in (1..).zip(PARTITIONS) {
        gpt[number] = GPTPartitionEntry {
            partition_type_guid: TYPE_LINUX.to_bytes_le(),
            unique_partition_guid: [u8::try_from(number).unwrap(); 16],
            starting_lba: start * MIB / SECTOR,
            ending_lba: (start + length) * MIB / SECTOR - 1,
            attribute_bits: 0,
            partition_name: name.into(),
        };
        let full = vec![0xa5; usize::try_from(length * MIB).unwrap()];
        disk.write_all_at(&full, start * MIB).unwrap();
    }
    gpt.write_into(&mut disk).unwrap();
    file
}

fn content(disk: &File, name: &str) -> Vec<u8> {
    let (_, start, length) = PARTITIONS.iter().find(|(one, ..)| *one == name).unwrap();
    let mut content = vec![0; usize::try_from(length * MIB).unwrap()];
    disk.read_exact_at(&mut content, start * MIB).unwrap();
    content
}

fn is_all(content: &[u8], byte: u8) -> bool {
    content == vec![byte; content.len()]
}

fn is_zero(content: &[u8]) -> bool {
    is_all(content, 0)
}

/// Writes like a disk without discard: only the required bytes.
fn write(disk: &mut File, part: Part) {
    write_zeros(disk, part.start, part.written).unwrap();
}

#[test]
fn power_cut_during_a_wipe_leaves_a_whole_node_or_no_secrets() {
    let whole = node_disk();
    let table = Table::read(&mut whole.reopen().unwrap()).unwrap();
    let order = parts(Some(&table), LENGTH);
    // A cut before every part, and in the middle of it.
    for cut in 0..=order.len() * 2 {
        let copy = tempfile::NamedTempFile::new().unwrap();
        fs::copy(whole.path(), copy.path()).unwrap();
        let mut disk = copy.reopen().unwrap();
        for part in &order[..cut / 2] {
            write(&mut disk, *part);
        }
        if let Some(torn) = order.get(cut / 2)
            && cut % 2 == 1
        {
            let half = torn.written / 2 / SECTOR * SECTOR;
            write(&mut disk, Part::whole(torn.start, half));
        }
        let untouched = |name: &str| is_all(&content(&disk, name), 0xa5);
        let boots = STARTED_FROM.iter().all(|name| untouched(name));
        let mut start = vec![0; usize::try_from(MIB).unwrap()];
        disk.read_exact_at(&mut start, 0).unwrap();
        let has_table = !is_zero(&start);
        let secrets = SECRET.iter().any(|name| !is_zero(&content(&disk, name)));
        if secrets {
            assert!(boots && has_table, "cut {cut}");
        }
        // The first byte of a recognizable volume goes first.
        let begun = !untouched("EPHEMERAL");
        assert!(!begun || content(&disk, "EPHEMERAL")[0] == 0, "cut {cut}");
    }
}

#[test]
fn wiped_disk_holds_no_node_data() {
    for forgets_by_itself in [true, false] {
        let file = node_disk();
        if forgets_by_itself {
            system_disk(0, file.path(), &|| ()).unwrap();
        } else {
            let mut disk = file.reopen().unwrap();
            let table = Table::read(&mut disk).unwrap();
            for part in parts(Some(&table), LENGTH) {
                write(&mut disk, part);
            }
        }
        let mut disk = file.reopen().unwrap();
        assert_eq!(disk.metadata().unwrap().len(), LENGTH);
        Table::read(&mut disk).unwrap_err();
        for name in SECRET.iter().chain(&STARTED_FROM) {
            assert!(is_zero(&content(&disk, name)), "{name}");
        }
        let beginning = usize::try_from(WIPED).unwrap();
        for name in ["EPHEMERAL", "u-data"] {
            let content = content(&disk, name);
            assert!(is_zero(&content[..beginning]), "{name}");
            assert_eq!(is_zero(&content), forgets_by_itself, "{name}");
        }
    }
}

#[test]
fn disk_without_a_table_is_not_wiped_as_a_system_disk() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![0xa5; 40 << 20]).unwrap();
    system_disk(0, file.path(), &|| ()).unwrap_err();
    assert!(!is_zero(&fs::read(file.path()).unwrap()));
    other_disk(0, file.path(), &|| ()).unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()));
    // The file is shorter than the usual part.
    fs::write(file.path(), [0xa5; 700]).unwrap();
    other_disk(0, file.path(), &|| ()).unwrap();
    assert_eq!(fs::read(file.path()).unwrap(), [0; 700]);
    for missing in [other_disk, system_disk] {
        missing(0, Path::new("/no/such/device"), &|| ()).unwrap_err();
    }
}

#[test]
fn wiped_partition_is_zeroed_and_keeps_its_length() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![0xa5; 19 << 20]).unwrap();
    let signs = Cell::new(0);
    partition(0, file.path(), true, &|| signs.set(signs.get() + 1)).unwrap();
    assert_eq!(signs.get(), 2);
    assert!(fs::read(file.path()).unwrap() == vec![0; 19 << 20]);
    partition(0, Path::new("/no/such/device"), true, &|| ()).unwrap_err();
}

#[test]
fn wipe_covers_the_requested_extent() {
    let wipe = |file: &tempfile::NamedTempFile, zeros, partition_of| {
        let device = file.path().to_str().unwrap().to_owned();
        let wipe = DeviceWipe {
            device,
            partition_of,
            sequence: 0,
            zeros,
            drop_partition: false,
        };
        wipe.carry_out().unwrap();
        file.reopen().unwrap()
    };
    let whole = node_disk();
    let mut ends = DeviceWipe {
        device: whole.path().to_str().unwrap().to_owned(),
        partition_of: None,
        sequence: 0,
        zeros: false,
        drop_partition: false,
    };
    assert_eq!(ends.ends().len(), PARTITIONS.len());
    ends.partition_of = Some((ends.device.clone(), 4));
    assert!(ends.ends().is_empty(), "it stays in the table");
    assert_eq!(ends.emptied(), [Uuid::from_bytes_le([4; 16])]);
    ends.drop_partition = true;
    assert_eq!(ends.ends(), [Uuid::from_bytes_le([4; 16])]);
    let mut disk = wipe(&whole, false, None);
    Table::read(&mut disk).unwrap_err();
    for (name, ..) in PARTITIONS {
        assert_eq!(content(&disk, name)[0], 0, "{name}");
    }
    assert!(!is_zero(&content(&disk, "STATE")));
    let zeroed = wipe(&node_disk(), true, None);
    for (name, ..) in PARTITIONS {
        assert!(is_zero(&content(&zeroed, name)), "{name}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let carrier = node_disk();
    let name = carrier.path().to_str().unwrap();
    let disk = Disk::new(name, 0);
    let are_made = || [3, 4].map(|number| made::marks(&disk, number).unwrap());
    for (zeros, left) in [(false, 0xa5), (true, 0)] {
        for number in [3, 4] {
            made::remember("STATE", &disk, number, number == 4);
        }
        fs::write(file.path(), vec![0xa5; 40 << 20]).unwrap();
        let made = Marks {
            is_made: true,
            is_encrypted: false,
        };
        let encrypted = Marks {
            is_encrypted: true,
            ..made
        };
        assert_eq!(are_made(), [made, encrypted]);
        wipe(&file, zeros, Some((name.to_owned(), 4)));
        // Only this partition may be made anew.
        assert_eq!(are_made(), [made, Marks::default()]);
        let content = fs::read(file.path()).unwrap();
        assert!(is_zero(&content[..16 << 20]) && is_zero(&content[39 << 20..]));
        assert!(is_all(&content[16 << 20..39 << 20], left));
    }
}

#[test]
fn whole_disk_volume_is_wiped_with_its_content() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let disk = file.as_file();
    disk.set_len(40 * MIB).unwrap();
    disk.write_all_at(b"XFSB", 0).unwrap();
    disk.write_all_at(&[7; 16], 32).unwrap();
    disk.write_all_at(b"u-data", 108).unwrap();
    disk.write_all_at(&[0xa5; 9], 40 * MIB - 9).unwrap();
    let name = file.path().to_str().unwrap();
    let wipe = DeviceWipe {
        device: name.to_owned(),
        partition_of: None,
        sequence: 0,
        zeros: false,
        drop_partition: false,
    };
    assert_eq!(wipe.ends(), [Uuid::from_bytes([7; 16])]);
    let reset = Target::Disk(Disk::new(name, 0));
    assert_eq!(reset.ends(), wipe.ends());
    let copy = fs::read(file.path()).unwrap();
    wipe.carry_out().unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()) && wipe.ends().is_empty());
    fs::write(file.path(), copy).unwrap();
    reset.empty(&|| ()).unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()) && reset.ends().is_empty());
}

#[test]
fn replaced_disk_with_the_same_name_is_not_wiped() {
    let file = node_disk();
    let before = fs::read(file.path()).unwrap();
    let wipe = |sequence| DeviceWipe {
        device: file.path().to_str().unwrap().to_owned(),
        partition_of: None,
        sequence,
        zeros: true,
        drop_partition: false,
    };
    wipe(7).carry_out().unwrap_err();
    assert!(wipe(7).ends().is_empty());
    let mut dropped = wipe(7);
    dropped.partition_of = Some((dropped.device.clone(), 4));
    dropped.drop_partition = true;
    dropped.carry_out().unwrap_err();
    for empty in [other_disk, system_disk] {
        empty(7, file.path(), &|| ()).unwrap_err();
    }
    partition(7, file.path(), true, &|| ()).unwrap_err();
    assert!(fs::read(file.path()).unwrap() == before);
    wipe(0).carry_out().unwrap();
    assert!(is_zero(&fs::read(file.path()).unwrap()));
}
