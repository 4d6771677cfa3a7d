//! Watching: every change of a kind, in the order it was made, as long as the watcher keeps up.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::metadata::Pointer;
use crate::query::Query;
use crate::resource::Resource;
use crate::store::{Change, Kind};

/// Changes taken from the history at a time; bounds what a watcher holds.
const BATCH: usize = 64;

/// A place in the changes of a kind, to go on from after a break. Opaque outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookmark {
    /// The kind's.
    nonce: u64,
    /// The change to go on with.
    position: u64,
}

impl Bookmark {
    /// For the wire: the kind's number and the position, 8 bytes each, big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let both = (u128::from(self.nonce) << 64) | u128::from(self.position);
        both.to_be_bytes()
    }

    /// What [`Bookmark::to_bytes`] made.
    ///
    /// # Errors
    /// [`StoreError::BookmarkGone`] when it did not.
    pub fn from_bytes(bytes: &[u8]) -> Result<Bookmark, StoreError> {
        let bytes: [u8; 16] = bytes.try_into().map_err(|_| StoreError::BookmarkGone)?;
        let both = u128::from_be_bytes(bytes);
        let half = |number: u128| u64::try_from(number & u128::from(u64::MAX));
        match (half(both >> 64), half(both)) {
            (Ok(nonce), Ok(position)) => Ok(Bookmark { nonce, position }),
            _ => Err(StoreError::BookmarkGone),
        }
    }
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// With the next change.
    #[default]
    Now,
    /// With the next change, after a [`Happened::Noop`] whose bookmark says where that is.
    Bookmarked,
    /// With what is there, told as created, then [`Happened::Bootstrapped`].
    Contents,
    /// With the last so many changes, as far as they are remembered.
    Tail(usize),
    /// With the first change after the event that had this bookmark.
    After(Bookmark),
}

/// What a watcher is told.
#[derive(Debug, Clone)]
pub enum Happened {
    /// It is there now.
    Created(Arc<Resource>),
    /// It changed.
    Updated {
        /// What it is now.
        new: Arc<Resource>,
        /// What it was.
        old: Arc<Resource>,
    },
    /// It is gone; this was the last of it.
    Destroyed(Arc<Resource>),
    /// The watched resource is not there. Only as the first event of a watch of one.
    Absent(Pointer),
    /// All that is there has been told; changes follow.
    Bootstrapped,
    /// Nothing; the bookmark counts.
    Noop,
    /// The watch is over, and why.
    Errored(StoreError),
}

/// Something that happened, and the place behind it.
#[derive(Debug, Clone)]
pub struct Event {
    /// What.
    pub happened: Happened,
    /// Where to go on after a break. Not every event is such a place: who breaks off in the middle of the
    /// contents has to begin again.
    pub bookmark: Option<Bookmark>,
}

#[derive(Debug)]
enum Filter {
    One(Arc<str>),
    Meant(Query),
}

/// A watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    kind: Arc<Kind>,
    filter: Filter,
    seat: u64,
    /// The next change to read.
    position: u64,
    /// Told next.
    queue: VecDeque<Event>,
    wake: Arc<Notify>,
    ended: bool,
}

impl Watcher {
    pub(crate) fn of_one(
        kind: Arc<Kind>,
        pointer: &Pointer,
        start: Start,
    ) -> Result<Watcher, StoreError> {
        if start == Start::Contents {
            return Err(StoreError::SingleWatch);
        }
        let filter = Filter::One(pointer.id.clone());
        let first = |found: Vec<Arc<Resource>>| match found.into_iter().next() {
            Some(resource) => vec![Happened::Created(resource)],
            None => vec![Happened::Absent(pointer.clone())],
        };
        Watcher::new(kind, filter, start, Arc::default(), first)
    }

    pub(crate) fn of_kind(
        kind: Arc<Kind>,
        query: Query,
        start: Start,
    ) -> Result<Watcher, StoreError> {
        Watcher::waking(kind, query, start, Arc::default())
    }

    /// One of several watches of one watcher, who waits for all of them at once.
    pub(crate) fn waking(
        kind: Arc<Kind>,
        query: Query,
        start: Start,
        wake: Arc<Notify>,
    ) -> Result<Watcher, StoreError> {
        let contents = |found: Vec<Arc<Resource>>| {
            let created = found.into_iter().map(Happened::Created);
            created.chain([Happened::Bootstrapped]).collect()
        };
        Watcher::new(kind, Filter::Meant(query), start, wake, contents)
    }

    /// `first` says what to tell of the present contents.
    fn new(
        kind: Arc<Kind>,
        filter: Filter,
        start: Start,
        wake: Arc<Notify>,
        first: impl FnOnce(Vec<Arc<Resource>>) -> Vec<Happened>,
    ) -> Result<Watcher, StoreError> {
        let mut state = kind.state();
        let head = state.history.head();
        let oldest = state.history.first();
        let mut contents = None;
        let position = match (start, &filter) {
            (Start::Now | Start::Bookmarked, Filter::One(id)) => {
                contents = Some(state.resources.get(id).cloned().into_iter().collect());
                head
            }
            (Start::Contents, _) => {
                contents = Some(state.resources.values().cloned().collect::<Vec<_>>());
                head
            }
            (Start::Now | Start::Bookmarked, Filter::Meant(_)) => head,
            (Start::Tail(count), _) => head.saturating_sub(count as u64).max(oldest),
            (Start::After(bookmark), _) => {
                let known =
                    bookmark.nonce == kind.nonce && (oldest..=head).contains(&bookmark.position);
                if !known {
                    return Err(StoreError::BookmarkGone);
                }
                bookmark.position
            }
        };
        let seat = state.history.sit_down(position, wake.clone());
        drop(state);
        let mut watcher = Watcher {
            kind,
            filter,
            seat,
            position,
            queue: VecDeque::new(),
            wake,
            ended: false,
        };
        if start == Start::Bookmarked {
            watcher.tell(Happened::Noop, Some(position));
        }
        if let Some(contents) = contents {
            let meant = match &watcher.filter {
                Filter::One(_) => contents,
                Filter::Meant(query) => query.select(contents.iter()),
            };
            let mut first = first(meant);
            let last = first.pop();
            for happened in first {
                watcher.tell(happened, None);
            }
            if let Some(last) = last {
                watcher.tell(last, Some(position));
            }
        }
        Ok(watcher)
    }

    /// The next event; `None` after [`Happened::Errored`]. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.next_now() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.wake.notified().await;
        }
    }

    /// The next event if there is one already.
    pub fn next_now(&mut self) -> Option<Event> {
        while self.queue.is_empty() && !self.ended {
            let read = self
                .kind
                .state()
                .history
                .read(self.seat, self.position, BATCH);
            match read {
                Ok(changes) if changes.is_empty() => return None,
                Ok(changes) => {
                    for change in changes {
                        self.position += 1;
                        if let Some(happened) = self.filter.sees(change) {
                            self.tell(happened, Some(self.position));
                        }
                    }
                }
                Err(missed) => {
                    self.ended = true;
                    self.tell(Happened::Errored(StoreError::FellBehind { missed }), None);
                }
            }
        }
        self.queue.pop_front()
    }

    fn tell(&mut self, happened: Happened, position: Option<u64>) {
        let nonce = self.kind.nonce;
        let bookmark = position.map(|position| Bookmark { nonce, position });
        self.queue.push_back(Event { happened, bookmark });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.kind.state().history.get_up(self.seat);
    }
}

impl Filter {
    fn sees(&self, change: Change) -> Option<Happened> {
        let is_meant = |resource: &Resource| match self {
            Filter::One(id) => resource.metadata.pointer.id == *id,
            Filter::Meant(query) => query.is_all() || query.matches(resource),
        };
        match change {
            Change::Created(new) => is_meant(&new).then_some(Happened::Created(new)),
            Change::Destroyed(old) => is_meant(&old).then_some(Happened::Destroyed(old)),
            Change::Updated { new, old } => match (is_meant(&old), is_meant(&new)) {
                (true, true) => Some(Happened::Updated { new, old }),
                (false, true) => Some(Happened::Created(new)),
                (true, false) => Some(Happened::Destroyed(new)),
                (false, false) => None,
            },
        }
    }
}
