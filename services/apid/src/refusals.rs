//! Rate limit for refused calls in the audit log. The first refusal per certificate and method is logged at once. Later
//! ones are counted and their number is logged once per interval. So a caller without rights cannot push other callers'
//! lines out of the log. Pure: the caller passes the time and writes the lines.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Interval between two lines of one certificate and method. A reader's certificate that calls all forbidden methods,
/// some fifty, writes at most 25 KiB per interval; the log holds 512 KiB.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Limit of certificate and method pairs; they take at most a MiB.
const KEPT: usize = 1024;
/// Limit of a line in bytes.
const LINE: usize = 512;

/// The certificate's serial number and the method.
pub(crate) type Key = (String, String);

/// Recent refusals.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<Key, Refused>);

#[derive(Debug)]
struct Refused {
    /// Time of the last logged line.
    told: Instant,
    /// Number of refusals since then.
    more: u64,
    /// Line of the last refusal.
    last: String,
}

impl Refused {
    fn line(&self) -> Option<String> {
        (self.more > 0).then(|| format!("{} repeated={}", self.last, self.more))
    }
}

impl Refusals {
    /// Records a refused call. Returns the lines to write at once; [`Refusals::due`] returns the counts.
    pub(crate) fn note(&mut self, key: Key, mut line: String, now: Instant) -> Vec<String> {
        line.truncate(line.floor_char_boundary(LINE));
        if let Some(known) = self.0.get_mut(&key) {
            known.more += 1;
            known.last = line;
            known.last.shrink_to_fit();
            return Vec::new();
        }
        let mut lines = Vec::new();
        if self.0.len() >= KEPT {
            let oldest = self.0.iter().min_by_key(|(_, refused)| refused.told);
            let oldest = oldest.map(|(key, _)| key.clone());
            let evicted = oldest.and_then(|key| self.0.remove(&key));
            lines.extend(evicted.and_then(|refused| refused.line()));
        }
        let refused = Refused {
            told: now,
            more: 0,
            last: String::new(),
        };
        self.0.insert(key, refused);
        lines.push(line);
        lines
    }

    /// The counts that are due. Forgets the pairs without a new refusal.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.retain(|_, refused| {
            if now.saturating_duration_since(refused.told) < INTERVAL {
                return true;
            }
            let line = refused.line();
            let goes_on = line.is_some();
            lines.extend(line);
            refused.told = now;
            refused.more = 0;
            goes_on
        });
        lines
    }

    /// All counts not logged yet.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.0
            .drain()
            .filter_map(|(_, refused)| refused.line())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(serial: &str, method: &str) -> Key {
        (serial.to_owned(), method.to_owned())
    }

    #[test]
    fn repeated_refusals_are_one_line_with_a_count() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let mut note = |serial: &str, method: &str, line: &str| {
            refusals.note(key(serial, method), line.to_owned(), start)
        };
        assert_eq!(note("1", "Reboot", "first"), ["first"]);
        let flood = (0..10_000).flat_map(|n| note("1", "Reboot", &format!("call {n}")));
        assert_eq!(flood.count(), 0);
        // Another certificate or method has its own lines.
        assert_eq!(note("2", "Reboot", "other"), ["other"]);
        assert_eq!(note("1", "Reset", "reset"), ["reset"]);
        assert!(note("1", "Reboot", "late").is_empty());
        assert_eq!(refusals.due(start + INTERVAL), ["late repeated=10001"]);
        let later = start + INTERVAL + Duration::from_secs(1);
        let again = refusals.note(key("1", "Reboot"), "again".to_owned(), later);
        assert!(again.is_empty());
        // A count is logged once. A pair without new refusals is forgotten.
        assert_eq!(refusals.due(start + 2 * INTERVAL), ["again repeated=1"]);
        assert!(refusals.due(start + 3 * INTERVAL).is_empty());
        assert!(refusals.0.is_empty());
    }

    #[test]
    fn hostile_certificate_floods_use_bounded_memory_and_lose_no_count() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let (calls, each) = (3 * KEPT, 3);
        let mut told = 0;
        let mut count = |lines: Vec<String>| {
            for line in lines {
                assert!(line.len() < LINE + 20, "{}", line.len());
                let repeated = line.rsplit_once(" repeated=");
                told += repeated.map_or(1, |(_, number)| number.parse().unwrap());
            }
        };
        for n in 0..calls {
            let at = start + Duration::from_millis(u64::try_from(n).unwrap());
            for _ in 0..each {
                let line = "x".repeat(20_000);
                count(refusals.note(key(&n.to_string(), "Reboot"), line, at));
            }
        }
        assert_eq!(refusals.0.len(), KEPT);
        let longest = refusals.0.values().map(|refused| refused.last.len()).max();
        assert_eq!(longest, Some(LINE));
        let held = refusals.0.values().map(|refused| refused.last.capacity());
        assert!(held.sum::<usize>() <= KEPT * 2 * LINE);
        count(refusals.end());
        assert_eq!(told, calls * each);
    }
}
