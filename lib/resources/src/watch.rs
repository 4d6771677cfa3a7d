//! Watches: all changes of a kind in their order, for a watcher that keeps up.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::history::Change;
use crate::kind::Kind;
use crate::metadata::Pointer;
use crate::query::Query;
use crate::resource::Resource;

/// Number of changes read from the history at once; it bounds the memory of a watcher.
const BATCH: usize = 64;

/// A position in the changes of a kind, to resume a watch. Opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookmark {
    /// Nonce of the kind.
    nonce: u64,
    /// Number of the next change.
    position: u64,
}

impl Bookmark {
    /// Encodes the bookmark: the nonce and the position, 8 bytes each, big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let both = (u128::from(self.nonce) << 64) | u128::from(self.position);
        both.to_be_bytes()
    }

    /// Decodes the bytes of [`Bookmark::to_bytes`].
    ///
    /// # Errors
    /// [`StoreError::BookmarkGone`] for other bytes.
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

/// The start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// The next change.
    #[default]
    Now,
    /// The next change, after a [`Happened::Noop`] with a bookmark of that position.
    Bookmarked,
    /// The present contents as created events, then [`Happened::Bootstrapped`].
    Contents,
    /// The last changes, at most this many, as far as the history has them.
    Tail(usize),
    /// The first change after the event with this bookmark.
    After(Bookmark),
}

/// The content of an event.
#[derive(Debug, Clone)]
pub enum Happened {
    /// The resource was created, or exists at the start of the watch.
    Created(Arc<Resource>),
    /// The resource changed.
    Updated {
        /// The new state.
        new: Arc<Resource>,
        /// The old state.
        old: Arc<Resource>,
    },
    /// The resource was destroyed; its last state.
    Destroyed(Arc<Resource>),
    /// The watched resource does not exist. Only the first event of a single-resource watch.
    Absent(Pointer),
    /// All present contents were sent; changes follow.
    Bootstrapped,
    /// No change; carries only a bookmark.
    Noop,
    /// The watch ended with this error.
    Errored(StoreError),
}

/// An event, with the position after it.
#[derive(Debug, Clone)]
pub struct Event {
    /// Content of the event.
    pub happened: Happened,
    /// Position to resume from. Absent while the contents are sent: a client that stops there must start again.
    pub bookmark: Option<Bookmark>,
}

#[derive(Debug)]
enum Filter {
    One(Arc<str>),
    Meant(Query),
}

/// A watch; dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    kind: Arc<Kind>,
    filter: Filter,
    seat: u64,
    /// Number of the next change to read.
    position: u64,
    /// Events to deliver next.
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

    /// One of several watches that share a wake-up.
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

    /// Starts a watch; `first` selects the events of the present contents.
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

    /// The next event; `None` after [`Happened::Errored`]. Cancel-safe.
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

    /// The next event, without waiting.
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
