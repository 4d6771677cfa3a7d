//! Random moments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Random moments; the seed is printed, so that a failing run shows it.
#[derive(Debug)]
pub struct Moments(u64);

impl Moments {
    /// Moments with a seed from the clock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "two sets of moments differ, and a default value does not"
    )]
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = now.map_or(1, |now| u64::from(now.subsec_nanos()) | 1);
        eprintln!("seed {seed}");
        Self(seed)
    }

    /// A duration below `longest`, by a linear congruential generator (Knuth's MMIX).
    pub fn next(&mut self, longest: Duration) -> Duration {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = u32::try_from(self.0 >> 48).unwrap_or_default();
        longest * part / 65_536
    }
}
