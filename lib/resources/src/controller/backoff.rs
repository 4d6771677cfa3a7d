//! Exponential backoff of failed controllers.

use std::time::Duration;

/// Delay after the first failure.
const FIRST: Duration = Duration::from_millis(500);
/// Upper bound of the delay, which doubles with each failure.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// The delay grows with each failure until a reset.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay after a failure. `random` adds a jitter of a quarter up or down, so that controllers that failed
    /// together do not retry together.
    pub(super) fn next(&mut self, random: u64) -> Duration {
        let doubled = FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1).min(31);
        let percent = 75 + u32::try_from(random % 51).unwrap_or_default();
        doubled.min(LONGEST) * percent / 100
    }

    /// Resets the delay after a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_a_limit_and_resets() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| backoff.next(25).as_millis()).collect();
        assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
        assert_eq!(waits[39], 60_000);
        backoff.reset();
        assert_eq!(backoff.next(25), FIRST);
    }

    #[test]
    fn jitter_changes_the_backoff_by_at_most_a_quarter() {
        for random in 0..200 {
            let wait = Backoff::default().next(random);
            assert!((FIRST * 3 / 4..=FIRST * 5 / 4).contains(&wait), "{wait:?}");
        }
    }
}
