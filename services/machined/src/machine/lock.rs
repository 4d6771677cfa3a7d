//! Why the node is locked, kept for the next boot.
//!
//! Owns where it is kept: with the boot's record on STATE, else in META. Never writes a META that is not whole: what is
//! left of it may name the owner, or say how STATE is opened.

use std::path::Path;

use corten_base::console;
use corten_base::durable;
use corten_meta::tags::LOCK;
use corten_sys::host;
use corten_volumes::STATE;

use super::Machine;
use crate::last_stop::{self, LastStop, Note};

impl Machine {
    /// Keeps why this boot is locked. Without STATE and META there is no place for it but the console.
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
                "why this node is locked is not kept for the next boot: {error}"
            ));
        }
    }

    /// `last` with what META tells of a boot that was locked; and a lock of this boot moves to STATE, once it is there.
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
        // What it said of the boot before it was told when this one began, and has been written over.
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

    /// What META tells of another boot could be told: the next boot need not.
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
            console::warn(&format!("META keeps why a boot was locked: {error}"));
        }
    }
}

fn warn_unless_kept(kept: std::io::Result<()>) {
    if let Err(error) = kept {
        console::warn(&format!("cannot keep why a boot was locked: {error}"));
    }
}
