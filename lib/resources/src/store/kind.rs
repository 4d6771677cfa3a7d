//! The resources of one type in one namespace, under one lock.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::{Bounds, Change, History};
use crate::error::StoreError;
use crate::resource::Resource;

/// By id.
pub(crate) type Resources = BTreeMap<Arc<str>, Arc<Resource>>;

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) resources: Resources,
    pub(crate) history: History,
}

/// The resources of one type in one namespace.
#[derive(Debug)]
pub(crate) struct Kind {
    /// In every bookmark, so that one of another kind or another boot is recognised.
    pub(crate) nonce: u64,
    state: Mutex<State>,
}

impl Kind {
    pub(crate) fn new(bounds: Bounds) -> Kind {
        Kind {
            nonce: random(),
            state: Mutex::new(State {
                resources: Resources::new(),
                history: History::new(bounds),
            }),
        }
    }

    /// Held for a moment only: nothing is awaited and nobody else's code runs under it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so what a panic left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change, or none when it is refused or not needed, and wakes who waits for it.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut Resources) -> Result<(T, Option<Change>), StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.state();
        let (answer, change) = change(&mut state.resources)?;
        let asleep = change.map(|change| state.history.push(change));
        // They would only queue for the lock.
        drop(state);
        for watcher in asleep.unwrap_or_default() {
            watcher.notify_one();
        }
        Ok(answer)
    }
}

/// A number nobody guesses by accident; not for secrets.
pub(crate) fn random() -> u64 {
    // The standard library keys its hashers at random.
    RandomState::new().build_hasher().finish()
}
