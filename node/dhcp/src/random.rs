//! Random numbers of a client: transaction ids, and delays that keep machines which start together from asking together.

use std::time::Duration;

/// A generator (splitmix64). Its seed makes a state machine's steps repeatable; nothing here is a secret.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// A seed from the kernel. Falls back to zeros when the kernel has no entropy.
    pub fn from_kernel() -> Random {
        let mut bytes = [0; 8];
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        Random(u64::from_be_bytes(bytes))
    }

    #[cfg(test)]
    pub const fn of(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 31)).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// A time from zero to this one.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(f64::from(self.number()) / f64::from(u32::MAX))
    }

    /// A time that differs from this one by the spread at most.
    pub fn within(&mut self, middle: Duration, spread: Duration) -> Duration {
        middle
            .saturating_sub(spread)
            .saturating_add(self.up_to(spread.saturating_mul(2)))
    }
}

/// The delay before a message is sent again, doubled with each of the messages sent before.
pub(super) fn back_off(first: Duration, longest: Duration, before: u32) -> Duration {
    let times = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
    first.saturating_mul(times).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_a_limit() {
        let delays = [0, 1, 3, 4, 5, 99].map(|before| back_off(S * 4, S * 64, before));
        assert_eq!(delays, [4, 8, 32, 64, 64, 64].map(Duration::from_secs));
    }

    #[test]
    fn times_vary_within_their_spread() {
        let mut random = Random::of(7);
        let times = [0; 100].map(|_| random.within(S * 4, S));
        assert!(
            times.iter().all(|time| (S * 3..=S * 5).contains(time)),
            "{times:?}"
        );
        assert!(times.windows(2).all(|pair| pair[0] != pair[1]), "{times:?}");
        assert_eq!(random.up_to(Duration::ZERO), Duration::ZERO);
        assert!(random.within(Duration::MAX, S) >= Duration::MAX - S);
    }
}
