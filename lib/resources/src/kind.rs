//! The resources of one type in one namespace, under one lock.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::history::{Bounds, Change, History};
use crate::resource::Resource;

/// Resources by id.
pub(crate) type Resources = BTreeMap<Arc<str>, Arc<Resource>>;

/// The data under the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) resources: Resources,
    pub(crate) history: History,
}

/// The resources of one type in one namespace.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Part of every bookmark, to recognise one of another kind or another boot.
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

    /// Locks the state, only briefly: no await and no foreign code runs under the lock.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so a panic leaves no half-made change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change and wakes the watchers that wait for it. A refused or needless change wakes none.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut Resources) -> Result<(T, Option<Change>), StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.state();
        let (answer, change) = change(&mut state.resources)?;
        let asleep = change.map(|change| state.history.push(change));
        // Released first, because the woken watchers need the lock.
        drop(state);
        for watcher in asleep.unwrap_or_default() {
            watcher.notify_one();
        }
        Ok(answer)
    }
}

/// A random number against accidental collisions; not for secrets.
pub(crate) fn random() -> u64 {
    // The standard library seeds its hashers randomly.
    RandomState::new().build_hasher().finish()
}
