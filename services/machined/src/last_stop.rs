//! Why the boot before this one ended: told by itself when it could, else by what it left behind.
//!
//! A boot writes a record without a reason onto STATE when it begins, and the reason when it ends. A record
//! that has none is of a boot that was cut off: by a panic when the firmware or memory kept the kernel's last
//! words (pstore), by a watchdog when its driver says so, else by the loss of power or a reset.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use corten_api::parameters;
use serde::{Deserialize, Serialize};

use crate::calendar::rfc3339;
use crate::durable;
use crate::oom::{self, Kill};

/// On STATE.
const FILE: &str = "last-stop.json";
/// As much of the kernel's last words as is shown; they end with the reason.
const KERNEL_LOG: usize = 16 * 1024;
/// `WDIOF_CARDRESET` of linux/watchdog.h.
const RESET_BY_WATCHDOG: u32 = 0x20;
/// What a panic says that the kernel made because memory ran out (`out_of_memory` and `check_panic_on_oom` of
/// mm/oom_kill.c).
const NO_MEMORY: [&str; 2] = ["System is deadlocked on memory", "Out of memory"];

/// Held while the record is read, changed and written.
static RECORD: Mutex<()> = Mutex::new(());

/// What kind of end it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Asked for.
    Reboot,
    /// Asked for.
    Shutdown,
    /// machined could not go on.
    Fatal,
    /// The kernel's own end; also soft and hard lockups and unknown NMIs.
    Panic,
    /// The kernel's own end, because memory ran out and there was nothing to kill for it.
    OutOfMemory,
    /// The machine was reset because nobody fed its watchdog.
    Watchdog,
    /// Loss of power, or a reset from outside.
    CutOff,
}

/// The end of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// What kind of end it was.
    pub reason: Reason,
    /// Who asked for it, or what went wrong.
    pub detail: String,
    /// When (RFC 3339); empty when nobody could write it down.
    pub at: String,
}

impl Stop {
    /// An end that happens now.
    #[must_use]
    pub fn now(reason: Reason, detail: &str) -> Stop {
        Stop {
            reason,
            detail: detail.to_owned(),
            at: rfc3339(SystemTime::now()),
        }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.reason {
            Reason::Reboot => "a reboot",
            Reason::Shutdown => "a shutdown",
            Reason::Fatal => "a failure of machined",
            Reason::Panic => "a panic of the kernel",
            Reason::OutOfMemory => "a panic of the kernel without memory",
            Reason::Watchdog => "a reset by the watchdog",
            Reason::CutOff => "the loss of power, or a reset from outside",
        };
        f.write_str(reason)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// What is on STATE.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The kernel's number of the boot.
    boot: String,
    stop: Option<Stop>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kills: Vec<Kill>,
}

impl Record {
    fn of(boot: &str) -> Record {
        Record {
            boot: boot.to_owned(),
            stop: None,
            kills: Vec::new(),
        }
    }
}

/// What is known of the end of the boot before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastStop {
    /// The kernel's number of that boot; empty when it is not known.
    pub boot: String,
    /// How it ended.
    pub stop: Stop,
    /// The kernel's last words, when it panicked.
    pub kernel_log: String,
    /// The services' processes that were killed for memory in that boot, the last of them.
    pub kills: Vec<Kill>,
}

/// What a machine still knows of the boot before, beside what is on STATE.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The kernel's last words.
    pub kernel_log: Option<String>,
    /// A watchdog has reset the machine.
    pub watchdog: bool,
}

impl Evidence {
    /// Looks for it. The kernel's last words are taken out of the firmware's memory, which holds few of them.
    #[must_use]
    pub fn collect(sysfs: &Path) -> Evidence {
        Evidence {
            kernel_log: take_kernel_log(&sysfs.join("fs/pstore")),
            watchdog: reset_by_watchdog(&sysfs.join("class/watchdog")),
        }
    }
}

/// Begins this boot's record; how the one before ended, if there was one.
///
/// # Errors
/// The volume's; then this boot's end will not be known.
pub fn begin(state: &Path, boot: &str, evidence: Evidence) -> io::Result<Option<LastStop>> {
    let _alone = alone();
    let before = read(state)?;
    write(state, &Record::of(boot))?;
    Ok(conclude(before, evidence))
}

/// How the boot before ended, as far as it can be told on a node that keeps nothing.
#[must_use]
pub fn without_record(evidence: Evidence) -> Option<LastStop> {
    conclude(None, evidence)
}

/// Writes down how this boot ends.
///
/// # Errors
/// The volume's.
pub fn record(state: &Path, boot: &str, stop: &Stop) -> io::Result<()> {
    change(state, boot, |record| record.stop = Some(stop.clone()))
}

/// Writes down that processes of services were killed for memory in this boot.
///
/// # Errors
/// The volume's.
pub fn record_kills(state: &Path, boot: &str, kills: Vec<Kill>) -> io::Result<()> {
    change(state, boot, |record| {
        record.kills.extend(kills);
        let older = record.kills.len().saturating_sub(oom::MOST);
        record.kills.drain(..older);
    })
}

/// Changes the record of this boot. What was there of another is not its own, and what cannot be read is replaced.
fn change(state: &Path, boot: &str, change: impl FnOnce(&mut Record)) -> io::Result<()> {
    let _alone = alone();
    let found = read(state).ok().flatten();
    let own = found.filter(|record| record.boot == boot);
    let mut record = own.unwrap_or_else(|| Record::of(boot));
    change(&mut record);
    write(state, &record)
}

/// What is locked is whole at any time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A damaged record is one without a reason; `None`: there is none.
fn read(state: &Path) -> io::Result<Option<Record>> {
    match fs::read(state.join(FILE)) {
        Ok(bytes) => Ok(Some(
            serde_json::from_slice(&bytes).unwrap_or_else(|_| Record::of("")),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(state: &Path, record: &Record) -> io::Result<()> {
    durable::replace(state, FILE, &serde_json::to_vec(record)?)
}

fn conclude(before: Option<Record>, evidence: Evidence) -> Option<LastStop> {
    let known = before.is_some();
    let Record { boot, stop, kills } = before.unwrap_or_else(|| Record::of(""));
    let cut_off = |reason, detail: &str| Stop {
        reason,
        detail: detail.to_owned(),
        at: String::new(),
    };
    // Also an orderly end may be cut off, and then its own word does not count.
    let stop = match (&evidence.kernel_log, stop) {
        (Some(log), _) => {
            let line = panic_line(log);
            let has_no_memory = NO_MEMORY.iter().any(|words| line.contains(words));
            let reason = match has_no_memory {
                true => Reason::OutOfMemory,
                false => Reason::Panic,
            };
            cut_off(reason, line)
        }
        (None, Some(stop)) => stop,
        (None, None) if evidence.watchdog => cut_off(Reason::Watchdog, ""),
        (None, None) if known => cut_off(Reason::CutOff, ""),
        (None, None) => return None,
    };
    Some(LastStop {
        boot,
        stop,
        kernel_log: evidence.kernel_log.unwrap_or_default(),
        kills,
    })
}

/// The line that says why, without its time.
fn panic_line(log: &str) -> &str {
    let line = log
        .lines()
        .find(|line| line.contains("Kernel panic - not syncing"));
    line.map(|line| line.split_once("] ").map_or(line, |(_, text)| text))
        .unwrap_or_default()
}

/// Reads and removes the records of pstore. A panic is kept in parts (Documentation/admin-guide/pstore-blk.rst
/// and fs/pstore/platform.c): each begins with a line `Panic#1 Part3`; part 1 is the newest.
fn take_kernel_log(pstore: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(pstore).ok()?.flatten() {
        let is_log = entry.file_name().to_string_lossy().starts_with("dmesg-");
        let Ok(bytes) = fs::read(entry.path()) else {
            continue;
        };
        // Its memory is small, and what is not removed keeps the next panic out.
        let _ = fs::remove_file(entry.path());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
        // An oops that the kernel survived is in its log anyway.
        if let Some(number) = part(title).filter(|_| is_log && title.starts_with("Panic")) {
            parts.push((number, body.to_owned()));
        }
    }
    parts.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    let log: String = parts.into_iter().map(|(_, body)| body).collect();
    // Readers see it; a panic soon after the start still has the kernel's command line.
    let log = parameters::hide(&log);
    let start = log.floor_char_boundary(log.len().saturating_sub(KERNEL_LOG));
    let shown = log.get(start..).unwrap_or_default();
    (!shown.is_empty()).then(|| shown.to_owned())
}

fn part(title: &str) -> Option<u32> {
    title.rsplit_once(" Part")?.1.trim().parse().ok()
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
    use super::*;

    fn begun(state: &Path, boot: &str, evidence: Evidence) -> Option<LastStop> {
        begin(state, boot, evidence).unwrap()
    }

    fn reason(last: Option<LastStop>) -> Option<Reason> {
        last.map(|last| last.stop.reason)
    }

    #[test]
    fn the_next_boot_knows_how_this_one_ended() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        assert_eq!(begun(state, "a", Evidence::default()), None);
        let stop = Stop::now(Reason::Reboot, "by the API");
        record(state, "a", &stop).unwrap();
        let last = begun(state, "b", Evidence::default()).unwrap();
        assert_eq!((last.boot.as_str(), last.stop), ("a", stop));
        // Boot b was cut off, and so was c, by something that could be told.
        let last = begun(state, "c", Evidence::default());
        assert_eq!(reason(last), Some(Reason::CutOff));
        let watchdog = Evidence {
            watchdog: true,
            ..Evidence::default()
        };
        assert_eq!(reason(begun(state, "d", watchdog)), Some(Reason::Watchdog));
        // A panic on the way out outdoes the reason that was written first.
        record(state, "d", &Stop::now(Reason::Shutdown, "")).unwrap();
        let panicked = Evidence {
            kernel_log: Some(
                "<0>[    9.1] Kernel panic - not syncing: NMI: Not continuing\n".to_owned(),
            ),
            ..Evidence::default()
        };
        let last = begun(state, "e", panicked).unwrap();
        assert_eq!(last.stop.reason, Reason::Panic);
        assert_eq!(
            last.stop.detail,
            "Kernel panic - not syncing: NMI: Not continuing"
        );
        assert!(last.kernel_log.ends_with("continuing\n"));
    }

    #[test]
    fn a_panic_without_memory_is_told_from_others() {
        for (line, expected) in [
            ("System is deadlocked on memory", Reason::OutOfMemory),
            (
                "Out of memory: compulsory panic_on_oom is enabled",
                Reason::OutOfMemory,
            ),
            ("Attempted to kill init! exitcode=0x00000009", Reason::Panic),
        ] {
            // Also others may have been killed for memory before.
            let log = format!(
                "<3>[ 8.0] Out of memory: Killed process 9 (a)\n<0>[ 9.1] Kernel panic - not syncing: {line}\n"
            );
            let evidence = Evidence {
                kernel_log: Some(log),
                ..Evidence::default()
            };
            assert_eq!(reason(without_record(evidence)), Some(expected), "{line}");
        }
    }

    #[test]
    fn the_next_boot_knows_what_was_killed_for_memory_in_this_one() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let kill = |number: usize| Kill {
            service: format!("ext-{number}"),
            process: "a".to_owned(),
            time: String::new(),
        };
        let kills = |last: Option<LastStop>| last.unwrap().kills;
        begun(state, "a", Evidence::default());
        record_kills(state, "a", vec![kill(0)]).unwrap();
        record_kills(state, "a", (1..=oom::MOST).map(kill).collect()).unwrap();
        let stop = Stop::now(Reason::Reboot, "by the API");
        record(state, "a", &stop).unwrap();
        let last = begun(state, "b", Evidence::default()).unwrap();
        // The last of them, and an end that is known all the same.
        assert_eq!(last.stop, stop);
        assert_eq!(last.kills, (1..=oom::MOST).map(kill).collect::<Vec<_>>());
        // Each boot has its own.
        assert!(kills(begun(state, "c", Evidence::default())).is_empty());
        record_kills(state, "c", vec![kill(7)]).unwrap();
        assert_eq!(kills(begun(state, "d", Evidence::default())), [kill(7)]);
    }

    #[test]
    fn a_damaged_record_is_one_without_a_reason() {
        let state = tempfile::tempdir().unwrap();
        for damage in [
            "",
            "{",
            "[]",
            "{\"boot\":\"a\",\"stop\":{\"reason\":\"new\"}}",
        ] {
            fs::write(state.path().join(FILE), damage).unwrap();
            let last = begun(state.path(), "b", Evidence::default());
            assert_eq!(reason(last), Some(Reason::CutOff), "{damage}");
        }
    }

    #[test]
    fn the_kernels_last_words_are_put_together_and_taken_away() {
        let sysfs = tempfile::tempdir().unwrap();
        let pstore = sysfs.path().join("fs/pstore");
        let watchdog = sysfs.path().join("class/watchdog/watchdog0");
        fs::create_dir_all(&pstore).unwrap();
        fs::create_dir_all(&watchdog).unwrap();
        fs::write(watchdog.join("bootstatus"), "0\n").unwrap();
        let put = |name: &str, text: &[u8]| fs::write(pstore.join(name), text).unwrap();
        put("dmesg-efi_pstore-171", b"Panic#1 Part1\nlast\n");
        let first = b"Panic#1 Part2\nfirst\n<5>[ 0.1] Command line: corten.config.inline=KLUv x\n";
        put("dmesg-efi_pstore-170", first);
        put("dmesg-efi_pstore-172", b"Oops#2 Part1\nsurvived\n");
        put("console-ramoops-0", b"Panic#1 Part3\nnot a dump\n");
        put("dmesg-efi_pstore-173", b"\xff\xfe");
        let evidence = Evidence::collect(sysfs.path());
        let expected = "first\n<5>[ 0.1] Command line: corten.config.inline=****** x\nlast\n";
        assert_eq!(evidence.kernel_log.as_deref(), Some(expected));
        assert!(!evidence.watchdog);
        assert_eq!(fs::read_dir(&pstore).unwrap().count(), 0);
        fs::write(watchdog.join("bootstatus"), "32\n").unwrap();
        let evidence = Evidence::collect(sysfs.path());
        assert!(evidence.kernel_log.is_none() && evidence.watchdog);
    }
}
