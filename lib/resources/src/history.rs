//! The last changes of one kind, and the position of each watcher.
//!
//! [`Bounds::most`] changes bound the memory. Usually far fewer are kept: [`Bounds::few`], for clients that return with
//! a bookmark, and those that the slowest watcher has not read yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::resource::Resource;

/// Limits of the number of changes in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Changes kept after every watcher has read them.
    pub(crate) few: usize,
    /// Changes kept for a slow watcher; a slower one has fallen behind.
    pub(crate) most: usize,
}

/// Limits of most kinds. Clients of the reference expect the second one.
pub(crate) const USUAL: Bounds = Bounds {
    few: 64,
    most: 1024,
};
/// Limits for [`crate::Spec::IS_LARGE`]: a change holds two specs, and old ones must go soon.
pub(crate) const LARGE: Bounds = Bounds { few: 1, most: 8 };

/// One write.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Created(Arc<Resource>),
    Updated {
        new: Arc<Resource>,
        old: Arc<Resource>,
    },
    Destroyed(Arc<Resource>),
}

/// The position of a watcher.
#[derive(Debug)]
struct Seat {
    /// Number of the first unread change.
    position: u64,
    wake: Arc<Notify>,
}

/// Changes of one kind in order, numbered from 0.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Change>,
    /// Number of the first change in the history.
    first: u64,
    bounds: Bounds,
    /// Length at which old changes are dropped.
    limit: usize,
    seats: HashMap<u64, Seat>,
    next_seat: u64,
}

impl History {
    pub(crate) fn new(bounds: Bounds) -> History {
        History {
            changes: VecDeque::new(),
            first: 0,
            bounds,
            limit: 2 * bounds.few,
            seats: HashMap::new(),
            next_seat: 0,
        }
    }

    /// Number of the next change.
    pub(crate) fn head(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Number of the first change that can still be read.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Adds a change and returns the watchers to wake. A watcher with unread changes is awake: it sleeps only after it
    /// has read to the head.
    pub(crate) fn push(&mut self, change: Change) -> Vec<Arc<Notify>> {
        let head = self.head();
        self.changes.push_back(change);
        if self.changes.len() > self.limit {
            self.forget();
        }
        let asleep = self.seats.values().filter(|seat| seat.position == head);
        asleep.map(|seat| seat.wake.clone()).collect()
    }

    /// Drops old changes. It visits every watcher, so it runs only when the length is twice the need.
    fn forget(&mut self) {
        let head = self.head();
        let Bounds { few, most } = self.bounds;
        let slowest = self.seats.values().map(|seat| seat.position).min();
        let unread = usize::try_from(head - slowest.unwrap_or(head)).unwrap_or(most);
        let keep = unread.clamp(few, most);
        let forgotten = self.changes.len().saturating_sub(keep);
        self.changes.drain(..forgotten);
        self.first += forgotten as u64;
        self.limit = (2 * keep).min(most);
        // A watcher that fell behind notices at its next read; until then it must not keep changes alive.
        let first = self.first;
        self.seats.retain(|_, seat| seat.position >= first);
        self.changes.shrink_to(self.limit + 1);
    }

    pub(crate) fn sit_down(&mut self, position: u64, wake: Arc<Notify>) -> u64 {
        let seat = self.next_seat;
        self.next_seat += 1;
        self.seats.insert(seat, Seat { position, wake });
        seat
    }

    pub(crate) fn get_up(&mut self, seat: u64) {
        self.seats.remove(&seat);
    }

    /// Returns up to `most` changes from `position` on, and moves the watcher's position behind them.
    ///
    /// # Errors
    /// The number of changes that were dropped before the watcher read them.
    pub(crate) fn read(
        &mut self,
        seat: u64,
        position: u64,
        most: usize,
    ) -> Result<Vec<Change>, u64> {
        if position < self.first {
            return Err(self.first - position);
        }
        let skip = usize::try_from(position - self.first).unwrap_or(usize::MAX);
        let changes: Vec<Change> = self.changes.iter().skip(skip).take(most).cloned().collect();
        if let Some(seat) = self.seats.get_mut(&seat) {
            seat.position = position + changes.len() as u64;
        }
        Ok(changes)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }
}
