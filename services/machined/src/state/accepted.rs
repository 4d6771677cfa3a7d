//! The machine config that clients see: the newest accepted one. It is active soon after the answer to its call.
//!
//! Never: decides which config is active.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corten_config::Document;
use tokio::sync::watch;

/// The newest accepted config, and those that wait for their activation.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// Accepted configs that are not active yet; the oldest is first.
    waiting: Mutex<VecDeque<Document>>,
    shown: watch::Sender<Option<Document>>,
}

impl Accepted {
    /// Shows a config that waits for its activation.
    pub(super) fn accept(&self, document: Document) {
        let mut waiting = self.waiting();
        waiting.push_back(document.clone());
        self.shown.send_replace(Some(document));
    }

    /// Shows a config that has become active, unless a newer one waits.
    pub(super) fn activate(&self, document: Document) {
        let mut waiting = self.waiting();
        let is_front = |front: &Document| front.source() == document.source();
        if waiting.front().is_some_and(is_front) {
            waiting.pop_front();
        }
        let newest = waiting.back().cloned();
        self.shown.send_replace(Some(newest.unwrap_or(document)));
    }

    /// A receiver of the shown config.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Document>> {
        self.shown.subscribe()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Document>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    #[test]
    fn newest_accepted_config_stays_shown_while_older_ones_become_active() {
        let config = |name: &str| sample::config(&format!("network: {{hostname: {name}}}"), "");
        let accepted = Accepted::default();
        let shown = accepted.subscribe();
        let is_shown = |name: &str| {
            let shown = shown.borrow();
            assert_eq!(shown.as_ref().unwrap().hostname(), Some(name));
        };
        accepted.activate(config("first"));
        is_shown("first");
        for name in ["second", "third"] {
            accepted.accept(config(name));
            is_shown(name);
        }
        accepted.activate(config("second"));
        is_shown("third");
        accepted.activate(config("third"));
        is_shown("third");
        // The trial of the third has ended.
        accepted.activate(config("second"));
        is_shown("second");
    }
}
