//! The problems found in the documents of a platform.

use std::cell::RefCell;

/// Limit of reported problems per answer.
const MOST: usize = 16;

/// Problems, each with its place; further problems than the limit are left out.
#[derive(Debug, Default)]
pub(crate) struct Notes(RefCell<Vec<String>>);

impl Notes {
    pub(crate) fn note(&self, place: &str, what: &str) {
        let mut notes = self.0.borrow_mut();
        if notes.len() < MOST {
            notes.push(format!("{place}: {what}"));
        }
    }

    pub(crate) fn into_list(self) -> Vec<String> {
        self.0.into_inner()
    }
}
