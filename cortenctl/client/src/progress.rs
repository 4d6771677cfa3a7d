//! Progress of a long transfer: a byte counter that overwrites itself. Printed on standard error,
//! only if that is a terminal.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use crate::table::printable;
use crate::units;

/// Minimum interval between two updates: a reader does not see more, and each costs a write.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum length of a label: a line that wraps could not be erased.
const LABEL: usize = 50;
/// Return to the beginning of the line and erase it (ECMA-48, EL).
const CLEAR: &str = "\r\u{1b}[K";

/// A byte counter. Dropping it erases its line.
pub struct Progress {
    label: String,
    bytes: u64,
    /// Time of the last update.
    shown: Option<Instant>,
    out: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("label", &self.label)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// A counter with a `label` for the transfer: `n1: sent`.
    pub fn new(label: impl AsRef<str>) -> Progress {
        let terminal = io::stderr().is_terminal();
        let out = terminal.then(|| Box::new(io::stderr()) as Box<dyn Write + Send>);
        Progress::to(out, label.as_ref())
    }

    /// A counter for data that goes to standard output. It is hidden if standard output is a
    /// terminal too, which shows the data.
    pub fn beside_output(label: impl AsRef<str>) -> Progress {
        if io::stdout().is_terminal() {
            return Progress::to(None, "");
        }
        Progress::new(label)
    }

    fn to(out: Option<Box<dyn Write + Send>>, label: &str) -> Progress {
        Progress {
            label: printable(label).chars().take(LABEL).collect(),
            bytes: 0,
            shown: None,
            out,
        }
    }

    /// Whether the counter is visible.
    pub fn is_shown(&self) -> bool {
        self.out.is_some()
    }

    /// Adds bytes to the counter.
    pub fn add(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_add(bytes as u64));
    }

    /// Sets the total number of bytes.
    pub fn set(&mut self, bytes: u64) {
        self.set_at(bytes, Instant::now());
    }

    fn set_at(&mut self, bytes: u64, now: Instant) {
        self.bytes = bytes;
        let lately = |at: Instant| now.saturating_duration_since(at) < PAUSE;
        if self.shown.is_some_and(lately) {
            return;
        }
        self.shown = Some(now);
        let text = format!("{CLEAR}{} {}", self.label, units::size(self.bytes));
        self.write(&text);
    }

    /// Writes to the terminal and ignores errors: they must not end a transfer.
    fn write(&mut self, text: &str) {
        if let Some(out) = &mut self.out {
            out.write_all(text.as_bytes()).ok();
            out.flush().ok();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            self.write(CLEAR);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn on(screen: &Screen, label: &str) -> Progress {
        Progress::to(Some(Box::new(screen.clone())), label)
    }

    #[test]
    fn counter_overwrites_its_line_and_is_cleared_at_the_end() {
        let screen = Screen::default();
        let mut progress = on(&screen, "n1: sent");
        let start = Instant::now();
        progress.set_at(1000, start);
        progress.set_at(2000, start + PAUSE / 2);
        progress.set_at(3_000_000, start + PAUSE);
        drop(progress);
        let expected = format!("{CLEAR}n1: sent 1.0 kB{CLEAR}n1: sent 3.0 MB{CLEAR}");
        assert_eq!(screen.text(), expected);
    }

    #[test]
    fn byte_count_adds_and_saturates() {
        let mut progress = Progress::to(None, "x");
        progress.add(5);
        progress.add(7);
        assert_eq!(progress.bytes, 12);
        progress.set(u64::MAX);
        progress.add(1);
        assert_eq!(progress.bytes, u64::MAX);
    }

    #[test]
    fn hostile_names_do_not_steer_the_terminal_and_stay_on_one_line() {
        let screen = Screen::default();
        let mut progress = on(&screen, &format!("a\u{1b}[2J{}", "x".repeat(1000)));
        progress.add(1);
        drop(progress);
        let text = screen.text().replace(CLEAR, "");
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.chars().count() < LABEL + 10, "{text:?}");
    }

    #[test]
    fn progress_without_bytes_writes_nothing() {
        let screen = Screen::default();
        drop(on(&screen, "x"));
        assert_eq!(screen.text(), "");
        assert!(!Progress::to(None, "x").is_shown());
    }
}
