//! Counts a shared resource: limits in total, per peer and per certificate, so that one caller cannot exhaust it. A
//! reserve is for administrators.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corten_daemon::Peer;

/// The holder of a share.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) peer: Peer,
    /// Serial number of the certificate; `None` without client certificates.
    pub(crate) certificate: Option<String>,
    pub(crate) is_admin: bool,
}

/// Key that an amount counts under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Peer(Peer),
    Certificate(String),
}

impl Holder {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let certificate = self.certificate.clone().map(Key::Certificate);
        [Key::Peer(self.peer)].into_iter().chain(certificate)
    }
}

/// A shared resource.
#[derive(Debug, Clone)]
pub(crate) struct Quota(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Limit in total.
    most: usize,
    /// Limit per peer and per certificate.
    most_each: usize,
    /// Part of the total that only administrators may use.
    for_admins: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    each: HashMap<Key, usize>,
}

impl Quota {
    pub(crate) fn new(most: usize, most_each: usize, for_admins: usize) -> Quota {
        Quota(Arc::new(Shared {
            most,
            most_each,
            for_admins,
            used: Mutex::default(),
        }))
    }

    /// Takes `amount` for `holder`; `None` if that exceeds a limit.
    pub(crate) fn take(&self, holder: &Holder, amount: usize) -> Option<Taken> {
        let mut taken = self.begin(holder);
        taken.grow(amount).then_some(taken)
    }

    /// An empty share of `holder` that may grow.
    pub(crate) fn begin(&self, holder: &Holder) -> Taken {
        Taken {
            quota: self.clone(),
            holder: holder.clone(),
            amount: 0,
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The total amount in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.used().all
    }
}

/// A share of a quota, returned on drop.
#[derive(Debug)]
pub(crate) struct Taken {
    quota: Quota,
    holder: Holder,
    amount: usize,
}

impl Taken {
    /// Raises the share to `amount`. Returns false and changes nothing if that exceeds a limit.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        let shared = &self.quota.0;
        let mut used = self.quota.used();
        // An administrator may share the address, or the forwarding node, with a client that uses up its limit.
        let (kept, most_each) = match self.holder.is_admin {
            true => (0, shared.most_each.saturating_add(shared.for_admins)),
            false => (shared.for_admins, shared.most_each),
        };
        let is_too_much = |key| {
            let has = used.each.get(&key).copied().unwrap_or(0);
            has.saturating_add(more) > most_each
        };
        if used.all.saturating_add(more) > shared.most.saturating_sub(kept)
            || self.holder.keys().any(is_too_much)
        {
            return more == 0;
        }
        if more > 0 {
            used.all += more;
            for key in self.holder.keys() {
                *used.each.entry(key).or_insert(0) += more;
            }
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
        for key in self.holder.keys() {
            let left = used.each.get(&key).copied().unwrap_or(0);
            if left > self.amount {
                used.each.insert(key, left - self.amount);
            } else {
                used.each.remove(&key);
            }
        }
    }
}

/// A holder at this address without a certificate.
#[cfg(test)]
pub(crate) fn holder(address: &str) -> Holder {
    Holder {
        peer: Peer::of(address.parse().unwrap()),
        certificate: None,
        is_admin: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrator_has_the_reserve_behind_the_address_of_a_greedy_client() {
        let quota = Quota::new(10, 6, 2);
        let greedy = quota.take(&holder("10.0.0.1"), 6).unwrap();
        assert!(quota.take(&holder("10.0.0.1"), 1).is_none());
        let admin = Holder {
            is_admin: true,
            ..holder("10.0.0.1")
        };
        let own = quota.take(&admin, 2).unwrap();
        assert!(quota.take(&admin, 1).is_none());
        drop((greedy, own));
    }

    #[test]
    fn peer_cannot_take_the_whole_quota_and_all_of_it_is_returned() {
        let quota = Quota::new(10, 6, 0);
        let mut first = quota.take(&holder("10.0.0.1"), 4).unwrap();
        assert!(first.grow(6));
        assert!(first.grow(5) && !first.grow(7));
        assert!(quota.take(&holder("10.0.0.1"), 1).is_none());
        let second = quota.take(&holder("10.0.0.2"), 4).unwrap();
        assert!(quota.take(&holder("10.0.0.3"), 1).is_none());
        assert!(quota.take(&holder("10.0.0.3"), usize::MAX).is_none());
        assert_eq!(quota.in_use(), 10);
        drop((first, second));
        assert_eq!(quota.in_use(), 0);
        assert!(quota.used().each.is_empty());
    }

    #[test]
    fn certificate_has_one_share_across_peers_and_quota_is_reserved_for_admins() {
        let quota = Quota::new(10, 6, 2);
        let from = |address: &str, certificate: &str, is_admin| Holder {
            certificate: Some(certificate.to_owned()),
            is_admin,
            ..holder(address)
        };
        let reader = [
            quota.take(&from("10.0.0.1", "a", false), 3).unwrap(),
            quota.take(&from("10.0.0.2", "a", false), 3).unwrap(),
        ];
        assert!(quota.take(&from("10.0.0.3", "a", false), 1).is_none());
        let another = quota.take(&from("10.0.0.3", "b", false), 2).unwrap();
        assert!(quota.take(&from("10.0.0.4", "c", false), 1).is_none());
        let admin = quota.take(&from("10.0.0.4", "d", true), 2).unwrap();
        drop((reader, another, admin));
        assert_eq!(quota.in_use(), 0);
        assert!(quota.used().each.is_empty());
    }
}
