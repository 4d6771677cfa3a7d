//! Keeps the reason of a lock for the next boot.
//!
//! Owns the choice of its place: the boot's record on STATE, else META. Never writes a damaged META: its remains may
//! name the owner or say how STATE is encrypted.

use std::path::Path;

use corten_base::console;
use corten_base::durable;
use corten_meta::tags::LOCK;
use corten_persistence::last_stop::{self, LastStop, Note};
use corten_sys::host;
use corten_volumes::STATE;

use super::Machine;

impl Machine {
    /// Keeps the reason why this boot is locked. Without STATE and META, only the console has it.
    pub(super) fn keep_lock(&self, why: &str) {
        let (state, boot) = (Path::new(STATE.target), host::boot_id());
        let meta = self.node.meta();
        let kept = if durable::is_volume(state) {
            last_stop::record_lock(state, &boot, why).map_err(|error| error.to_string())
        } else if meta.is_open() {
            let note = Note::now(&boot, why).write();
            let note = note.map_err(|error| error.to_string());
            note.and_then(|note| meta.note(LOCK, note).map_err(|error| error.to_string()))
        } else {
            Ok(())
        };
        if let Err(error) = kept {
            console::warn(&format!(
                "cannot record for the next boot why this node is locked: {error}"
            ));
        }
    }

    /// Adds META's note of a locked boot to `last`. A note of this boot moves to STATE once STATE is mounted.
    pub(super) fn heed_lock(&self, last: Option<LastStop>) -> Option<LastStop> {
        let Some(note) = self.lock_note() else {
            return last;
        };
        let (state, boot) = (Path::new(STATE.target), host::boot_id());
        let has_state = durable::is_volume(state);
        if note.boot != boot {
            if has_state {
                warn_unless_kept(last_stop::saw(state, &boot, &note.boot));
            }
            return Some(last_stop::heed(last, note));
        }
        // This boot's note has overwritten the earlier one, which the start of this boot has reported already.
        let known = self.node.last_stops().borrow().clone();
        if has_state {
            let moved = last_stop::record_lock(state, &boot, &note.why);
            if moved.is_ok() {
                self.forget_lock();
            }
            warn_unless_kept(moved);
        }
        known.filter(|known| !known.locked.is_empty()).or(last)
    }

    /// Removes META's note of another boot, now that this boot has reported it.
    pub(super) fn told_lock(&self) {
        let note = self.lock_note();
        if note.is_some_and(|note| note.boot != host::boot_id()) {
            self.forget_lock();
        }
    }

    fn lock_note(&self) -> Option<Note> {
        let values = self.node.meta().watch();
        Note::read(values.borrow().get(&LOCK)?)
    }

    fn forget_lock(&self) {
        if let Err(error) = self.node.meta().change(LOCK, None) {
            console::warn(&format!(
                "cannot remove the note of a locked boot from META: {error}"
            ));
        }
    }
}

fn warn_unless_kept(kept: std::io::Result<()>) {
    if let Err(error) = kept {
        console::warn(&format!("cannot record why a boot was locked: {error}"));
    }
}
