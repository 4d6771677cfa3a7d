//! Decides how to correct the clock, given the servers' answers.

use std::time::Duration;

use super::sntp::Sample;

/// Offset in nanoseconds above which the clock is stepped, not slewed: the reference's. The kernel slews up to 0.5 s.
const STEP: i64 = 400_000_000;
/// Step in nanoseconds that starts a new epoch, so that other programs notice it.
const NEW_EPOCH: i64 = 15 * 60 * 1_000_000_000;
/// Offset in nanoseconds below which the poll interval grows.
const GOOD: i64 = 25_000_000;
/// Poll interval as the logarithm of seconds: 32 s to 2048 s.
const SHORTEST: u8 = 5;
const LONGEST: u8 = 11;
/// Delay before a suspicious offset is measured again.
const SECOND_LOOK: Duration = Duration::from_secs(2);

/// Action on the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Step by this many nanoseconds.
    Step(i64),
    /// Slew by this many nanoseconds.
    Steer(i64),
    /// No action before a second measurement.
    Wait,
}

/// State of the clock discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discipline {
    /// Whether a server's time was applied.
    pub synced: bool,
    /// Whether programs use the clock: it is synchronized, or the node did not wait for that.
    pub in_use: bool,
    /// Number of steps above 15 minutes of a clock in use.
    pub epoch: u64,
    /// Poll interval as the logarithm of seconds.
    pub poll: u8,
    /// Consecutive answers without an action.
    pub spikes: u32,
    /// Offset of a possible step, measured once.
    suspicious: Option<i64>,
}

impl Default for Discipline {
    fn default() -> Discipline {
        Discipline {
            synced: false,
            in_use: false,
            epoch: 0,
            poll: SHORTEST,
            spikes: 0,
            suspicious: None,
        }
    }
}

impl Discipline {
    /// Whether the clock is synchronized and the offset needs no step.
    #[must_use]
    pub fn is_near(&self, sample: Sample) -> bool {
        self.synced && sample.offset.saturating_abs() <= STEP
    }

    /// Action after an answer, and the delay until the next query. The first answer is applied at once. A later step
    /// needs a second measurement, because one packet may be delayed on its way.
    pub fn take(&mut self, sample: Sample) -> (Act, Duration) {
        let offset = sample.offset;
        if offset.saturating_abs() <= STEP {
            self.suspicious = None;
            self.spikes = 0;
            (self.synced, self.in_use) = (true, true);
            let is_good = offset.saturating_abs() < GOOD.max(sample.delay / 2);
            self.poll = if is_good {
                LONGEST.min(self.poll + 1)
            } else {
                SHORTEST.max(self.poll - 1)
            };
            return (Act::Steer(offset), self.interval());
        }
        let agrees = |before: i64| before.saturating_sub(offset).saturating_abs() <= STEP;
        if self.synced && !self.suspicious.is_some_and(agrees) {
            self.suspicious = Some(offset);
            self.spikes = self.spikes.saturating_add(1);
            return (Act::Wait, SECOND_LOOK);
        }
        if self.in_use && offset.saturating_abs() > NEW_EPOCH {
            self.epoch += 1;
        }
        (self.synced, self.in_use) = (true, true);
        self.suspicious = None;
        self.spikes = 0;
        self.poll = SHORTEST;
        (Act::Step(offset), self.interval())
    }

    /// Doubles the poll interval when a server asks for fewer queries.
    pub fn ask_less(&mut self) {
        self.poll = LONGEST.min(self.poll + 1);
    }

    /// Time constant of the kernel's loop: the logarithm of the interval, less 4 (RFC 5905, section 12).
    #[must_use]
    pub fn time_constant(&self) -> u8 {
        self.poll.saturating_sub(4)
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1 << self.poll)
    }
}

/// Delay of the next attempt when no server answered: 1 s at first, doubled up to 32 s.
#[must_use]
pub fn retry(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(SHORTEST.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(milliseconds: i64) -> Sample {
        Sample {
            offset: milliseconds * 1_000_000,
            delay: 10_000_000,
            distance: 0,
        }
    }

    #[test]
    fn first_offset_is_applied_whatever_its_size() {
        let mut clock = Discipline::default();
        let year = 365 * 24 * 3_600_000;
        let (act, next) = clock.take(off(56 * year));
        assert_eq!(act, Act::Step(off(56 * year).offset));
        assert_eq!(next, Duration::from_secs(32));
        // The first step starts no new epoch.
        assert_eq!((clock.synced, clock.epoch), (true, 0));
        // Unless programs used the wrong time already, because the servers answered too late.
        let mut clock = Discipline {
            in_use: true,
            ..Discipline::default()
        };
        assert_eq!(clock.take(off(year)).0, Act::Step(off(year).offset));
        assert_eq!(clock.epoch, 1);
        let mut clock = Discipline::default();
        assert_eq!(clock.take(off(-300)).0, Act::Steer(off(-300).offset));
    }

    #[test]
    fn later_step_needs_a_second_confirming_offset() {
        let mut clock = Discipline::default();
        clock.take(off(0));
        assert_eq!(clock.take(off(900)), (Act::Wait, SECOND_LOOK));
        assert_eq!(clock.spikes, 1);
        // The spike was a delayed packet.
        assert_eq!(clock.take(off(3)).0, Act::Steer(off(3).offset));
        assert_eq!(clock.spikes, 0);
        assert_eq!(clock.take(off(900)).0, Act::Wait);
        assert_eq!(clock.take(off(-900)).0, Act::Wait);
        assert_eq!(clock.spikes, 2);
        assert_eq!(clock.take(off(-850)).0, Act::Step(off(-850).offset));
        assert_eq!((clock.epoch, clock.spikes), (0, 0));
        // A machine that slept for an hour.
        clock.take(off(3_600_000));
        assert_eq!(
            clock.take(off(3_600_010)).0,
            Act::Step(off(3_600_010).offset)
        );
        assert_eq!(clock.epoch, 1);
    }

    #[test]
    fn poll_interval_grows_while_the_clock_is_accurate() {
        let mut clock = Discipline::default();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = clock.take(off(1)).1;
        }
        assert_eq!(last, Duration::from_secs(2048));
        assert_eq!(clock.time_constant(), 7);
        assert_eq!(clock.take(off(100)).1, Duration::from_secs(1024));
        for _ in 0..2 {
            clock.ask_less();
            assert_eq!(clock.interval(), Duration::from_secs(2048));
        }
    }

    #[test]
    fn retry_interval_grows_to_a_limit() {
        let seconds: Vec<u64> = [0, 1, 5, 6, 1000].map(|n| retry(n).as_secs()).to_vec();
        assert_eq!(seconds, [1, 2, 32, 32, 32]);
    }
}
