//! Damaged file systems; some tests run the image's own tools.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use corten_base::testing::{LoopDevice, on_a_volume, skip};
use corten_config::kinds::{EncryptionKey, Migration, StaticKey};
use corten_values::Secret;

use super::super::{STATE, STATE_LENGTH};
use super::*;

/// Starts of the allocation groups of STATE, each with a copy of the superblock (`mkfs.xfs` makes four groups).
const PARTS: [u64; 4] = [0, STATE_LENGTH / 4, STATE_LENGTH / 2, STATE_LENGTH / 4 * 3];
/// Offset of a superblock's checksum (kernel: `sb_crc` in fs/xfs/libxfs/xfs_format.h).
const CHECKSUM: u64 = 224;

/// Runs a tool of xfsprogs on a file; returns its error output.
fn tool(name: &str, arguments: &[&str], path: &Path) -> Result<(), String> {
    let mut command = Command::new(format!("/sbin/{name}"));
    let ended = command.args(arguments).arg(path).output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    let words: Vec<&str> = words.split_whitespace().collect();
    ended
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{name} ended with {}: {}", ended.status, words.join(" ")))
}

/// A file system like STATE's.
fn file_system() -> Option<tempfile::NamedTempFile> {
    if !["mkfs.xfs", "xfs_repair"]
        .iter()
        .all(|name| Path::new("/sbin").join(name).exists())
    {
        skip("xfsprogs");
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(STATE_LENGTH).unwrap();
    tool("mkfs.xfs", &["-q", "-f", "-L", STATE.name], file.path()).unwrap();
    for part in PARTS {
        let mut magic = [0; 4];
        file.as_file().read_exact_at(&mut magic, part).unwrap();
        assert_eq!(&magic, b"XFSB", "at {part}");
    }
    Some(file)
}

/// The result of mounting, and the number of repairs. `xfs_repair -n` stands in for the mount, which needs root.
async fn mounted(file: &File, path: &Path) -> (Result<(), String>, u32) {
    file.sync_all().unwrap();
    let found = disk::content(path).unwrap();
    assert_eq!(lacks_file_system(found, true, "/dev/vda4"), Ok(false));
    let repairs = Cell::new(0);
    let mount = || tool("xfs_repair", &["-n"], path).map_err(io::Error::other);
    let repair = async || {
        repairs.set(repairs.get() + 1);
        tool("xfs_repair", &[], path)
    };
    let done = mount_repaired(STATE.name, "/dev/vda4", mount, repair).await;
    (done, repairs.get())
}

#[tokio::test]
async fn a_damaged_volume_is_repaired_or_named_with_the_remedy() {
    let Some(image) = file_system() else { return };
    let (file, path) = (image.as_file(), image.path());
    assert_eq!(mounted(file, path).await, (Ok(()), 0));

    // One of the copies repairs it.
    file.write_all_at(&[0xff; 4], CHECKSUM).unwrap();
    assert_eq!(mounted(file, path).await, (Ok(()), 1));
    assert_eq!(mounted(file, path).await, (Ok(()), 0));

    // Only the magic numbers of the superblocks are left.
    for part in PARTS {
        file.write_all_at(&[0; 508], part + 4).unwrap();
    }
    let (done, repairs) = mounted(file, path).await;
    let why = done.unwrap_err();
    let start = "/dev/vda4 is damaged and cannot be repaired: xfs_repair ended with ";
    assert!(why.starts_with(start), "{why}");
    let end = "could not find valid secondary superblock Exiting now.; \
               wipe or reset it to create the volume again without its data";
    assert!(why.ends_with(end) && !why.contains("...."), "{why}");
    assert_eq!(repairs, 1);
}

#[tokio::test]
async fn volume_with_a_damaged_start_is_not_formatted_again() {
    assert_eq!(lacks_file_system(Content::Nothing, false, ""), Ok(true));
    let Some(image) = file_system() else { return };
    let (file, path) = (image.as_file(), image.path());
    // Zeros, and the flag of an unfinished `mkfs`.
    for (lost, at) in [(vec![0; 4096], 0), (vec![1], 126)] {
        file.write_all_at(&lost, at).unwrap();
        assert_eq!(disk::content(path).unwrap(), Content::Nothing);
        assert_eq!(mounted(file, path).await, (Ok(()), 1));
        assert_eq!(disk::content(path).unwrap(), Content::Xfs);
    }
    file.set_len(0).unwrap();
    file.set_len(STATE_LENGTH).unwrap();
    let (done, repairs) = mounted(file, path).await;
    let why = done.unwrap_err();
    assert!(
        why.contains("cannot be repaired") && why.ends_with(REMEDY),
        "{why}"
    );
    assert_eq!(repairs, 1);
}

#[test]
fn mounted_file_system_grows_with_its_device() {
    let Some(image) = file_system() else { return };
    let on_disk = LoopDevice::of(image.path());
    let (Some(disk), true) = (on_disk, rustix::process::geteuid().is_root()) else {
        return;
    };
    on_a_volume("", |directory| {
        mount::mount(
            disk.path(),
            directory,
            "xfs",
            mount::MountFlags::empty(),
            "",
        )
        .unwrap();
        let size = || {
            let about = rustix::fs::statvfs(directory).unwrap();
            about.f_blocks * about.f_frsize
        };
        let before = size();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let grow = || runtime.block_on(async { grow(directory) });
        assert_eq!(grow(), Ok(()));
        assert_eq!(size(), before);
        image.as_file().set_len(STATE_LENGTH * 3).unwrap();
        disk.resize();
        assert_eq!(grow(), Ok(()));
        assert_eq!(size(), before + STATE_LENGTH * 2);
        runtime.block_on(async { unmount(directory) }).unwrap();
        let refused = grow().unwrap_err();
        assert!(
            refused.starts_with("cannot grow the file system on /"),
            "{refused}"
        );
    });
}

fn site<'a>(
    device: &'a Path,
    marks: Marks,
    give_up: &'a (dyn Fn() -> io::Result<()> + Send + Sync),
) -> Site<'a> {
    Site {
        device,
        marks,
        give_up,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_volume_is_refused_and_wiped_only_if_it_can_be_encrypted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    file.as_file().write_all_at(b"XFSB", 0).unwrap();
    let given_up = AtomicU32::new(0);
    let give_up = || {
        given_up.fetch_add(1, Relaxed);
        Err(io::Error::other("it is in use"))
    };
    let key = EncryptionKey {
        fixed: Some(StaticKey {
            passphrase: Secret::new("a"),
        }),
        ..EncryptionKey::default()
    };
    let refused = Encryption {
        keys: vec![key],
        ..Encryption::default()
    };
    let migrates = Encryption {
        migration: Migration::Wipe,
        ..refused.clone()
    };
    let without_keys = Encryption {
        keys: Vec::new(),
        ..migrates.clone()
    };
    let mut failures = Vec::new();
    for wanted in [&refused, &without_keys, &migrates] {
        let marks = Marks {
            is_made: true,
            ..Marks::default()
        };
        let site = site(file.path(), marks, &give_up);
        let done = decrypt("EPHEMERAL", &site, Some(wanted)).await;
        failures.push((done.unwrap_err(), given_up.load(Relaxed)));
    }
    let [(clear, 0), (no_key, 0), (wiped, 1)] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert!(clear.contains("is not encrypted"), "{clear}");
    assert!(
        no_key.contains("no key of its config can be used"),
        "{no_key}"
    );
    assert!(wiped.ends_with("cannot be wiped: it is in use"), "{wiped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_luks_header_does_not_cause_a_new_encryption() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let wanted = Encryption::default();
    let mut failures = Vec::new();
    for is_made in [false, true] {
        let marks = Marks {
            is_made,
            ..Marks::default()
        };
        let site = site(file.path(), marks, &|| unreachable!("nothing is given up"));
        let decrypted = decrypt("STATE", &site, Some(&wanted)).await;
        failures.push(decrypted.unwrap_err());
    }
    // It has no keys, so that opening it fails.
    assert!(failures[0].contains("no key of its config"), "{failures:?}");
    assert!(
        failures[1].contains("begins with zeros") && failures[1].ends_with(REMEDY),
        "{failures:?}"
    );
}

#[tokio::test]
async fn volume_that_fails_to_mount_after_a_repair_is_named() {
    let mount = || Err(io::Error::other("no such file system"));
    let done = mount_repaired("data", "/dev/vdb1", mount, async || Ok(())).await;
    let why = done.unwrap_err();
    let start = "/dev/vdb1 was repaired but still cannot be mounted: no such file system; wipe";
    assert!(why.starts_with(start), "{why}");
}

#[tokio::test]
async fn volume_with_an_unsupported_file_system_is_not_repaired() {
    let mount = || Err(Errno::NODEV.into());
    let repair = async || Err("it was repaired".to_owned());
    let why = mount_repaired("data", "/dev/vdb1", mount, repair).await;
    let why = why.unwrap_err();
    assert!(why.contains("start another version"), "{why}");
}
