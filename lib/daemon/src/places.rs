//! Limits of connections, as places that a connection takes. A client without a certificate loses its place to a new
//! client. So a flood of strangers evicts only strangers, beginning with the peer that has most places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Peer;

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All connections.
    pub connections: usize,
    /// Connections of one peer without its strangers and administrators, and of one certificate from all peers.
    pub each: usize,
    /// Connections of strangers: during the handshake, and all connections of a server that asks for no certificate.
    pub strangers: usize,
    /// Strangers of one peer.
    pub strangers_each: usize,
    /// Connections, out of all, that only administrators may keep.
    pub for_admins: usize,
}

/// The places of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Holders in order of arrival.
    places: BTreeMap<u64, Holder>,
    next: u64,
}

#[derive(Debug)]
struct Holder {
    peer: Peer,
    /// The client's certificate; `None`: a stranger.
    known: Option<Known>,
    /// Dropping it signals the eviction.
    _gone: oneshot::Sender<()>,
}

/// A client that has shown a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Identity of the certificate: its serial number.
    pub certificate: String,
    /// Whether the client is an administrator, for whom places are reserved.
    pub is_admin: bool,
}

impl Places {
    /// Places with these limits.
    #[must_use]
    pub fn new(bounds: Bounds) -> Places {
        Places(Arc::new(Shared {
            bounds,
            taken: Mutex::default(),
        }))
    }

    /// Takes a place for a new connection; at the limit it evicts the oldest stranger of a peer. That is the same peer
    /// at its own limit, else the peer with most strangers. `None` when no stranger can be evicted.
    #[must_use]
    pub fn enter(&self, peer: Peer) -> Option<(Place, Evicted)> {
        let bounds = self.0.bounds;
        let mut taken = self.taken();
        let (mut all, mut strangers, mut own_strangers) = (0, 0, 0);
        for holder in taken.places.values() {
            let is_own = usize::from(holder.peer == peer);
            let is_stranger = usize::from(holder.is_stranger());
            all += 1;
            strangers += is_stranger;
            own_strangers += is_own * is_stranger;
        }
        // The known connections of the peer do not count yet: an administrator may share its address with clients that
        // use up its limit.
        if own_strangers >= bounds.strangers_each {
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
                known: None,
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

    /// Number of places taken: in all, and by strangers.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let taken = self.taken();
        let strangers = taken.places.values().filter(|holder| holder.is_stranger());
        (taken.places.len(), strangers.count())
    }
}

impl Holder {
    fn is_stranger(&self) -> bool {
        self.known.is_none()
    }
}

impl Taken {
    fn evict(&mut self, of: impl Fn(&Holder) -> bool) -> Option<()> {
        // The number of strangers of each peer, and its first one.
        let mut peers: HashMap<Peer, (usize, u64)> = HashMap::new();
        for (number, holder) in &self.places {
            if holder.is_stranger() && of(holder) {
                peers.entry(holder.peer).or_insert((0, *number)).0 += 1;
            }
        }
        let most = peers
            .into_values()
            .max_by_key(|(count, first)| (*count, Reverse(*first)));
        self.places.remove(&most?.1);
        Some(())
    }
}

/// The place of a connection; dropping it frees the place.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
}

/// Resolves when the place was given to another connection.
#[derive(Debug)]
pub struct Evicted(oneshot::Receiver<()>);

impl Evicted {
    /// Waits for the eviction.
    pub async fn wait(self) {
        let _ = self.0.await;
    }
}

impl Place {
    /// Keeps the place for a client that has shown a certificate. `false`: the certificate or the peer is at its limit, or
    /// the rest is reserved for administrators; the client then stays a stranger.
    #[must_use]
    pub fn keep(&self, known: Known) -> bool {
        let bounds = self.places.0.bounds;
        let mut taken = self.places.taken();
        let own = taken.places.get(&self.number).map(|own| own.peer);
        let (mut same, mut others, mut neighbours) = (0, 0, 0);
        for holder in taken.places.values() {
            let Some(other) = &holder.known else { continue };
            same += usize::from(other.certificate == known.certificate);
            others += usize::from(!other.is_admin);
            neighbours += usize::from(!other.is_admin && Some(holder.peer) == own);
        }
        let for_others = bounds.connections.saturating_sub(bounds.for_admins);
        let is_too_many = others >= for_others || neighbours >= bounds.each;
        if same >= bounds.each || (!known.is_admin && is_too_many) {
            return false;
        }
        if let Some(holder) = taken.places.get_mut(&self.number) {
            holder.known = Some(known);
        }
        true
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
        for_admins: 0,
    };

    fn peer(last: u8) -> Peer {
        Peer::of([10, 0, 0, last].into())
    }

    fn known(certificate: &str, is_admin: bool) -> Known {
        Known {
            certificate: certificate.to_owned(),
            is_admin,
        }
    }

    #[tokio::test]
    async fn unauthenticated_connections_evict_each_other_and_never_authenticated_ones() {
        let places = Places::new(BOUNDS);
        let held = places.enter(peer(1)).unwrap();
        assert!(held.0.keep(known("1", false)));
        // The third stranger of a peer evicts its first.
        let (first, evicted) = places.enter(peer(1)).unwrap();
        let second = places.enter(peer(1)).unwrap();
        let third = places.enter(peer(1)).unwrap();
        evicted.wait().await;
        assert!(first.keep(known("1", false)));
        assert_eq!(places.count(), (3, 2));
        // The fifth stranger evicts one of the peer with most.
        let others: Vec<_> = (2..=5)
            .map(|last| places.enter(peer(last)).unwrap())
            .collect();
        assert_eq!(places.count(), (5, 4));
        drop((first, second, third));
        assert_eq!(places.count(), (5, 4));
        drop(others);
        assert_eq!(places.count(), (1, 0));
        drop(held);
        assert_eq!(places.count(), (0, 0));
    }

    #[tokio::test]
    async fn peer_with_the_most_connections_is_evicted_first() {
        let places = Places::new(BOUNDS);
        let first = places.enter(peer(1)).unwrap();
        let flood = [
            places.enter(peer(2)).unwrap(),
            places.enter(peer(2)).unwrap(),
        ];
        let fourth = places.enter(peer(3)).unwrap();
        let fifth = places.enter(peer(4)).unwrap();
        let [(gone, evicted), second] = flood;
        evicted.wait().await;
        // All peers have one stranger, so the oldest is evicted.
        let sixth = places.enter(peer(5)).unwrap();
        first.1.wait().await;
        assert_eq!(places.count(), (4, 4));
        drop((first.0, gone, second, fourth, fifth, sixth));
        assert_eq!(places.count(), (0, 0));
    }

    #[test]
    fn new_connection_is_refused_when_all_places_are_authenticated() {
        let places = Places::new(BOUNDS);
        let enter = |last: u8| {
            let (place, _) = places.enter(peer(last))?;
            let is_kept = place.keep(known(&last.to_string(), false));
            is_kept.then_some(place)
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

    #[test]
    fn administrator_enters_behind_the_address_of_a_greedy_client() {
        let places = Places::new(BOUNDS);
        let keep = |known: Known| {
            let (place, _evicted) = places.enter(peer(1)).unwrap();
            place.keep(known).then_some(place)
        };
        let names = ["a", "b", "c", "d"];
        let held = names.map(|name| keep(known(name, false)).unwrap());
        assert!(keep(known("e", false)).is_none());
        assert!(keep(known("admin", true)).is_some());
        drop(held);
    }

    #[test]
    fn certificate_has_one_share_across_peers_and_places_are_reserved_for_admins() {
        let places = Places::new(Bounds {
            for_admins: 1,
            ..BOUNDS
        });
        let keep = |from: u8, known: Known| {
            let (place, _evicted) = places.enter(peer(from)).unwrap();
            place.keep(known).then_some(place)
        };
        let mut held: Vec<_> = (1..=4)
            .map(|from| keep(from, known("a", false)).unwrap())
            .collect();
        assert!(keep(5, known("a", false)).is_none());
        held.extend(keep(5, known("b", false)));
        assert_eq!(places.count(), (5, 0));
        assert!(keep(6, known("c", false)).is_none());
        held.extend(keep(6, known("d", true)));
        assert_eq!(places.count(), (6, 0));
    }
}
