//! Limits log lines that strangers can cause: one per minute, and of limited length, so that they do not push out other
//! lines.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two lines.
const INTERVAL: Duration = Duration::from_secs(60);
/// Limit of a line in bytes. An untrusted certificate may contain any text.
const LONGEST: usize = 512;

/// The limit of one kind of line, shared by all peers.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Logs `text`, or counts it for the next line.
    pub(crate) fn say(&self, text: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.admit(Instant::now()) {
            Some(0) => eprintln!("apid: {}", plain(text)),
            Some(left_out) => eprintln!("apid: {} (and {left_out} like it before)", plain(text)),
            None => {}
        }
    }
}

/// The text, shortened and on one line.
fn plain(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    let text = text.get(..end).unwrap_or_default();
    text.replace(char::is_control, "?")
}

impl State {
    /// Whether a line is due; if so, the number of lines suppressed since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let early = |said| now.saturating_duration_since(said) < INTERVAL;
        if self.said.is_some_and(early) {
            self.left_out += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_logged_once_per_interval_with_a_count() {
        let mut state = State::default();
        let now = Instant::now();
        assert_eq!(state.admit(now), Some(0));
        let flood = (0..1000).filter(|_| state.admit(now + INTERVAL / 2).is_some());
        assert_eq!(flood.count(), 0);
        assert_eq!(state.admit(now + INTERVAL), Some(1000));
        assert_eq!(state.admit(now + INTERVAL), None);
        assert_eq!(state.admit(now + 3 * INTERVAL), Some(1));
    }

    #[test]
    fn hostile_messages_become_one_short_line() {
        assert_eq!(plain("a\napid: audit: b\x1b[0m"), "a?apid: audit: b?[0m");
        assert_eq!(plain(&"\u{e9}".repeat(10_000)).len(), LONGEST);
    }
}
