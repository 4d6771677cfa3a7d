//! The note in META that says why a boot was locked. STATE may be the broken part of a locked node.
//!
//! Owns the note and its interpretation by the next boot. A boot with STATE uses the record there instead.

use std::time::SystemTime;

use corten_base::calendar::rfc3339;
use corten_types::stop::{Reason, Stop};
use serde::{Deserialize, Serialize};

use super::{LastStop, append};

/// Maximum length of a kept reason, in bytes: META is small.
const LONGEST: usize = 4096;

/// Note that a locked boot leaves for the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Boot ID of the kernel.
    pub boot: String,
    /// Reason for the lock, and the remedy.
    pub why: String,
    /// Time of the lock (RFC 3339).
    pub at: String,
    /// End of the boot, if the boot could still record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
}

impl Note {
    /// The note of the boot `boot`, which is locked now.
    #[must_use]
    pub fn now(boot: &str, why: &str) -> Note {
        Note {
            boot: boot.to_owned(),
            why: bounded(why),
            at: rfc3339(SystemTime::now()),
            stop: None,
        }
    }

    /// Decodes META's value; `None`: it is no note.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Note> {
        let note: Note = serde_json::from_slice(value).ok()?;
        // The console shows the text, and any writer of the disk may have forged it.
        let why = bounded(&note.why);
        Some(Note { why, ..note })
    }

    /// Encodes the note for META.
    ///
    /// # Errors
    /// No known case.
    pub fn write(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// The text as one line of at most [`LONGEST`] bytes.
fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    let shown = text.get(..end).unwrap_or_default();
    shown.replace(char::is_control, " ")
}

/// Combines `last`, the previous boot by the record on STATE, with a note that an earlier boot left in META. The boot
/// of the note was the previous one, unless `last` has seen the note itself.
#[must_use]
pub fn heed(last: Option<LastStop>, note: Note) -> LastStop {
    let Some(mut last) = last else {
        return LastStop {
            boot: note.boot.clone(),
            stop: note.end(),
            kernel_log: String::new(),
            kills: Vec::new(),
            locked: note.why,
            noted: note.boot,
        };
    };
    if last.noted == note.boot {
        append(
            &mut last.stop.detail,
            &format!("before it, a boot that was locked: {}", note.why),
        );
        return last;
    }
    // These reasons come from the machine's evidence, which is of the newest boot: the one that left the note.
    let is_seen = matches!(
        last.stop.reason,
        Reason::Panic | Reason::OutOfMemory | Reason::Watchdog
    );
    LastStop {
        boot: note.boot.clone(),
        stop: if is_seen { last.stop } else { note.end() },
        kernel_log: last.kernel_log,
        kills: Vec::new(),
        locked: note.why,
        noted: note.boot,
    }
}

impl Note {
    fn end(&self) -> Stop {
        let unknown = || Stop::untimed(Reason::CutOff, "");
        self.stop.clone().unwrap_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Evidence, amend, begin, record_lock, saw};
    use super::*;

    fn begun(state: &std::path::Path, boot: &str) -> Option<LastStop> {
        let (last, kept) = begin(state, boot, &Evidence::default());
        kept.unwrap();
        last
    }

    #[test]
    fn lock_reason_of_a_boot_is_known_to_the_next_boot() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        begun(state, "a");
        record_lock(state, "a", "the config of STATE is not used: line 1").unwrap();
        let last = begun(state, "b").unwrap();
        assert_eq!(last.boot, "a");
        assert_eq!(last.locked, "the config of STATE is not used: line 1");
        // Boot b was not locked.
        assert_eq!(begun(state, "c").unwrap().locked, "");
    }

    #[test]
    fn boot_locked_without_state_is_reported_as_the_previous_boot() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        begun(state, "a");
        // Boot b could not use STATE: the record there is still that of boot a.
        let mut note = Note::now("b", "STATE: /dev/vda4 is damaged");
        let value = note.write().unwrap();
        assert_eq!(Note::read(&value).as_ref(), Some(&note));
        let alone = heed(None, note.clone());
        assert_eq!((&*alone.boot, alone.stop.reason), ("b", Reason::CutOff));
        note.stop = Some(Stop::now(Reason::Reboot, "by the API"));
        let last = heed(begun(state, "c"), note.clone());
        assert_eq!((&*last.boot, &*last.locked), ("b", &*note.why));
        assert_eq!(Some(last.stop), note.stop);
        // Boot c is cut off before it reports the note.
        saw(state, "c", &note.boot).unwrap();
        let last = heed(begun(state, "d"), note.clone());
        assert_eq!((&*last.boot, &*last.locked), ("c", ""));
        let told = "before it, a boot that was locked: STATE: /dev/vda4 is damaged";
        assert_eq!(last.stop.detail, told);
    }

    #[test]
    fn panic_of_a_locked_boot_is_attributed_to_it() {
        let evidence = Evidence {
            kernel_log: Some("<0>[ 9.1] Kernel panic - not syncing: zero\n".to_owned()),
            ..Evidence::default()
        };
        let last = heed(amend(None, &evidence), Note::now("b", "why"));
        assert_eq!((last.stop.reason, &*last.locked), (Reason::Panic, "why"));
        assert!(last.kernel_log.ends_with("zero\n"));
    }

    #[test]
    fn hostile_lock_notes_are_ignored_or_one_bounded_line() {
        for none in [&b""[..], b"{", b"[]", b"{\"boot\":1}", b"\xff"] {
            assert_eq!(Note::read(none), None);
        }
        let mut note = Note::now("b", "");
        note.why = format!("\u{1b}[2J\n{}", "\u{e9}".repeat(9000));
        let read = Note::read(&note.write().unwrap()).unwrap();
        assert!(read.why.len() <= LONGEST && read.why.starts_with(" [2J \u{e9}"));
    }
}
