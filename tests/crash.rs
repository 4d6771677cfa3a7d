//! Promise: a power cut at any write of an upgrade, its trial, its verdict or a rollback leaves the old or new version.
//!
//! QEMU records every write of an upgrade and a rollback. A model of the boot loader looks at every state of the EFI
//! partition after a cut, and QEMU starts a sample of them.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

/// The model of GRUB's next start, which `tests/grub.rs` compares with GRUB.
#[path = "../node/installer/src/grub_model.rs"]
#[expect(clippy::indexing_slicing, reason = "a wrong index is a failing test")]
mod grub_model;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use corten_image::fat;
use corten_installer::esp::Part;
use corten_installer::{Entry, Installed, first, grub};
use qemu::{Disk, DiskMode, Firmware};
use tests::node::{BOOT, Node, SOON};
use tests::write_log::{self, SECTOR, WriteLog};
use tests::{images, upgrades};

/// Place of the partition table, which an upgrade never writes to.
const TABLE: Range<u64> = 0..34 * SECTOR;
/// Machines that are started from states of the disk, unless `CASES` says otherwise.
const STARTS: usize = 200;

/// The record of the machine's run.
struct Recorded {
    firmware: Firmware,
    log: WriteLog,
    /// The entries between the call of the upgrade and the verdict on the rollback.
    entries: Range<usize>,
    /// The disk before the first entry.
    disk: PathBuf,
    configs: PathBuf,
}

fn open(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.expect("a disk of this test")
}

/// A machine upgrades, and rolls back.
fn record(firmware: Firmware) -> Recorded {
    let disk = upgrades::disk("crash.raw");
    let node = Node::start("crash", |machine| {
        let disk = Disk::raw(&disk).mode(DiskMode::Logged);
        machine.firmware(firmware).disk(disk).memory_mib(1024)
    });
    upgrades::prepare(&node);
    let log = qemu::log_of(&disk);
    let count = || WriteLog::open(&log).expect("a log").entries.len();
    let start = count();
    upgrades::upgrade(&node.admin(), "next", upgrades::UPGRADE).expect("an upgrade");
    upgrades::expect(&node, "0.2.0", "good");
    node.admin().must(&["rollback"]);
    upgrades::wait_for_version(&node, &images::version());
    upgrades::expect(&node, &images::version(), "good");
    let end = count();
    let configs = upgrades::path("crash.config");
    let _none = std::fs::remove_dir_all(&configs);
    std::fs::rename(node.configs(), &configs).expect("the configs");
    node.vm.kill();
    let log = WriteLog::open(&log).expect("a log");
    let disk = upgrades::disk("crash-replay.raw");
    let replayed = open(&disk);
    for entry in log.entries.iter().take(start) {
        log.apply_all(entry, &replayed).expect("a write");
    }
    Recorded {
        firmware,
        log,
        entries: start..end,
        disk,
        configs,
    }
}

/// The EFI partition of the disk, by `sfdisk`.
fn efi_partition(disk: &Path) -> Range<u64> {
    let mut command = std::process::Command::new("/sbin/sfdisk");
    let table = command.arg("--json").arg(disk).output().expect("sfdisk");
    let table: serde_json::Value = serde_json::from_slice(&table.stdout).expect("its table");
    let partitions = table.pointer("/partitiontable/partitions");
    let partitions = partitions.and_then(serde_json::Value::as_array);
    let mut partitions = partitions.into_iter().flatten();
    let efi = partitions.find(|partition| partition["name"] == "EFI");
    let number = |field: &str| efi.and_then(|efi| efi[field].as_u64()).expect("a number");
    let start = number("start") * SECTOR;
    start..start + number("size") * SECTOR
}

/// A disk, and the blocks of [`BLOCK`] bytes that were read from it.
struct Watched<'a> {
    disk: &'a File,
    read: &'a RefCell<BTreeSet<u64>>,
}

/// Size of a block, in bytes.
const BLOCK: u64 = 4096;

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.disk.stream_position()?;
        let count = self.disk.read(buffer)?;
        let end = at + u64::try_from(count).map_err(io::Error::other)?;
        self.read
            .borrow_mut()
            .extend(at / BLOCK..end.div_ceil(BLOCK));
        Ok(count)
    }
}

impl Seek for Watched<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.disk.seek(to)
    }
}

/// The model of firmware and boot loader: it knows the images that may start.
struct Model {
    firmware: Firmware,
    esp: Range<u64>,
    /// The whole images by version.
    whole: BTreeMap<String, Vec<u8>>,
    /// The blocks that the checks since the last flush have read: a write to others changes no result.
    read: RefCell<BTreeSet<u64>>,
    states: usize,
}

impl Model {
    /// Whether the entry changes what a check has read since the last flush.
    fn has_read(&self, entry: &write_log::Entry) -> bool {
        let blocks = entry.at / BLOCK..(entry.at + entry.length).div_ceil(BLOCK);
        self.read.borrow().range(blocks).next().is_some()
    }

    /// Asserts that the boot loader starts a whole image from the disk, and that its other choices are whole, too.
    fn check(&mut self, disk: &File, state: &str) {
        self.states += 1;
        // The boot loader sees no file under a temporary name.
        let of_grub = [grub::CONFIG, grub::BLOCK].map(of_grub);
        let is_read = |path: &str| {
            of_grub.iter().any(|file| file == path)
                || name_of(path).and_then(Entry::parse).is_some()
        };
        let read = &self.read;
        let mut disk = Watched { disk, read };
        let files = fat::list(part(&mut disk, &self.esp), is_read);
        let files = files.unwrap_or_else(|error| panic!("{state}: the EFI partition: {error}"));
        let files: BTreeMap<String, Vec<u8>> = files
            .into_iter()
            .filter_map(|file| Some((file.path, file.content?)))
            .collect();
        let images = files.iter().filter_map(|(path, content)| {
            let entry = Entry::parse(name_of(path)?)?;
            Some((entry, content)).filter(|_| !content.is_empty())
        });
        let installed = images.map(|(entry, content)| {
            let whole = self.whole.iter().find(|(_, whole)| *whole == content);
            let version = whole.map_or_else(|| damaged_version(content), |(name, _)| name.clone());
            (Installed { entry, version }, whole.is_some())
        });
        let (installed, whole): (Vec<Installed>, Vec<bool>) = installed.unzip();
        let chosen = match self.firmware {
            Firmware::Bios => first_of_grub(&files, &installed),
            _ => first(&installed),
        };
        let chosen = chosen.unwrap_or_else(|| panic!("{state}: no image: {installed:?}"));
        let at = installed.iter().position(|one| one == chosen);
        let is_whole = at.and_then(|at| whole.get(at)).copied();
        assert!(
            is_whole == Some(true),
            "{state}: {chosen:?} starts, and is damaged: {installed:?}"
        );
        let others = whole.iter().filter(|whole| **whole).count();
        assert!(
            chosen.entry.counter.is_none() || others > 1,
            "{state}: {chosen:?} is on trial, with no version to return to: {installed:?}"
        );
    }
}

/// The path of a file of GRUB.
fn of_grub(name: &str) -> String {
    format!("{}/{name}", grub::DIRECTORY)
}

/// The version that GRUB starts.
fn first_of_grub<'a>(
    files: &BTreeMap<String, Vec<u8>>,
    installed: &'a [Installed],
) -> Option<&'a Installed> {
    let file = |name: &str| files.get(&of_grub(name));
    let config = String::from_utf8_lossy(file(grub::CONFIG)?);
    let mut block = file(grub::BLOCK).cloned().unwrap_or_default();
    let images = files.iter().filter_map(|(path, content)| {
        let name = name_of(path)?;
        Some((name.to_owned(), content.clone()))
    });
    let (name, _) = grub_model::start(&config, &mut block, &images.collect())?;
    let entry = Entry::parse(&name)?;
    installed.iter().find(|one| one.entry == entry)
}

fn part<'a, D: Seek>(disk: &'a mut D, range: &Range<u64>) -> Part<'a, D> {
    Part::new(disk, range.start, range.end - range.start)
}

/// The name of a file in `EFI/Linux`.
fn name_of(path: &str) -> Option<&str> {
    path.strip_prefix("EFI/Linux/")
}

/// The version that the boot loader reads in a damaged image; empty when it finds none.
fn damaged_version(content: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), content).expect("a file");
    corten_installer::version(file.path()).unwrap_or_default()
}

/// The images of the versions, as a finished upgrade left them on the disk.
fn images_on(disk: &Path, esp: &Range<u64>) -> BTreeMap<String, Vec<u8>> {
    let is_image = |path: &str| name_of(path).is_some();
    let files = fat::list(part(&mut open(disk), esp), is_image);
    let contents = files.expect("the EFI partition").into_iter();
    let contents = contents.filter_map(|file| file.content);
    let versions = contents.map(|content| (damaged_version(&content), content));
    versions.filter(|(name, _)| !name.is_empty()).collect()
}

/// A change of the EFI partition that may be undone.
struct Undo {
    at: u64,
    bytes: Vec<u8>,
}

impl Undo {
    fn of(entry: &write_log::Entry, disk: &File) -> Undo {
        let length = usize::try_from(entry.length).expect("a length");
        let mut bytes = vec![0; length];
        disk.read_exact_at(&mut bytes, entry.at)
            .expect("what the disk has");
        Undo {
            at: entry.at,
            bytes,
        }
    }

    fn run(self, disk: &File) {
        disk.write_all_at(&self.bytes, self.at)
            .expect("the bytes of before");
    }
}

/// Checks every state of the EFI partition that a power cut may leave: all writes so far; the writes since the last
/// flush without their first, and the last of them alone; the last one torn in its middle, in either direction.
///
/// A write to blocks that no check since the last flush has read leaves all results as they are.
fn check_every_cut(recorded: &Recorded, model: &mut Model) {
    let disk = open(&recorded.disk);
    let log = &recorded.log;
    model.check(&disk, "before the upgrade");
    let mut pending: Vec<write_log::Entry> = Vec::new();
    for (number, entry) in log.entries.iter().enumerate() {
        if number < recorded.entries.start || number >= recorded.entries.end {
            continue;
        }
        assert!(!entry.touches(&TABLE), "a write to the partition table");
        if entry.is_flush && !pending.is_empty() {
            let changes = pending.iter().any(|entry| model.has_read(entry));
            for entry in pending.drain(..) {
                log.apply_all(&entry, &disk).expect("a write");
            }
            if changes {
                model.read.take();
                model.check(&disk, &format!("write {number}, all before are durable"));
            }
        }
        if !entry.touches(&model.esp) {
            continue;
        }
        pending.push(*entry);
        if !model.has_read(entry) {
            continue;
        }
        let all = 0..pending.len();
        let last = all.end - 1;
        let sectors = entry.length / SECTOR;
        let mut states = vec![("all writes", all.clone(), 0..sectors)];
        if last > 0 {
            states.push(("all but the first", 1..all.end, 0..sectors));
            states.push(("the last alone", last..all.end, 0..sectors));
        }
        if sectors > 1 {
            states.push(("the last without its end", all.clone(), 0..sectors / 2));
            states.push(("the last without its begin", all, sectors / 2..sectors));
        }
        for (state, which, of_last) in states {
            let mut undo = Vec::new();
            for at in which {
                let Some(one) = pending.get(at) else { continue };
                undo.push(Undo::of(one, &disk));
                let part = if at == last {
                    of_last.clone()
                } else {
                    0..one.length / SECTOR
                };
                log.apply(one, part, &disk).expect("a write");
            }
            model.check(&disk, &format!("write {number}, {state}"));
            for one in undo.into_iter().rev() {
                one.run(&disk);
            }
        }
    }
}

/// Starts machines from states of the whole disk, spread evenly over the writes.
fn start_a_sample(recorded: &Recorded, disk: &Path) {
    let cases = std::env::var("CASES").ok();
    let cases = cases.map_or(STARTS, |cases| cases.parse().expect("CASES is a number"));
    let entries = &recorded.entries;
    let replayed = open(disk);
    let mut applied = 0;
    for case in 0..cases {
        let cut = entries.start + entries.len() * case / cases;
        let open = recorded.log.entries.iter().enumerate();
        for (number, entry) in open.take(cut).skip(applied) {
            recorded.log.apply_all(entry, &replayed).expect("a write");
            applied = number + 1;
        }
        let node = Node::start("crash-start", |machine| {
            let disk = Disk::raw(disk).mode(DiskMode::Overlay);
            machine
                .firmware(recorded.firmware)
                .disk(disk)
                .memory_mib(1024)
        });
        let node = node.with_configs(recorded.configs.clone());
        let release = node.ask(&node.admin(), &["read", "/etc/os-release"], BOOT);
        let version = |version: &str| release.contains(&format!("IMAGE_VERSION=\"{version}\""));
        assert!(
            version("0.2.0") || version(&images::version()),
            "write {cut}: {release}"
        );
        let meta = node.ask(&node.admin(), &["get", "meta", "-o", "yaml"], SOON);
        assert!(meta.contains(upgrades::KEPT), "write {cut}: {meta}");
        eprintln!("write {cut} of {entries:?}: a node with its config and data");
    }
}

fn power_is_cut_at_every_write(firmware: Firmware) {
    let recorded = record(firmware);
    let esp = efi_partition(&recorded.disk);
    let mut model = Model {
        firmware,
        whole: images_on(&upgrades::path("crash.raw"), &esp),
        esp,
        read: RefCell::default(),
        states: 0,
    };
    assert_eq!(model.whole.len(), 2, "the old image and the new one");
    let sample = upgrades::disk("crash-sample.raw");
    check_every_cut(&recorded, &mut model);
    eprintln!("{} states of the EFI partition start", model.states);
    assert!(model.states > 100, "a recorded upgrade has many writes");
    start_a_sample(&recorded, &sample);
}

#[test]
#[ignore = "make test-crash"]
fn power_cut_at_any_write_of_an_upgrade_leaves_a_version_that_starts() {
    power_is_cut_at_every_write(Firmware::Uefi);
}

#[test]
#[ignore = "make test-crash"]
fn power_cut_at_any_write_of_an_upgrade_with_bios_leaves_a_version_that_starts() {
    power_is_cut_at_every_write(Firmware::Bios);
}
