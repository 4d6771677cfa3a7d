//! Volumes under LUKS2: creates them in empty partitions, opens them at later boots, and keeps their key slots in step
//! with the config.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use corten_base::durable::remove_if_there;
use corten_config::kinds::Encryption;
use corten_luks::{Cost, Luks, VolumeKey};
use corten_sys::dm::{self, Target};
use corten_yaml::read::Word as _;
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::judge::REMEDY;
use super::slots::{Key, Keys, with_slots};
use super::zeros::wipe_start;
use super::{BUSY_PAUSE, WIPED, while_busy};

/// Default length of a volume's key in bits: two AES-256 keys.
const KEY_SIZE: u32 = 512;
/// Default sector size in bytes.
const SECTOR_SIZE: u64 = 512;
const NO_KEY: &str = "cannot be encrypted: no key of its config can be used";
const MAPPER: &str = "/dev/mapper";
/// UUID of the machine from its firmware.
const MACHINE: &str = "/sys/class/dmi/id/product_uuid";

/// Prefix of the names of opened volumes in the device mapper.
const PREFIX: &str = "luks2-";

/// Name of an opened volume in the device mapper, and label of its LUKS header. The label differs from that of the file
/// system inside: `/dev/disk/by-label` links both.
pub(super) fn mapping(volume: &str) -> String {
    format!("{PREFIX}{volume}")
}

/// Names of the open volumes.
pub(super) fn opened() -> Vec<String> {
    let names = fs::read_dir(MAPPER).into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned))
        .collect()
}

/// Device of an open volume.
pub(super) fn mapped(volume: &str) -> PathBuf {
    Path::new(MAPPER).join(mapping(volume))
}

/// Removes the device of an open volume, and with it the kernel's copy of the key. A missing device is no error.
pub(super) fn close(volume: &str) -> io::Result<()> {
    gone(while_busy(BUSY_PAUSE, || dm::remove(&mapping(volume))))
}

/// Same as [`close`], but fails at once if the device is in use.
pub(super) fn close_now(volume: &str) -> io::Result<()> {
    gone(dm::remove(&mapping(volume)))
}

/// Treats a missing device as removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(()),
        // The kernel has no device mapper.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// An open encrypted volume.
#[derive(Debug)]
pub(super) struct Decrypted {
    /// Device of the decrypted content.
    pub(super) device: PathBuf,
    /// Its encryption, with only those keys of the config that are known to be in their slots.
    pub(super) by: Encryption,
    /// Whether the volume is newly made and empty.
    pub(super) is_new: bool,
}

/// Checks that at least one key of the config is usable on this machine.
pub(super) fn check_keys(volume: &str, wanted: &Encryption) -> Result<(), String> {
    let keys = Keys::of(volume, wanted, &machine());
    if keys.usable.is_empty() {
        return Err(format!("{NO_KEY}: {}", keys.complaints.join("; ")));
    }
    Ok(())
}

/// Encrypts an empty partition; the decrypted volume is empty as well.
///
/// The header is written last, so a power cut before leaves the partition empty.
pub(super) fn make(volume: &str, device: &Path, wanted: &Encryption) -> Result<Decrypted, String> {
    let cannot = |error: corten_luks::LuksError| format!("cannot be encrypted: {error}");
    let file = open_device(device)?;
    let keys = Keys::of(volume, wanted, &machine());
    keys.complain(volume);
    if keys.usable.is_empty() {
        return Err(NO_KEY.to_owned());
    }
    let (mut luks, key) = new_header(volume, wanted).map_err(cannot)?;
    for Key {
        slot, passphrase, ..
    } in &keys.usable
    {
        luks.set_key(&file, *slot, &key, passphrase, Cost::DEFAULT)
            .map_err(cannot)?;
    }
    let path = map(volume, device, &file, &luks, &key, wanted)?;
    // The decrypted content of an empty disk is noise, so its start is zeroed.
    let emptied = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut inner| {
            wipe_start(&mut inner, 0, WIPED)?;
            inner.sync_all()
        })
        .map_err(|error| format!("cannot write {}: {error}", path.display()));
    let written = emptied.and_then(|()| luks.write(&file).map_err(cannot));
    if let Err(why) = written {
        let _ = dm::remove(&mapping(volume));
        return Err(why);
    }
    Ok(Decrypted {
        device: path,
        by: with_slots(wanted, &keys.slots()),
        is_new: true,
    })
}

/// Opens an encrypted partition.
pub(super) fn open(volume: &str, device: &Path, wanted: &Encryption) -> Result<Decrypted, String> {
    let file = open_device(device)?;
    let keys = Keys::of(volume, wanted, &machine());
    let (mut luks, key, opener) = unlock(&keys, device, &file, wanted)?;
    let path = map(volume, device, &file, &luks, &key, wanted)?;
    keys.complain(volume);
    let slots = keys.settle(volume, &mut luks, &file, &key, opener, Cost::DEFAULT);
    Ok(Decrypted {
        device: path,
        by: with_slots(wanted, &slots),
        is_new: false,
    })
}

/// Checks that one of these keys opens a partition, and changes nothing.
pub(super) fn check_opens(volume: &str, device: &Path, wanted: &Encryption) -> Result<(), String> {
    let keys = Keys::of(volume, wanted, &machine());
    unlock(&keys, device, &open_device(device)?, wanted).map(drop)
}

/// Returns the header, the volume's key and the slot that held it. The header is unsigned, so the cipher must be that
/// of the config. Otherwise an attacker with access to the disk could downgrade it to the null cipher.
fn unlock(
    keys: &Keys,
    device: &Path,
    file: &File,
    wanted: &Encryption,
) -> Result<(Luks, VolumeKey, u8), String> {
    let shown = device.display();
    let luks = Luks::read(file).map_err(|error| format!("{shown} cannot be opened: {error}"))?;
    let mut luks = luks.ok_or_else(|| format!("{shown} has lost its LUKS header; {REMEDY}"))?;
    let segment = luks.segment().map_err(|error| error.to_string())?;
    let cipher = wanted.cipher.word();
    if segment.encryption != cipher {
        return Err(format!(
            "{shown} cannot be opened: its LUKS header has the cipher {}, and the config has {cipher}: the header was \
             changed, or another tool created it; {REMEDY}",
            segment.encryption
        ));
    }
    luks.limit_memory(spare_memory());
    let (key, opener) = keys
        .find(&luks, file)
        .map_err(|why| format!("{shown} {why}"))?;
    Ok((luks, key, opener))
}

fn open_device(device: &Path) -> Result<File, String> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .map_err(|error| format!("cannot open {}: {error}", device.display()))
}

fn machine() -> String {
    fs::read_to_string(MACHINE).unwrap_or_default()
}

/// Memory limit for a key derivation in KiB: half of the available memory.
fn spare_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    value.map_or(u64::MAX, |available| available / 2)
}

fn new_header(
    volume: &str,
    wanted: &Encryption,
) -> Result<(Luks, VolumeKey), corten_luks::LuksError> {
    let bytes = wanted.key_size.unwrap_or(KEY_SIZE) / 8;
    let sector = wanted.block_size.unwrap_or(SECTOR_SIZE);
    // The config admits no other sizes; `Luks::new` rejects 0.
    let (mut luks, key) = Luks::new(
        usize::try_from(bytes).unwrap_or_default(),
        u32::try_from(sector).unwrap_or_default(),
    )?;
    luks.set_label(&mapping(volume))?;
    Ok((luks, key))
}

/// Creates the device of the decrypted content.
fn map(
    volume: &str,
    device: &Path,
    file: &File,
    luks: &Luks,
    key: &VolumeKey,
    wanted: &Encryption,
) -> Result<PathBuf, String> {
    let cannot = |error: io::Error| format!("cannot map {}: {error}", device.display());
    let length = io::Seek::seek(&mut &*file, io::SeekFrom::End(0)).map_err(cannot)?;
    let (sectors, parameters) = table(device, length, luks, key, wanted)?;
    let name = mapping(volume);
    let uuid = format!("CRYPT-LUKS2-{}-{name}", luks.uuid().replace('-', ""));
    let target = Target {
        sectors,
        kind: "crypt",
        parameters: &parameters,
    };
    let made = dm::create(&name, &uuid, target).map_err(cannot)?;
    link(&mapped(volume), &made).map_err(|error| {
        let _ = dm::remove(&name);
        cannot(error)
    })?;
    Ok(mapped(volume))
}

/// Creates the link that udevd creates as well once it runs. Both replace it by an atomic rename, so they do not
/// conflict.
fn link(path: &Path, made: &Path) -> io::Result<()> {
    let number = made.file_name().ok_or(ErrorKind::InvalidInput)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}"));
    remove_if_there(&new)?;
    symlink(Path::new("..").join(number), &new)?;
    fs::rename(new, path)
}

/// Length in sectors and parameters of the target `crypt` (kernel:
/// Documentation/admin-guide/device-mapper/dm-crypt.rst), including the key.
fn table(
    device: &Path,
    length: u64,
    luks: &Luks,
    key: &VolumeKey,
    wanted: &Encryption,
) -> Result<(u64, Zeroizing<String>), String> {
    let segment = luks.segment().map_err(|error| error.to_string())?;
    let behind = length.checked_sub(segment.offset);
    let size = segment.size.or(behind).unwrap_or_default();
    let size = size - size % u64::from(segment.sector_size);
    if size == 0 || Some(size) > behind {
        return Err(format!(
            "{} is shorter than its LUKS header states",
            device.display()
        ));
    }
    let mut options: Vec<String> = wanted.options.clone();
    options.extend(wanted.allow_discards.then(|| "allow_discards".to_owned()));
    let odd = u64::from(segment.sector_size) != SECTOR_SIZE;
    options.extend(odd.then(|| format!("sector_size:{}", segment.sector_size)));
    let hex = Zeroizing::new(data_encoding::HEXLOWER.encode(key.bytes()));
    // Capacity for the whole text, since reallocation would leave copies of the key in memory.
    let mut words = Zeroizing::new(String::with_capacity(1024));
    let written = write!(
        words,
        "{} {} {} {} {}",
        wanted.cipher.word(),
        *hex,
        segment.iv_tweak,
        device.display(),
        segment.offset / dm::SECTOR
    );
    written.map_err(|error| error.to_string())?;
    if !options.is_empty() {
        let options = format!(" {} {}", options.len(), options.join(" "));
        words.push_str(&options);
    }
    Ok((size / dm::SECTOR, words))
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
