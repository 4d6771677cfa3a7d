//! The last changes of one kind, and who has read how far.
//!
//! Memory is bounded by [`Bounds::most`] changes. As a rule far fewer are kept: [`Bounds::few`], for clients that come
//! back with a bookmark, and those the slowest watcher has still to read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::resource::Resource;

/// How many changes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Though every watcher has read them.
    pub(crate) few: usize,
    /// For a slow watcher; one that is slower has fallen behind.
    pub(crate) most: usize,
}

/// Of most kinds. The second is the number clients know from elsewhere.
pub(crate) const USUAL: Bounds = Bounds {
    few: 64,
    most: 1024,
};
/// Of [`crate::Spec::IS_LARGE`]: a change holds two specs, and old ones are not kept for long.
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

/// A watcher's place.
#[derive(Debug)]
struct Seat {
    /// The first change it has not read.
    position: u64,
    wake: Arc<Notify>,
}

/// Changes of one kind in the order they were made, numbered from 0.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Change>,
    /// The number of the first change kept.
    first: u64,
    bounds: Bounds,
    /// Beyond this many, it is looked whether some can go.
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

    /// The number the next change will have.
    pub(crate) fn head(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The number of the first change that can still be read.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Adds a change and says whom to wake. Who still has something to read is awake: it sleeps only after
    /// it read to the head.
    pub(crate) fn push(&mut self, change: Change) -> Vec<Arc<Notify>> {
        let head = self.head();
        self.changes.push_back(change);
        if self.changes.len() > self.limit {
            self.forget();
        }
        let asleep = self.seats.values().filter(|seat| seat.position == head);
        asleep.map(|seat| seat.wake.clone()).collect()
    }

    /// Every watcher's place is looked at here, so not at every push: the limit is twice what is needed.
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
        // They notice when they next read; until then they hold nothing up.
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

    /// Up to `most` changes from `position` on, and moves the seat behind them.
    ///
    /// # Errors
    /// How many changes are forgotten that should have been read first.
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
