//! Determines why the previous boot ended, from its own record or from other evidence, and whether it was locked.
//!
//! A boot writes a record without a reason to STATE when it begins, and adds the reason at its end. Without a reason,
//! the cause is a panic (pstore has the kernel's last words), a watchdog (its driver reports it), or a power loss.

mod evidence;
mod lock;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use corten_base::durable;
use corten_types::stop::Kill;
use serde::{Deserialize, Serialize};

use crate::oom;
pub use corten_types::stop::{Reason, Stop};
pub use evidence::Evidence;
pub use lock::{Note, heed};

/// File name on STATE.
const FILE: &str = "last-stop.json";
/// Texts of a panic that the kernel raises when memory runs out (`out_of_memory` and `check_panic_on_oom` of
/// mm/oom_kill.c).
const NO_MEMORY: [&str; 2] = ["System is deadlocked on memory", "Out of memory"];

/// Held while the record is read, changed and written.
static RECORD: Mutex<()> = Mutex::new(());

/// The record on STATE.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Boot id from the kernel.
    boot: String,
    stop: Option<Stop>,
    /// The most recent kills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kills: Vec<Kill>,
    /// The kernel's last words that this boot, or an earlier one that could not report them, has found. Cleared when
    /// they are reported.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    words: String,
    /// Reason of the last lock of this boot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    locked: String,
    /// Boot id of the note in META that this boot has found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    noted: String,
}

impl Record {
    fn of(boot: &str) -> Record {
        Record {
            boot: boot.to_owned(),
            stop: None,
            kills: Vec::new(),
            words: String::new(),
            locked: String::new(),
            noted: String::new(),
        }
    }
}

/// The record of the end of the previous boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastStop {
    /// Boot id of the previous boot; empty if unknown.
    pub boot: String,
    /// Reason of its end.
    pub stop: Stop,
    /// The kernel's last words if it panicked, else those of an earlier panic that it could not report.
    pub kernel_log: String,
    /// Processes of services that were killed for memory in that boot, the most recent ones.
    pub kills: Vec<Kill>,
    /// Reason of its lock, and the remedy; empty if it was not locked.
    pub locked: String,
    /// Boot id of the note in META that it had found, or that identifies it.
    noted: String,
}

impl LastStop {
    /// Interprets a record: without a reason the boot was cut off. If it ended before it could report an earlier panic,
    /// the panic is added here.
    fn of(record: Record) -> LastStop {
        let Record {
            boot,
            stop,
            kills,
            words,
            locked,
            noted,
        } = record;
        let mut stop = stop.unwrap_or_else(|| Stop::untimed(Reason::CutOff, ""));
        if !words.is_empty() {
            let panic = format!("before it, a panic: {}", panic_line(&words));
            append(&mut stop.detail, &panic);
        }
        LastStop {
            boot,
            stop,
            kernel_log: words,
            kills,
            locked,
            noted,
        }
    }
}

fn append(detail: &mut String, more: &str) {
    if !detail.is_empty() {
        detail.push_str("; ");
    }
    detail.push_str(more);
}

/// Begins this boot's record. Returns the end of the previous boot, as far as it is known now. Clears the kernel's last
/// words from the machine's memory after STATE holds them.
///
/// The second value is the volume's error. The result is valid nevertheless, but this boot's end will be unknown.
pub fn begin(state: &Path, boot: &str, evidence: &Evidence) -> (Option<LastStop>, io::Result<()>) {
    let _alone = alone();
    let (before, was_read) = match read(state) {
        Ok(before) => (before, Ok(())),
        Err(error) => (None, Err(error)),
    };
    // The previous boot stored these words but was cut off before it cleared them from the machine's memory.
    let are_old = match (&before, &evidence.kernel_log) {
        (Some(before), Some(words)) => before.words == *words,
        _ => false,
    };
    let last = before.map(LastStop::of);
    let last = if are_old { last } else { amend(last, evidence) };
    let mut record = Record::of(boot);
    // Also keeps words that the previous boot could not report: this boot may be cut off as early.
    record.words = last
        .as_ref()
        .map_or_else(String::new, |last| last.kernel_log.clone());
    let kept = write(state, &record);
    if kept.is_ok() {
        evidence.forget();
    }
    (last, was_read.and(kept))
}

/// Adds the evidence of drivers in modules, which load after the record was begun.
pub fn learn(
    state: &Path,
    boot: &str,
    last: Option<LastStop>,
    evidence: &Evidence,
) -> (Option<LastStop>, io::Result<()>) {
    let kept = match &evidence.kernel_log {
        Some(words) => change(state, boot, |record| record.words.clone_from(words)),
        None => Ok(()),
    };
    if kept.is_ok() {
        evidence.forget();
    }
    (amend(last, evidence), kept)
}

/// Combines `last`, from a record if there is one, with the machine's evidence. The evidence wins: an orderly end may
/// be cut off, too, and then its recorded reason is wrong.
#[must_use]
pub fn amend(last: Option<LastStop>, evidence: &Evidence) -> Option<LastStop> {
    let is_cut_off = |last: &LastStop| last.stop.reason == Reason::CutOff;
    let stop = match &evidence.kernel_log {
        Some(words) => {
            let line = panic_line(words);
            let has_no_memory = NO_MEMORY.iter().any(|words| line.contains(words));
            let reason = match has_no_memory {
                true => Reason::OutOfMemory,
                false => Reason::Panic,
            };
            Stop::untimed(reason, line)
        }
        None if evidence.watchdog && last.as_ref().is_none_or(is_cut_off) => {
            let detail = last.as_ref().map_or("", |last| &last.stop.detail);
            Stop::untimed(Reason::Watchdog, detail)
        }
        None => return last,
    };
    let last = last.unwrap_or_else(|| LastStop::of(Record::of("")));
    Some(LastStop {
        stop,
        kernel_log: evidence.kernel_log.clone().unwrap_or(last.kernel_log),
        ..last
    })
}

/// Clears the stored words of a panic after they were reported.
///
/// # Errors
/// Those of the volume.
pub fn clear_reported_words(state: &Path, boot: &str) -> io::Result<()> {
    let keeps_words = |record: Record| record.boot == boot && !record.words.is_empty();
    if read(state)?.is_some_and(keeps_words) {
        change(state, boot, |record| record.words.clear())?;
    }
    Ok(())
}

/// Records how this boot ends.
///
/// # Errors
/// Those of the volume.
pub fn record(state: &Path, boot: &str, stop: &Stop) -> io::Result<()> {
    change(state, boot, |record| record.stop = Some(stop.clone()))
}

/// Records why this boot is locked, and the remedy.
///
/// # Errors
/// Those of the volume.
pub fn record_lock(state: &Path, boot: &str, why: &str) -> io::Result<()> {
    change(state, boot, |record| why.clone_into(&mut record.locked))
}

/// Records that this boot found the note that boot `noted` left in META.
///
/// # Errors
/// Those of the volume.
pub fn saw(state: &Path, boot: &str, noted: &str) -> io::Result<()> {
    change(state, boot, |record| noted.clone_into(&mut record.noted))
}

/// Records that processes of services were killed for memory in this boot.
///
/// # Errors
/// Those of the volume.
pub fn record_kills(state: &Path, boot: &str, kills: Vec<Kill>) -> io::Result<()> {
    change(state, boot, |record| {
        record.kills.extend(kills);
        let older = record.kills.len().saturating_sub(oom::MOST);
        record.kills.drain(..older);
    })
}

/// Changes this boot's record. A record of another boot or an unreadable one is replaced.
fn change(state: &Path, boot: &str, change: impl FnOnce(&mut Record)) -> io::Result<()> {
    let _alone = alone();
    let found = read(state).ok().flatten();
    let own = found.filter(|record| record.boot == boot);
    let mut record = own.unwrap_or_else(|| Record::of(boot));
    change(&mut record);
    write(state, &record)
}

/// Locks the record. The data behind the lock is always valid, so a poisoned lock is fine.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the record. A damaged one counts as one without a reason; `None` if there is none.
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

/// The line of the panic, without its time stamp.
fn panic_line(log: &str) -> &str {
    let line = log
        .lines()
        .find(|line| line.contains("Kernel panic - not syncing"));
    line.map(|line| line.split_once("] ").map_or(line, |(_, text)| text))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(state: &Path, boot: &str, evidence: Evidence) -> Option<LastStop> {
        let (last, kept) = begin(state, boot, &evidence);
        kept.unwrap();
        last
    }

    fn panicked(why: &str) -> Evidence {
        Evidence {
            kernel_log: Some(format!("<0>[    9.1] Kernel panic - not syncing: {why}\n")),
            ..Evidence::default()
        }
    }

    fn reason(last: Option<LastStop>) -> Option<Reason> {
        last.map(|last| last.stop.reason)
    }

    #[test]
    fn end_of_a_boot_is_known_to_the_next_boot() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        assert_eq!(begun(state, "a", Evidence::default()), None);
        let stop = Stop::now(Reason::Reboot, "by the API");
        record(state, "a", &stop).unwrap();
        let last = begun(state, "b", Evidence::default()).unwrap();
        assert_eq!((last.boot.as_str(), last.stop), ("a", stop));
        // Boot b was cut off, and so was c, with evidence.
        let last = begun(state, "c", Evidence::default());
        assert_eq!(reason(last), Some(Reason::CutOff));
        let watchdog = Evidence {
            watchdog: true,
            ..Evidence::default()
        };
        assert_eq!(reason(begun(state, "d", watchdog)), Some(Reason::Watchdog));
        // A panic during the end overrides the recorded reason.
        record(state, "d", &Stop::now(Reason::Shutdown, "")).unwrap();
        let last = begun(state, "e", panicked("NMI: Not continuing")).unwrap();
        assert_eq!(last.stop.reason, Reason::Panic);
        assert_eq!(
            last.stop.detail,
            "Kernel panic - not syncing: NMI: Not continuing"
        );
        assert!(last.kernel_log.ends_with("continuing\n"));
    }

    #[test]
    fn out_of_memory_panic_is_distinguished_from_other_panics() {
        for (line, expected) in [
            ("System is deadlocked on memory", Reason::OutOfMemory),
            (
                "Out of memory: compulsory panic_on_oom is enabled",
                Reason::OutOfMemory,
            ),
            ("Attempted to kill init! exitcode=0x00000009", Reason::Panic),
        ] {
            // Other processes may have been killed for memory before.
            let log = format!(
                "<3>[ 8.0] Out of memory: Killed process 9 (a)\n<0>[ 9.1] Kernel panic - not syncing: {line}\n"
            );
            let evidence = Evidence {
                kernel_log: Some(log),
                ..Evidence::default()
            };
            assert_eq!(reason(amend(None, &evidence)), Some(expected), "{line}");
        }
    }

    #[test]
    fn oom_kills_of_a_boot_are_known_to_the_next_boot() {
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
        // The most recent kills, and the recorded end.
        assert_eq!(last.stop, stop);
        assert_eq!(last.kills, (1..=oom::MOST).map(kill).collect::<Vec<_>>());
        // Each boot has its own kills.
        assert!(kills(begun(state, "c", Evidence::default())).is_empty());
        record_kills(state, "c", vec![kill(7)]).unwrap();
        assert_eq!(kills(begun(state, "d", Evidence::default())), [kill(7)]);
    }

    #[test]
    fn damaged_stop_record_counts_as_a_cut_off_boot() {
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
    fn panic_is_reported_although_the_boot_that_found_it_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        begun(state, "a", Evidence::default());
        // Boot b finds the words and is cut off before it reports them, before or after the machine has cleared them.
        // The next two boots are cut off, too. Words of a newer panic replace the old ones.
        for (why, forgotten) in [("zero", false), ("one", true)] {
            let last = begun(state, "b", panicked(why)).unwrap();
            assert_eq!(last.stop.reason, Reason::Panic);
            for (before, boot) in [("b", "b2"), ("b2", "b3"), ("b3", "c")] {
                let again = if forgotten {
                    Evidence::default()
                } else {
                    panicked(why)
                };
                let last = begun(state, boot, again).unwrap();
                assert_eq!(last.stop.reason, Reason::CutOff);
                assert_eq!(last.boot, before);
                let detail = format!("before it, a panic: Kernel panic - not syncing: {why}");
                assert_eq!(last.stop.detail, detail);
                assert!(last.kernel_log.ends_with(&format!("{why}\n")));
            }
        }
        // An orderly end before the report keeps the words, too.
        record(state, "c", &Stop::now(Reason::Reboot, "by the API")).unwrap();
        let last = begun(state, "c2", Evidence::default()).unwrap();
        let detail = "by the API; before it, a panic: Kernel panic - not syncing: one";
        assert_eq!(
            (last.stop.reason, last.stop.detail.as_str()),
            (Reason::Reboot, detail)
        );
        assert!(last.kernel_log.ends_with("one\n"));
        // Boot c2 has reported everything and is cut off; boot d panics itself.
        clear_reported_words(state, "c2").unwrap();
        let last = begun(state, "d", Evidence::default()).unwrap();
        assert_eq!(
            (last.stop.detail.as_str(), last.kernel_log.as_str()),
            ("", "")
        );
        let last = begun(state, "e", panicked("two")).unwrap();
        assert_eq!((last.boot.as_str(), last.stop.reason), ("d", Reason::Panic));
        clear_reported_words(state, "e").unwrap();
        // Another panic with a similar text is not a known one.
        let last = begun(state, "f", panicked("two")).unwrap();
        assert_eq!((last.boot.as_str(), last.stop.reason), ("e", Reason::Panic));
    }

    #[test]
    fn evidence_of_late_drivers_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        begun(state, "a", Evidence::default());
        let last = begun(state, "b", Evidence::default());
        let watchdog = Evidence {
            watchdog: true,
            ..Evidence::default()
        };
        let (known, kept) = learn(state, "b", last.clone(), &watchdog);
        kept.unwrap();
        assert_eq!(reason(known), Some(Reason::Watchdog));
        let (known, kept) = learn(state, "b", last, &panicked("one"));
        kept.unwrap();
        assert_eq!(reason(known), Some(Reason::Panic));
        // The words are kept until they are reported.
        let last = begun(state, "c", Evidence::default()).unwrap();
        assert!(last.kernel_log.ends_with("one\n"));
        // A recorded end is trusted even if the watchdog fired during it.
        record(state, "c", &Stop::now(Reason::Reboot, "")).unwrap();
        let last = begun(state, "d", watchdog);
        assert_eq!(reason(last), Some(Reason::Reboot));
    }

    #[test]
    fn evidence_stays_in_pstore_until_state_can_store_it() {
        let directory = tempfile::tempdir().unwrap();
        let words = directory.path().join("dmesg-efi_pstore-1");
        fs::write(&words, "").unwrap();
        let evidence = || Evidence {
            records: vec![words.clone()],
            ..panicked("one")
        };
        // The record can be neither read nor written.
        let broken = directory.path().join("state");
        fs::write(&broken, "").unwrap();
        let (last, kept) = begin(&broken, "b", &evidence());
        assert_eq!(reason(last), Some(Reason::Panic));
        kept.unwrap_err();
        assert!(words.exists());
        // The record can be read but not written.
        fs::remove_file(&broken).unwrap();
        fs::create_dir(&broken).unwrap();
        begun(&broken, "a", Evidence::default());
        fs::create_dir(broken.join(durable::UNFINISHED)).unwrap();
        let (last, kept) = begin(&broken, "b", &evidence());
        assert_eq!(last.unwrap().boot, "a");
        kept.unwrap_err();
        assert!(words.exists());
        // After STATE is repaired.
        fs::remove_dir(broken.join(durable::UNFINISHED)).unwrap();
        let last = begun(&broken, "c", evidence()).unwrap();
        assert_eq!((last.boot.as_str(), last.stop.reason), ("a", Reason::Panic));
        assert!(!words.exists());
    }
}
