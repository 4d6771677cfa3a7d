//! Places for connections. Who has shown no certificate makes room for who comes: a flood of strangers costs
//! only strangers their place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corten_daemon::Peer;
use tokio::sync::oneshot;

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// In all.
    pub(crate) connections: usize,
    /// Of one peer.
    pub(crate) each: usize,
    /// Of strangers: those in their handshake, and in maintenance all.
    pub(crate) strangers: usize,
    /// Of strangers that are one peer.
    pub(crate) strangers_each: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By order of coming.
    places: BTreeMap<u64, Holder>,
    next: u64,
}

#[derive(Debug)]
struct Holder {
    peer: Peer,
    is_stranger: bool,
    /// Dropping it tells that the place is gone.
    _gone: oneshot::Sender<()>,
}

impl Places {
    pub(crate) fn new(bounds: Bounds) -> Places {
        Places(Arc::new(Shared {
            bounds,
            taken: Mutex::default(),
        }))
    }

    /// A place for a peer that has just come, if need be that of the stranger who came first: of the same peer
    /// when that one has its share, else of all. `None` when there is none to take.
    pub(crate) fn enter(&self, peer: Peer) -> Option<(Place, Evicted)> {
        let bounds = self.0.bounds;
        let mut taken = self.taken();
        let (mut all, mut own, mut strangers, mut own_strangers) = (0, 0, 0, 0);
        for holder in taken.places.values() {
            let is_own = usize::from(holder.peer == peer);
            let is_stranger = usize::from(holder.is_stranger);
            all += 1;
            own += is_own;
            strangers += is_stranger;
            own_strangers += is_own * is_stranger;
        }
        if own >= bounds.each || own_strangers >= bounds.strangers_each {
            taken.evict(|holder| holder.peer == peer)?;
        } else if all >= bounds.connections || strangers >= bounds.strangers {
            taken.evict(|_| true)?;
        }
        let (_gone, evicted) = oneshot::channel();
        let number = taken.next;
        taken.next += 1;
        taken.places.insert(
            number,
            Holder {
                peer,
                is_stranger: true,
                _gone,
            },
        );
        let place = Place {
            places: self.clone(),
            number,
        };
        Some((place, Evicted(evicted)))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places taken: in all, and by strangers.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        let taken = self.taken();
        let strangers = taken.places.values().filter(|holder| holder.is_stranger);
        (taken.places.len(), strangers.count())
    }
}

impl Taken {
    fn evict(&mut self, of: impl Fn(&Holder) -> bool) -> Option<()> {
        let oldest = self
            .places
            .iter()
            .find(|(_, holder)| holder.is_stranger && of(holder));
        let oldest = *oldest?.0;
        self.places.remove(&oldest);
        Some(())
    }
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    number: u64,
}

/// Resolves when somebody else was given the place.
#[derive(Debug)]
pub(crate) struct Evicted(oneshot::Receiver<()>);

impl Evicted {
    pub(crate) async fn wait(self) {
        let _ = self.0.await;
    }
}

impl Place {
    /// Its holder has shown a certificate, and keeps it.
    pub(crate) fn keep(&self) {
        if let Some(holder) = self.places.taken().places.get_mut(&self.number) {
            holder.is_stranger = false;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        connections: 6,
        each: 4,
        strangers: 4,
        strangers_each: 2,
    };

    fn peer(last: u8) -> Peer {
        Peer::of([10, 0, 0, last].into())
    }

    #[tokio::test]
    async fn strangers_make_room_for_each_other_and_for_nobody_who_is_known() {
        let places = Places::new(BOUNDS);
        let known = places.enter(peer(1)).unwrap();
        known.0.keep();
        // A peer's third stranger takes the place of its first.
        let (first, evicted) = places.enter(peer(1)).unwrap();
        let second = places.enter(peer(1)).unwrap();
        let third = places.enter(peer(1)).unwrap();
        evicted.wait().await;
        first.keep();
        assert_eq!(places.count(), (3, 2));
        // The fifth of all takes the place of the oldest of all, whoever's it is.
        let others: Vec<_> = (2..=5)
            .map(|last| places.enter(peer(last)).unwrap())
            .collect();
        assert_eq!(places.count(), (5, 4));
        drop((first, second, third));
        assert_eq!(places.count(), (5, 4));
        drop(others);
        assert_eq!(places.count(), (1, 0));
        drop(known);
        assert_eq!(places.count(), (0, 0));
    }

    #[test]
    fn when_all_are_known_who_comes_is_refused() {
        let places = Places::new(BOUNDS);
        let enter = |last| {
            let (place, _) = places.enter(peer(last))?;
            place.keep();
            Some(place)
        };
        let held: Vec<_> = [1, 1, 1, 1, 2, 2].map(|last| enter(last).unwrap()).into();
        assert!(enter(3).is_none());
        drop(held);
        let held: Vec<_> = [1, 1, 1, 1].map(|last| enter(last).unwrap()).into();
        assert!(enter(1).is_none());
        assert!(enter(2).is_some());
        drop(held);
        assert_eq!(places.count(), (0, 0));
    }
}
