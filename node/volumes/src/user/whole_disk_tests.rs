//! Whole disks taken, marked, found again and left alone; a file stands in for a disk.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use corten_base::sample;
use corten_base::testing::skip;
use corten_luks::{Cost, Device, Luks, LuksError};
use corten_types::block;
use tempfile::TempDir;
use tokio::runtime::Builder;
use uuid::Uuid;

use super::*;
use crate::disk::{Content, content};
use crate::encryption;
use crate::table::{TYPE_LINUX, Table};
use crate::user::look::look;
use crate::user::partition;
use crate::user::signature::{XFS_LABEL, label};
use crate::user::{Kind, wanted};

const LENGTH: u64 = 400 * MIB;
/// The cheapest key derivation.
const CHEAP: Cost = Cost {
    memory: 32,
    time: 1,
    lanes: 1,
};

/// The disks of a machine.
struct Disks(TempDir);

impl Disks {
    fn new() -> Disks {
        Disks(tempfile::tempdir().unwrap())
    }

    /// Adds an empty disk.
    fn add(&self, name: &str, length: u64) -> File {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path(name))
            .unwrap();
        file.set_len(length).unwrap();
        file
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// All disks, sorted by name, without any detected content.
    fn facts(&self) -> Facts {
        let all = fs::read_dir(self.0.path()).unwrap();
        let mut paths: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let disk = |path: &PathBuf| block::Disk {
            dev_path: path.display().to_string(),
            size: fs::metadata(path).unwrap().len(),
            ..block::Disk::default()
        };
        Facts {
            disks: paths.iter().map(disk).collect(),
            ..Facts::default()
        }
    }

    fn find_or_take(&self, volume: &UserVolume) -> Result<String, Trouble> {
        let Kind::Disk(disk) = &volume.kind else {
            panic!("{volume:?}");
        };
        let (facts, own) = (self.facts(), volume.clone());
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let seen = runtime.block_on(look(&facts, move |disk| ids(&own, &disk)));
        let held = find_or_take(volume, disk, &facts, &seen)?;
        let device = held.disk.device();
        Ok(device.file_name().unwrap().to_str().unwrap().to_owned())
    }
}

fn volume(name: &str) -> UserVolume {
    let text = format!(
        "UserVolumeConfig\nname: {name}\nvolumeType: disk\nprovisioning: {{diskSelector: {{match: 'true'}}}}"
    );
    wanted(&sample::kind(&text)).remove(0)
}

fn failure(found: Result<String, Trouble>) -> String {
    match found.unwrap_err() {
        Trouble::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

fn marked(label: &str) -> (tempfile::NamedTempFile, File) {
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(LENGTH).unwrap();
    mark(named.reopen().unwrap(), label).unwrap();
    let file = named.reopen().unwrap();
    (named, file)
}

#[test]
fn empty_disk_is_claimed_and_found_again_under_any_name() {
    let disks = Disks::new();
    disks.add("a", 200 * MIB);
    let foreign = disks.add("b", LENGTH);
    foreign.write_all_at(&[0x53, 0xef], 1080).unwrap();
    disks.add("c", LENGTH);
    disks.add("d", LENGTH);
    let (data, other) = (volume("data"), volume("a-name-that-is-long"));
    assert_eq!(disks.find_or_take(&data).unwrap(), "c");
    assert_eq!(disks.find_or_take(&data).unwrap(), "c");
    assert_eq!(disks.find_or_take(&other).unwrap(), "d");
    // The kernel found the disks in another order.
    fs::rename(disks.path("c"), disks.path("e")).unwrap();
    disks.add("c", LENGTH);
    assert_eq!(disks.find_or_take(&data).unwrap(), "e");
    assert_eq!(disks.find_or_take(&other).unwrap(), "d");
    // A wiped disk is free again, and so is its volume.
    fs::remove_file(disks.path("c")).unwrap();
    fs::remove_file(disks.path("e")).unwrap();
    disks.add("e", LENGTH);
    assert_eq!(disks.find_or_take(&data).unwrap(), "e");

    let why = failure(disks.find_or_take(&volume("more")));
    for part in [
        "no disk is suitable: ",
        "a: it has 200 MiB, and 300 are needed; ",
        "b: it is not empty; wipe it to use it; ",
        "e: it is not empty and has the label \"u-data\"; wipe it",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let mut before = vec![0; usize::try_from(MIB).unwrap()];
    foreign.read_exact_at(&mut before, 0).unwrap();
    assert!(before[..1080] == [0; 1080] && before[1082..].iter().all(|byte| *byte == 0));
}

/// Makes an encrypted volume whose header has this label on the disk.
fn encrypted(disk: &File, label: &str) {
    let (mut luks, _) = Luks::new(64, 512).unwrap();
    luks.set_label(label).unwrap();
    luks.write(disk).unwrap();
}

#[test]
fn an_encrypted_disk_is_found_by_the_label_of_its_header() {
    for name in ["data", "a-name-that-is-long"] {
        let volume = volume(name);
        let own = encryption::mapping(&volume.id);
        let of_first_headers = label(&volume.id);
        // The file system inside has another label.
        assert_ne!(own, volume.volume().unwrap().label);
        for label in [&own, &of_first_headers] {
            let disks = Disks::new();
            disks.add("a", LENGTH);
            encrypted(&disks.add("b", LENGTH), label);
            encrypted(&disks.add("c", LENGTH), &format!("{label}2"));
            assert_eq!(disks.find_or_take(&volume).unwrap(), "b", "{label}");
        }
        let disks = Disks::new();
        encrypted(&disks.add("a", LENGTH), &own);
        encrypted(&disks.add("b", LENGTH), &of_first_headers);
        let why = failure(disks.find_or_take(&volume));
        assert!(why.contains("there are several u-"), "{why}");
    }
    // A LUKS label on a file system does not match.
    let (_named, file) = marked("luks2-u-data");
    let found = Signature::of(&file).unwrap().unwrap();
    assert!(!found.is_luks && !found.is_of("u-data", None));
    assert!(found.is_of("u-data", Some(found.id)));
}

#[test]
fn two_disks_with_the_same_label_are_both_refused() {
    let disks = Disks::new();
    for name in ["a", "b"] {
        mark(disks.add(name, LENGTH), "u-data").unwrap();
    }
    let why = failure(disks.find_or_take(&volume("data")));
    assert!(why.contains("there are several u-data, on "), "{why}");
}

#[test]
fn disk_with_content_is_refused() {
    let end = usize::try_from(LENGTH).unwrap();
    // XFS without a label, ext4, btrfs, LVM, array members at the end, MBR and GPT tables, LUKS version 1.
    let contents: [(usize, &[u8]); 9] = [
        (0, b"XFSB"),
        (1080, &[0x53, 0xef]),
        (0x1_0040, b"_BHRfS_M"),
        (512, b"LABELONE"),
        (end - 8192, &[0xfc, 0x4e, 0x2b, 0xa9]),
        (end - (64 << 10), &[0xfc, 0x4e, 0x2b, 0xa9]),
        (450, &[0x83]),
        (512, b"EFI PART"),
        (0, b"LUKS\xba\xbe\0\x01"),
    ];
    for (at, bytes) in contents {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        check_empty(&file, LENGTH, LENGTH).unwrap();
        file.write_all_at(bytes, at as u64).unwrap();
        let why = check_empty(&file, LENGTH, LENGTH).unwrap_err().to_string();
        assert_eq!(why, "it is not empty; wipe it to use it");
    }
    for length in [0, 100, 3 << 20] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        let why = check_empty(&file, length, LENGTH).unwrap_err().to_string();
        assert!(why.contains("400 are needed"), "{why}");
        assert_eq!(Signature::of(&file).unwrap(), None);
    }
}

#[test]
fn hostile_labels_are_quoted_and_match_no_volume() {
    let (_named, file) = marked("u-\x1b[2J\n\u{202e}");
    let why = check_empty(&file, LENGTH, LENGTH).unwrap_err().to_string();
    assert!(!why.contains(char::is_control), "{why:?}");
    assert!(why.contains("has the label"), "{why}");
    for label in [&[0xff; 12][..], b"u-data\0u-dat"] {
        file.write_all_at(label, XFS_LABEL as u64).unwrap();
        let found = Signature::of(&file).unwrap().unwrap();
        assert_eq!(found.is_of("u-data", None), found.label == "u-data");
        assert!(found.is_of("u-other", Some(found.id)));
    }
}

#[test]
fn claimed_disk_is_unformatted_and_has_no_partitions() {
    let (named, mut file) = marked("u-data");
    let found = Signature::of(&file).unwrap().unwrap();
    assert!(found.is_of("u-data", None) && !found.is_of("u-other", None));
    assert_eq!(content(named.path()).unwrap(), Content::Nothing);
    assert!(partition::ids(&mut file, "u-a").unwrap().is_empty());
    // The users of the disk may write any content.
    let mut table = Table::new(&mut file, 512).unwrap();
    table.append("u-a", TYPE_LINUX, Some(MIB)).unwrap();
    table.write(&mut file, |_| Ok(())).unwrap();
    assert!(partition::ids(&mut file, "u-a").unwrap().is_empty());
    table.protect(&mut file).unwrap();
    assert_eq!(partition::ids(&mut file, "u-a").unwrap().len(), 1);
}

#[test]
fn file_system_is_identified_by_label_and_uuid() {
    let program = "/sbin/mkfs.xfs";
    if !Path::new(program).exists() {
        skip("xfsprogs");
        return;
    }
    let (named, file) = marked("u-data");
    let id = "8d5a9a36-4d0a-4e1d-9f4b-6f4c7f3f2a11";
    let mut command = Command::new(program);
    command.args(["-q", "-f", "-L", "u-data", "-m", &format!("uuid={id}")]);
    assert!(command.arg(named.path()).status().unwrap().success());
    let expected = Signature {
        label: "u-data".to_owned(),
        id: Uuid::parse_str(id).unwrap(),
        is_luks: false,
    };
    assert_eq!(Signature::of(&file).unwrap(), Some(expected));
    assert_eq!(content(named.path()).unwrap(), Content::Xfs);
}

/// A device that fails at one of its writes after the first half of it.
struct Cut<'a> {
    file: &'a File,
    left: Cell<usize>,
}

impl Device for Cut<'_> {
    fn load(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.load(bytes, offset)
    }

    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let left = self.left.get();
        if left == 0 {
            self.file.store(&bytes[..bytes.len() / 2], offset)?;
            return Err(io::Error::other("power cut"));
        }
        self.left.set(left - 1);
        self.file.store(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn disk_stays_identifiable_after_a_power_cut_during_encryption() {
    let encrypt = |device: &Cut<'_>| -> Result<(), LuksError> {
        let (mut luks, key) = Luks::new(64, 512)?;
        luks.set_label(&encryption::mapping("u-data"))?;
        luks.set_key(device, 0, &key, b"words", CHEAP)?;
        luks.write(device)
    };
    let mut was_cut = 0;
    for left in 0.. {
        let (named, file) = marked("u-data");
        let device = Cut {
            file: &file,
            left: Cell::new(left),
        };
        let done = encrypt(&device);
        let found = Signature::of(&file).unwrap().unwrap();
        assert!(found.is_of("u-data", None), "{left}: {found:?}");
        let expected = if done.is_ok() {
            Content::Luks
        } else {
            // Or the volume opens by the intact copy of its header.
            let torn = Luks::read(&file).unwrap();
            match content(named.path()).unwrap() {
                Content::Luks => torn.map(|_| Content::Luks).unwrap(),
                _ => Content::Nothing,
            }
        };
        assert_eq!(content(named.path()).unwrap(), expected, "{left}");
        if done.is_ok() {
            let luks = Luks::read(&file).unwrap().unwrap();
            assert_eq!(found.id.to_string(), luks.uuid());
            break;
        }
        was_cut += 1;
    }
    assert!(was_cut > 2, "{was_cut}");
}

#[test]
fn damaged_luks_header_is_an_error() {
    let (_named, file) = marked("u-data");
    encrypted(&file, "luks2-u-data");
    let found = Signature::of(&file).unwrap();
    for copy in [100, (16 << 10) + 100] {
        assert_eq!(Signature::of(&file).unwrap(), found);
        file.write_all_at(b"torn", copy).unwrap();
    }
    let why = Signature::of(&file).unwrap_err().to_string();
    assert!(why.contains("damaged"), "{why}");
}
