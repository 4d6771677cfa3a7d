//! Swap on a partition.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use corten_base::console;
use corten_sys::swap;
use rustix::param::page_size;
use uuid::Uuid;

/// The kernel's list of swap areas (proc(5)).
const IN_USE: &str = "/proc/swaps";

/// Starts swap on a device that is empty or was swap before; its old content is worthless.
pub(super) fn start(device: &Path) -> Result<(), String> {
    let shown = device.display();
    match prepare(device, page_size()) {
        Ok(true) => {}
        Ok(false) => return Err(format!("{shown} contains other data; wipe it first")),
        Err(error) => return Err(format!("{shown} cannot be prepared for swapping: {error}")),
    }
    swap::on(device).map_err(|error| format!("cannot swap to {shown}: {error}"))
}

/// Writes a header for the current length, unless it is there; returns `false` on foreign content.
fn prepare(device: &Path, page_size: usize) -> io::Result<bool> {
    let mut file = OpenOptions::new().read(true).write(true).open(device)?;
    let length = file.seek(SeekFrom::End(0))?;
    let mut page = vec![0; page_size];
    file.rewind()?;
    file.read_exact(&mut page)?;
    if !page.ends_with(swap::MAGIC) && page.iter().any(|byte| *byte != 0) {
        return Ok(false);
    }
    let uuid = swap::uuid(&page).unwrap_or_else(|| *Uuid::new_v4().as_bytes());
    let header = swap::header(length, page_size, uuid)?;
    // No needless write: udevd inspects every written device, and its event would trigger another attempt.
    if header == page {
        return Ok(true);
    }
    file.rewind()?;
    file.write_all(&header)?;
    file.sync_all()?;
    Ok(true)
}

/// Stops swap on a device; a device without swap is no error.
pub(super) fn stop(device: &Path) -> Result<(), String> {
    match swap::off(device) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done.map_err(|error| format!("swapped-out pages cannot be read back: {error}")),
    }
}

/// Paths of the active swap areas; empty if the kernel's list cannot be read.
#[must_use]
pub fn swapped_to() -> Vec<String> {
    let list = fs::read_to_string(IN_USE).unwrap_or_default();
    areas(&list).map(|area| area.device.to_owned()).collect()
}

/// Stops all swap.
pub fn stop_swapping() {
    for device in swapped_to() {
        if let Err(why) = stop(Path::new(&device)) {
            console::warn(&format!("{device}: {why}"));
        }
    }
}

/// An active swap area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area<'a> {
    /// Path of the device or file.
    pub device: &'a str,
    /// `partition` or `file`.
    pub kind: &'a str,
    /// Size in bytes.
    pub size: u64,
    /// Used space in bytes.
    pub used: u64,
    /// Priority; the kernel uses the highest first.
    pub priority: i32,
}

/// Parses the kernel's list; a malformed number counts as 0.
pub fn areas(swaps: &str) -> impl Iterator<Item = Area<'_>> {
    // The first line is a heading.
    swaps.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (device, kind) = (words.next()?, words.next().unwrap_or_default());
        let mut bytes = || {
            let kib = words.next().and_then(|word| word.parse::<u64>().ok());
            kib.unwrap_or_default().saturating_mul(1024)
        };
        let (size, used) = (bytes(), bytes());
        let priority = words.next().and_then(|word| word.parse().ok());
        Some(Area {
            device,
            kind,
            size,
            used,
            priority: priority.unwrap_or_default(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_or_former_swap_partitions_get_a_swap_header() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        let area = || {
            assert!(prepare(file.path(), 4096).unwrap());
            fs::read(file.path()).unwrap()
        };
        let first = area();
        assert!(first[..4096].ends_with(swap::MAGIC));
        assert_eq!(first[1028..1032], 255_u32.to_ne_bytes());
        let written = || fs::metadata(file.path()).unwrap().modified().unwrap();
        let before = written();
        assert!(area() == first && written() == before);
        // A longer device keeps its UUID.
        let longer = fs::File::options().write(true).open(file.path()).unwrap();
        longer.set_len(2 << 20).unwrap();
        let second = area();
        assert_eq!(second[1028..1032], 511_u32.to_ne_bytes());
        assert_eq!(swap::uuid(&second[..4096]), swap::uuid(&first[..4096]));
        let mut other = vec![0; 1 << 20];
        other[1080] = 0x53;
        fs::write(file.path(), &other).unwrap();
        assert!(!prepare(file.path(), 4096).unwrap());
        assert!(fs::read(file.path()).unwrap() == other);
        fs::write(file.path(), [0; 100]).unwrap();
        prepare(file.path(), 4096).unwrap_err();
    }

    #[test]
    fn swap_list_of_the_kernel_is_parsed() {
        let list = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/dm-1                               partition\t1023996\t\t0\t\t-2\n";
        let area = Area {
            device: "/dev/dm-1",
            kind: "partition",
            size: 1_023_996 * 1024,
            used: 0,
            priority: -2,
        };
        assert_eq!(areas(list).collect::<Vec<_>>(), [area]);
        assert_eq!(areas("").count(), 0);
        let odd = "Filename\n\n/dev/vda5\n/dev/vda6 file 18446744073709551615 -1 x\n";
        let odd: Vec<_> = areas(odd).collect();
        assert_eq!((odd[0].device, odd[0].size), ("/dev/vda5", 0));
        assert_eq!((odd[1].size, odd[1].used), (u64::MAX, 0));
    }
}
