use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::esp::Content;

const UNIT: usize = 512;
const LENGTH: u64 = 700 << 20;
const STATE: &[u8] = b"the machine config";

/// An operation on the disk.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, Rc<[u8]>),
    Sync,
}

/// A disk in memory that records each operation. Bytes that were never written are zero.
#[derive(Debug, Clone, Default)]
struct Memory {
    sectors: BTreeMap<u64, Rc<[u8; UNIT]>>,
    at: u64,
    steps: Vec<Step>,
}

impl Memory {
    fn apply(&mut self, mut at: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (number, inner) = (at / UNIT as u64, usize::try_from(at).unwrap() % UNIT);
            let count = data.len().min(UNIT - inner);
            let (now, rest) = data.split_at(count);
            let mut sector = self.sectors.get(&number).map_or([0; UNIT], |one| **one);
            sector[inner..inner + count].copy_from_slice(now);
            if sector.iter().all(|byte| *byte == 0) {
                self.sectors.remove(&number);
            } else {
                self.sectors.insert(number, Rc::new(sector));
            }
            (at, data) = (at + count as u64, rest);
        }
    }
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(LENGTH.saturating_sub(self.at)).unwrap();
        let inner = usize::try_from(self.at).unwrap() % UNIT;
        let count = buffer.len().min(left).min(UNIT - inner);
        let sector = self.sectors.get(&(self.at / UNIT as u64));
        let sector = sector.map_or([0; UNIT], |one| **one);
        buffer[..count].copy_from_slice(&sector[inner..inner + count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        assert!(self.at + data.len() as u64 <= LENGTH, "behind the end");
        self.apply(self.at, data);
        // Adjacent runs of zeros count as one step: clearing the file allocation tables takes thousands.
        match self.steps.last_mut() {
            Some(Step::Write(at, before))
                if *at + before.len() as u64 == self.at && is_zero(before) && is_zero(data) =>
            {
                *before = [&**before, data].concat().into();
            }
            _ => self.steps.push(Step::Write(self.at, data.into())),
        }
        self.at += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Memory {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => LENGTH.checked_add_signed(by).unwrap(),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

impl Disk for Memory {
    fn sync(&mut self) -> io::Result<()> {
        self.steps.push(Step::Sync);
        Ok(())
    }

    fn forget(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|byte| *byte == 0)
}

fn files() -> Vec<FatFile> {
    let image: Vec<u8> = (0..40_000_u32)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect();
    vec![
        (
            "EFI/BOOT/BOOTX64.EFI".to_owned(),
            Content::Bytes(b"systemd-boot".to_vec()),
        ),
        (
            "EFI/Linux/corten-1.0+3.efi".to_owned(),
            Content::Bytes(image),
        ),
        (
            "loader/loader.conf".to_owned(),
            Content::Bytes(esp::LOADER_CONF.into()),
        ),
    ]
}

fn plan() -> Plan {
    let content = esp::content_of(&files()).unwrap();
    Plan::new(
        (LENGTH, 512),
        (content, 40_000),
        Some(("STATE", 2 << 20)),
        0,
    )
    .unwrap()
    .with_grub(&code())
}

fn code() -> Code {
    Code::new(vec![7; crate::grub::BOOT_CODE], vec![8; 3000 / UNIT * UNIT]).unwrap()
}

fn ids() -> Ids {
    Ids {
        disk: Uuid::from_u128(1),
        partitions: (2..6).map(Uuid::from_u128).collect(),
    }
}

fn meta() -> corten_meta::Values {
    [(corten_meta::Tag::new(0x4d).unwrap(), b"kept".to_vec())].into()
}

/// The whole installation in machined's order: machined writes the machine config to STATE before the partition table.
fn install(disk: &mut Memory) -> io::Result<()> {
    let plan = plan();
    plan.begin(disk)?;
    plan.write(disk, &files(), &meta(), 7)?;
    let state = plan.partitions().last().unwrap();
    disk.seek(SeekFrom::Start(state.start))?;
    disk.write_all(STATE)?;
    disk.sync()?;
    plan.finish(disk, &ids(), 1 << 48, false)
}

fn bytes(disk: &mut Memory, start: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    disk.seek(SeekFrom::Start(start)).unwrap();
    disk.read_exact(&mut bytes).unwrap();
    bytes
}

/// Whether firmware and kernel find a complete system on the disk. Panics if they find a partial one.
fn starts(disk: &mut Memory) -> bool {
    let first = bytes(disk, 0, UNIT);
    if first[450] != 0xee || !first.ends_with(&[0x55, 0xaa]) {
        return false;
    }
    let table = GPT::find_from(disk).expect("a table behind its MBR");
    let part = |name: &str| {
        let mut parts = table.iter().map(|(_, entry)| entry);
        let part = parts.find(|entry| entry.partition_name.as_str() == name);
        let part = part.unwrap_or_else(|| panic!("no {name}"));
        let end = (part.ending_lba + 1) * 512;
        (part.starting_lba * 512, end - part.starting_lba * 512)
    };
    for (path, content) in files() {
        let Content::Bytes(meant) = content else {
            continue;
        };
        let mut found = Vec::new();
        let take = |chunk: &[u8]| {
            found.extend_from_slice(chunk);
            Ok(())
        };
        esp::read(disk, part("EFI"), &path, take).unwrap();
        assert!(found == meant, "{path} is whole");
    }
    let bios = part("BIOS").0;
    let (boot, core) = code().placed(bios / 512);
    assert!(first.starts_with(&boot), "the boot code is whole");
    assert!(bytes(disk, bios, core.len()) == core, "GRUB is whole");
    let values = bytes(disk, part("META").0, 512 << 10);
    assert_eq!(corten_meta::decode(&values), Some(meta()));
    assert_eq!(bytes(disk, part("STATE").0, STATE.len()), STATE);
    true
}

/// Disks that a power cut within the last unsynced step may leave on top of `durable`. They have none of the open
/// steps, all, all but the first, or the last one torn in its middle, in either direction. `all` is the disk after all
/// steps but the last.
fn left(durable: &Memory, all: &Memory, open: &[Step]) -> Vec<Memory> {
    let Some(Step::Write(at, data)) = open.last() else {
        return vec![durable.clone()];
    };
    let half = data.len() / 2;
    let with = |at: u64, data: &[u8]| {
        let mut disk = all.clone();
        disk.apply(at, data);
        disk
    };
    let mut disks = vec![
        with(*at, data),
        with(*at, &data[..half]),
        with(*at + half as u64, &data[half..]),
    ];
    // Long runs of writes belong to one file. Their order is irrelevant before the table exists.
    if (2..=FEW).contains(&open.len()) {
        let mut disk = durable.clone();
        for step in &open[1..] {
            if let Step::Write(at, data) = step {
                disk.apply(*at, data);
            }
        }
        disks.push(disk);
    }
    disks
}

/// Largest number of unsynced writes that the test reorders.
const FEW: usize = 200;
/// Number of power cuts that the test below replays; docs/promises.md names it.
const CUTS: usize = 772;

#[test]
fn power_cut_during_an_installation_leaves_a_bootable_or_reinstallable_disk() {
    let mut whole = Memory::default();
    install(&mut whole).unwrap();
    assert!(starts(&mut whole));
    assert_eq!(found(&mut whole, LENGTH).unwrap(), Found::Something);
    let steps = std::mem::take(&mut whole.steps);
    let (mut cuts, mut started, mut again) = (0, 0, 0);
    let mut durable = Memory::default();
    let mut all = Memory::default();
    let mut since = 0;
    for (number, step) in steps.iter().enumerate() {
        for mut disk in left(&durable, &all, &steps[since..=number]) {
            cuts += 1;
            if starts(&mut disk) {
                started += 1;
                continue;
            }
            let state = found(&mut disk, LENGTH).unwrap();
            assert_ne!(state, Found::Something, "in step {number}");
            again += 1;
            if again % 200 == 1 {
                install(&mut disk).unwrap();
                assert!(starts(&mut disk), "installed again after step {number}");
            }
        }
        match step {
            Step::Write(at, data) => all.apply(*at, data),
            Step::Sync => {
                durable = all.clone();
                since = number + 1;
            }
        }
    }
    assert!(started > 0 && again > 0);
    assert_eq!(cuts, CUTS);
}

#[test]
fn metadata_at_any_usual_offset_marks_a_disk_as_used() {
    assert_eq!(
        found(&mut Memory::default(), LENGTH).unwrap(),
        Found::Nothing
    );
    // An MBR, an LVM label, superblocks of ext4 and btrfs, a backup partition table, RAID.
    for at in [440, 512, 1080, 65600, LENGTH - 512, LENGTH - 65536] {
        let mut disk = Memory::default();
        disk.apply(at, b"x");
        assert_eq!(found(&mut disk, LENGTH).unwrap(), Found::Something, "{at}");
    }
}

#[test]
fn disk_that_is_too_small_is_refused_with_both_sizes() {
    let plan = |length| Plan::new((length, 512), (50 << 20, 50 << 20), None, 1 << 30);
    let needs = plan(1 << 20).unwrap_err().needs;
    plan(needs).unwrap();
    let error = plan(needs - 1).unwrap_err().to_string();
    assert!(error.contains(&needs.to_string()), "{error}");
    assert!(error.contains(&(needs - 1).to_string()), "{error}");
}

#[test]
fn disk_that_returns_other_bytes_is_an_error() {
    let mut disk = Memory::default();
    let plan = plan();
    plan.begin(&mut disk).unwrap();
    plan.write(&mut disk, &files(), &meta(), 7).unwrap();
    let whole = disk.sectors.clone();
    let image = whole
        .iter()
        .find(|(_, sector)| sector.starts_with(&[0, 1, 2, 3, 4, 5]))
        .map(|(number, _)| *number)
        .unwrap();
    disk.apply(image * 512 + 100, b"another");
    let error = plan.read_back(&mut disk, &files()).unwrap_err().to_string();
    assert!(error.contains("corten-1.0+3.efi"), "{error}");
    disk.sectors = whole;
    plan.read_back(&mut disk, &files()).unwrap();
    let bios = plan.partitions().iter().find(|part| part.label == "BIOS");
    disk.apply(bios.unwrap().start + 1000, b"another");
    let error = plan.read_back(&mut disk, &files()).unwrap_err().to_string();
    assert!(error.contains("of GRUB"), "{error}");
}

#[test]
fn only_a_disk_with_sectors_of_bios_gets_boot_code_and_the_active_mark_is_optional() {
    for (sector, is_active, status) in [(512, false, 0), (512, true, 0x80), (4096, true, 0x80)] {
        let mut disk = Memory::default();
        let plan = Plan::new((LENGTH, sector), (1 << 20, 1 << 19), None, 0).unwrap();
        let plan = plan.with_grub(&code());
        plan.begin(&mut disk).unwrap();
        plan.write(&mut disk, &files(), &meta(), 7).unwrap();
        plan.finish(&mut disk, &ids(), 0, is_active).unwrap();
        let first = bytes(&mut disk, 0, UNIT);
        let bios = plan.partitions()[1].start;
        let has_code = sector == 512;
        assert_eq!(first[0] != 0, has_code);
        assert_eq!(bytes(&mut disk, bios, 1)[0] != 0, has_code);
        assert_eq!((first[446], first[450]), (status, 0xee));
    }
}
