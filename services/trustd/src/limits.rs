//! Rate limits of requests: one for each peer, and one for all peers together. Pure: the time is an argument.
//!
//! A flood of one peer meets its own limit, so it takes nothing from other peers. The generic cell rate algorithm
//! (ITU-T I.371, appendix A) needs one timestamp per peer, and no timer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use corten_daemon::Peer;

/// A burst, and then one request per interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) interval: Duration,
}

/// A node asks once in twelve hours, and retries with growing pauses; one address may hide a rack of nodes. A
/// connection counts like a call.
const PER_PEER: Rate = Rate {
    burst: 60,
    interval: Duration::from_millis(500),
};
/// A cluster of 1,000 nodes that starts at once is served within half a minute. 100 signatures per second take a few
/// percent of a core.
const TOTAL: Rate = Rate {
    burst: 400,
    interval: Duration::from_millis(10),
};
/// Limit of remembered peers; each costs about 64 bytes. A peer with a full allowance is forgotten.
const PEERS: usize = 4096;

/// Result of a request to the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the limits.
    Admitted,
    /// Over a limit. `first` is true for the first refusal in a row, which is logged.
    Refused { first: bool },
}

/// State of one limit: the time when its allowance is full again.
#[derive(Debug, Clone, Copy, Default)]
struct Allowance {
    whole_at: Option<Instant>,
    refused: bool,
}

impl Allowance {
    fn take(&mut self, rate: Rate, now: Instant) -> Verdict {
        let whole_at = self.whole_at.unwrap_or(now).max(now);
        let tolerated = rate.interval.saturating_mul(rate.burst.saturating_sub(1));
        if whole_at.saturating_duration_since(now) > tolerated {
            let first = !self.refused;
            self.refused = true;
            return Verdict::Refused { first };
        }
        self.refused = false;
        self.whole_at = whole_at.checked_add(rate.interval);
        Verdict::Admitted
    }

    fn is_whole(&self, now: Instant) -> bool {
        self.whole_at.is_none_or(|at| at <= now)
    }
}

/// The limits of all peers.
#[derive(Debug)]
pub(crate) struct Limits {
    per_peer: Rate,
    total: Rate,
    peers: HashMap<Peer, Allowance>,
    all: Allowance,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new(PER_PEER, TOTAL)
    }
}

impl Limits {
    pub(crate) fn new(per_peer: Rate, total: Rate) -> Limits {
        Limits {
            per_peer,
            total,
            peers: HashMap::new(),
            all: Allowance::default(),
        }
    }

    /// Whether this peer may make one more request now.
    pub(crate) fn take(&mut self, peer: IpAddr, now: Instant) -> Verdict {
        let rate = self.per_peer;
        let verdict = match self.peer(peer, now) {
            Some(allowance) => allowance.take(rate, now),
            // Too many peers to track: only the total limit applies.
            None => Verdict::Admitted,
        };
        match verdict {
            Verdict::Admitted => self.all.take(self.total, now),
            refused @ Verdict::Refused { .. } => refused,
        }
    }

    /// Time at which every allowance is whole; `None` if all are. An allowance that is not whole is the only state.
    pub(crate) fn whole_at(&self, now: Instant) -> Option<Instant> {
        let peers = self.peers.values().chain([&self.all]);
        let missing = peers.filter(|allowance| !allowance.is_whole(now));
        missing.filter_map(|allowance| allowance.whole_at).max()
    }

    fn peer(&mut self, peer: IpAddr, now: Instant) -> Option<&mut Allowance> {
        let peer = Peer::of(peer);
        if !self.peers.contains_key(&peer) && self.peers.len() >= PEERS {
            self.peers.retain(|_, allowance| !allowance.is_whole(now));
            if self.peers.len() >= PEERS {
                return None;
            }
        }
        Some(self.peers.entry(peer).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(per_peer: u32, total: u32) -> Limits {
        let rate = |burst| Rate {
            burst,
            interval: SECOND,
        };
        Limits::new(rate(per_peer), rate(total))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn admitted(limits: &mut Limits, peer: &str, now: Instant, tries: u32) -> u32 {
        let admitted = (0..tries).filter(|_| limits.take(ip(peer), now) == Verdict::Admitted);
        u32::try_from(admitted.count()).unwrap()
    }

    #[test]
    fn flood_gets_its_burst_and_then_one_request_per_interval() {
        let (mut limits, now) = (limits(5, 1000), Instant::now());
        assert_eq!(admitted(&mut limits, "10.0.0.1", now, 100), 5);
        assert_eq!(admitted(&mut limits, "10.0.0.1", now + 3 * SECOND, 100), 3);
        assert_eq!(
            admitted(&mut limits, "10.0.0.1", now + 100 * SECOND, 100),
            5
        );
    }

    #[test]
    fn flood_of_one_peer_does_not_limit_other_peers() {
        let (mut limits, now) = (limits(5, 12), Instant::now());
        assert_eq!(admitted(&mut limits, "10.0.0.1", now, 100_000), 5);
        assert_eq!(admitted(&mut limits, "10.0.0.2", now, 5), 5);
        // Until the total limit is reached.
        assert_eq!(admitted(&mut limits, "10.0.0.3", now, 5), 2);
    }

    #[test]
    fn ipv6_network_is_one_peer_and_mapped_addresses_are_ipv4() {
        let (mut limits, now) = (limits(2, 1000), Instant::now());
        assert_eq!(admitted(&mut limits, "fd00::1", now, 1), 1);
        assert_eq!(admitted(&mut limits, "fd00::2", now, 5), 1);
        assert_eq!(admitted(&mut limits, "fd00:0:0:1::2", now, 5), 2);
        assert_eq!(admitted(&mut limits, "::ffff:10.0.0.1", now, 1), 1);
        assert_eq!(admitted(&mut limits, "10.0.0.1", now, 5), 1);
    }

    #[test]
    fn consecutive_refusals_are_logged_once() {
        let (mut limits, now) = (limits(1, 1000), Instant::now());
        let peer = ip("10.0.0.1");
        assert_eq!(limits.take(peer, now), Verdict::Admitted);
        assert_eq!(limits.take(peer, now), Verdict::Refused { first: true });
        assert_eq!(limits.take(peer, now), Verdict::Refused { first: false });
        assert_eq!(limits.take(peer, now + SECOND), Verdict::Admitted);
        assert_eq!(
            limits.take(peer, now + SECOND),
            Verdict::Refused { first: true }
        );
    }

    #[test]
    fn limits_are_remembered_until_every_allowance_is_whole() {
        let (mut limits, now) = (limits(5, 3), Instant::now());
        assert_eq!(limits.whole_at(now), None);
        admitted(&mut limits, "10.0.0.1", now, 100);
        // Refused requests do not prolong it.
        assert_eq!(limits.whole_at(now), Some(now + 5 * SECOND));
        assert_eq!(limits.whole_at(now + 5 * SECOND), None);
    }

    #[test]
    fn number_of_remembered_peers_is_bounded() {
        let (mut limits, now) = (limits(5, u32::MAX), Instant::now());
        for n in 0..20_000u32 {
            let peer = IpAddr::from(n.to_be_bytes());
            assert_eq!(limits.take(peer, now), Verdict::Admitted);
        }
        assert!(limits.peers.len() <= PEERS);
        // The peers are forgotten later, and new ones are tracked again.
        assert_eq!(admitted(&mut limits, "10.0.0.1", now + 10 * SECOND, 100), 5);
    }
}
