//! Collects the machine's own evidence of the previous boot's end: the kernel's last words (pstore), and a reset by a
//! watchdog.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use corten_api::parameters;

/// Length of the part of the kernel's last words that is shown, in bytes. It is the end, which has the reason.
const KERNEL_LOG: usize = 16 * 1024;
/// `WDIOF_CARDRESET` of linux/watchdog.h.
const RESET_BY_WATCHDOG: u32 = 0x20;

/// Evidence of the previous boot's end outside STATE.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Last words of the kernel, from the newest panic.
    pub kernel_log: Option<String>,
    /// Whether a watchdog has reset the machine.
    pub watchdog: bool,
    /// Files of pstore that hold these words.
    pub(super) records: Vec<PathBuf>,
}

impl Evidence {
    /// Collects the evidence and makes room for the next panic: pstore keeps only the newest one, until
    /// [`Evidence::forget`].
    #[must_use]
    pub fn collect(sysfs: &Path) -> Evidence {
        let panic = newest_panic(&sysfs.join("fs/pstore"));
        Evidence {
            kernel_log: text(&panic),
            watchdog: reset_by_watchdog(&sysfs.join("class/watchdog")),
            records: panic.into_iter().map(|part| part.path).collect(),
        }
    }

    /// Removes the kernel's last words from pstore, whose memory is small.
    pub fn forget(&self) {
        for record in &self.records {
            // A record that cannot be removed is found again, by the next boot too.
            let _ = fs::remove_file(record);
        }
    }
}

/// A part of a panic's record. The kernel writes a record in parts (Documentation/admin-guide/pstore-blk.rst and
/// fs/pstore/platform.c). Each begins with a line `Panic#1 Part3`; part 1 has the newest text.
#[derive(Debug)]
struct Part {
    /// Time of the write.
    at: SystemTime,
    number: u32,
    body: String,
    path: PathBuf,
}

/// Reads the parts of the newest panic, the newest text first, and removes all other records. pstore's memory is small,
/// and an old record would leave no room for the next panic.
fn newest_panic(pstore: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(pstore).into_iter().flatten().flatten() {
        let is_log = entry.file_name().to_string_lossy().starts_with("dmesg-");
        let path = entry.path();
        let Ok(bytes) = fs::read(&path) else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
        // The kernel's log already has an oops that the kernel survived.
        let Some(number) = number(title).filter(|_| is_log && title.starts_with("Panic")) else {
            let _ = fs::remove_file(path);
            continue;
        };
        let written = entry.metadata().and_then(|data| data.modified());
        parts.push(Part {
            at: written.unwrap_or(SystemTime::UNIX_EPOCH),
            number,
            body: body.to_owned(),
            path,
        });
    }
    // The kernel writes the parts of one panic in the order of their numbers. At least 10 s pass before the restarted
    // machine can write another panic.
    parts.sort_by_key(|part| (part.at, part.number));
    let panics = parts.chunk_by(|part, next| part.number < next.number);
    let length = panics.last().map_or(0, <[Part]>::len);
    let newest = parts.split_off(parts.len() - length);
    for older in parts {
        let _ = fs::remove_file(older.path);
    }
    newest
}

fn number(title: &str) -> Option<u32> {
    title.rsplit_once(" Part")?.1.trim().parse().ok()
}

/// The part of a panic that is shown, without secrets.
fn text(panic: &[Part]) -> Option<String> {
    let log: String = panic.iter().rev().map(|part| part.body.as_str()).collect();
    // Callers with the role of a reader see it, and a panic soon after the start has the kernel's command line.
    let log = parameters::hide(&log);
    let start = log.floor_char_boundary(log.len().saturating_sub(KERNEL_LOG));
    let shown = log.get(start..).unwrap_or_default();
    (!shown.is_empty()).then(|| shown.to_owned())
}

fn reset_by_watchdog(class: &Path) -> bool {
    let devices = fs::read_dir(class).map(|entries| entries.flatten().collect::<Vec<_>>());
    devices.unwrap_or_default().iter().any(|device| {
        let status = fs::read_to_string(device.path().join("bootstatus"));
        let status = status.ok().and_then(|status| status.trim().parse().ok());
        status.is_some_and(|status: u32| status & RESET_BY_WATCHDOG != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    /// A pstore below `sysfs`, and a function that writes a record: its name, its time in seconds, its text.
    fn pstore(sysfs: &Path) -> (PathBuf, impl Fn(&str, u64, &[u8])) {
        let pstore = sysfs.join("fs/pstore");
        fs::create_dir_all(&pstore).unwrap();
        let place = pstore.clone();
        let put = move |name: &str, second: u64, text: &[u8]| {
            fs::write(place.join(name), text).unwrap();
            let file = File::options().write(true).open(place.join(name)).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            file.set_modified(at).unwrap();
        };
        (pstore, put)
    }

    #[test]
    fn pstore_parts_are_joined_and_removed_only_once_stored() {
        let sysfs = tempfile::tempdir().unwrap();
        let (pstore, put) = pstore(sysfs.path());
        let watchdog = sysfs.path().join("class/watchdog/watchdog0");
        fs::create_dir_all(&watchdog).unwrap();
        fs::write(watchdog.join("bootstatus"), "0\n").unwrap();
        put("dmesg-efi_pstore-171", 7, b"Panic#1 Part1\nlast\n");
        let first = b"Panic#1 Part2\nfirst\n<5>[ 0.1] Command line: corten.config.inline=KLUv x\n";
        put("dmesg-efi_pstore-170", 8, first);
        put("dmesg-efi_pstore-172", 6, b"Oops#2 Part1\nsurvived\n");
        put("console-ramoops-0", 9, b"Panic#1 Part3\nnot a dump\n");
        put("dmesg-efi_pstore-173", 9, b"\xff\xfe");
        for _ in 0..2 {
            let evidence = Evidence::collect(sysfs.path());
            let expected = "first\n<5>[ 0.1] Command line: corten.config.inline=****** x\nlast\n";
            assert_eq!(evidence.kernel_log.as_deref(), Some(expected));
            assert!(!evidence.watchdog);
            assert_eq!(fs::read_dir(&pstore).unwrap().count(), 2);
        }
        Evidence::collect(sysfs.path()).forget();
        assert_eq!(fs::read_dir(&pstore).unwrap().count(), 0);
        fs::write(watchdog.join("bootstatus"), "32\n").unwrap();
        let evidence = Evidence::collect(sysfs.path());
        assert!(evidence.kernel_log.is_none() && evidence.watchdog);
    }

    #[test]
    fn only_the_newer_of_two_panics_is_read() {
        for newer_is_longer in [false, true] {
            let sysfs = tempfile::tempdir().unwrap();
            let (pstore, put) = pstore(sysfs.path());
            // Each boot numbers its panics from 1, and the firmware's clock advances while a panic is written.
            put("dmesg-efi_pstore-1", 100, b"Panic#1 Part1\nold 2\n");
            put("dmesg-efi_pstore-2", 101, b"Panic#1 Part2\nold 1\n");
            put("dmesg-efi_pstore-4", 160, b"Panic#1 Part1\nnew 3\n");
            put("dmesg-efi_pstore-5", 160, b"Panic#1 Part2\nnew 2\n");
            if newer_is_longer {
                put("dmesg-efi_pstore-6", 161, b"Panic#1 Part3\nnew 1\n");
            }
            let evidence = Evidence::collect(sysfs.path());
            let words = if newer_is_longer {
                "new 1\nnew 2\nnew 3\n"
            } else {
                "new 2\nnew 3\n"
            };
            assert_eq!(evidence.kernel_log.as_deref(), Some(words));
            let left = fs::read_dir(&pstore).unwrap().count();
            assert_eq!(left, words.lines().count());
        }
    }
}
