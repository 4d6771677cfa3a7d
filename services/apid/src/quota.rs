//! Counting what is in use: so much in all, and so much by one peer, so that none takes it from all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corten_daemon::Peer;

/// An amount that peers share.
#[derive(Debug, Clone)]
pub(crate) struct Quota(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// For all peers together.
    most: usize,
    /// For one of them.
    most_each: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    each: HashMap<Peer, usize>,
}

impl Quota {
    pub(crate) fn new(most: usize, most_each: usize) -> Quota {
        Quota(Arc::new(Shared {
            most,
            most_each,
            used: Mutex::default(),
        }))
    }

    /// Takes `amount` for `peer`; nothing when it would be too much.
    pub(crate) fn take(&self, peer: Peer, amount: usize) -> Option<Taken> {
        let mut taken = Taken {
            quota: self.clone(),
            peer,
            amount: 0,
        };
        taken.grow(amount).then_some(taken)
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all peers together have.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.used().all
    }
}

/// Part of a quota; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Taken {
    quota: Quota,
    peer: Peer,
    amount: usize,
}

impl Taken {
    /// Makes it `amount` if it is less, or tells that this would be too much and changes nothing.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        let shared = &self.quota.0;
        let mut used = self.quota.used();
        let peers = used.each.get(&self.peer).copied().unwrap_or(0);
        if used.all.saturating_add(more) > shared.most
            || peers.saturating_add(more) > shared.most_each
        {
            return false;
        }
        if more > 0 {
            used.all += more;
            used.each.insert(self.peer, peers + more);
            drop(used);
            self.amount += more;
        }
        true
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut used = self.quota.used();
        used.all = used.all.saturating_sub(self.amount);
        let left = used.each.get(&self.peer).copied().unwrap_or(0);
        if left > self.amount {
            used.each.insert(self.peer, left - self.amount);
        } else {
            used.each.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::of(text.parse().unwrap())
    }

    #[test]
    fn one_peer_leaves_something_for_the_next_and_all_comes_back() {
        let quota = Quota::new(10, 6);
        let mut first = quota.take(peer("10.0.0.1"), 4).unwrap();
        assert!(first.grow(6));
        assert!(first.grow(5) && !first.grow(7));
        assert!(quota.take(peer("10.0.0.1"), 1).is_none());
        let second = quota.take(peer("10.0.0.2"), 4).unwrap();
        assert!(quota.take(peer("10.0.0.3"), 1).is_none());
        assert!(quota.take(peer("10.0.0.3"), usize::MAX).is_none());
        assert_eq!(quota.in_use(), 10);
        drop((first, second));
        assert_eq!(quota.in_use(), 0);
        assert!(quota.used().each.is_empty());
    }
}
