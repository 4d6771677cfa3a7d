//! Runs one step of the machine's end, with a timeout. A step that waits for a dead disk or server may never return;
//! the machine still ends.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use corten_base::console;
use corten_base::panics;
use corten_base::proc::memory;
use corten_sys::watchdog::Watchdog;

/// Interval between two feeds of the watchdogs: few watchdogs have a timeout below 2 s.
const FEED: Duration = Duration::from_secs(1);

/// Runner of the steps. It feeds the watchdogs meanwhile.
#[derive(Debug)]
pub(super) struct Steps {
    watchdogs: Vec<Watchdog>,
}

/// Message from a step's thread.
enum Sign<T> {
    Alive,
    Done(T),
}

impl Steps {
    /// Takes over the watchdogs. They are fed only while a step runs and has not exceeded its limit.
    pub(super) fn new(watchdogs: Vec<Watchdog>) -> Steps {
        Steps { watchdogs }
    }

    /// Runs `work` in a thread of its own. Returns when it ends, or has made no progress for `limit`. Progress is a
    /// call of the function that `work` is given, or a decrease of the data in memory that waits for write-back.
    ///
    /// # Errors
    /// The step hangs ([`io::ErrorKind::TimedOut`]), panicked, or its thread could not start. The console has the
    /// reason already.
    pub(super) fn run<T: Send + 'static>(
        &self,
        what: &str,
        limit: Duration,
        work: impl FnOnce(&dyn Fn()) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (signs, told) = mpsc::channel();
        let work = move || {
            let alive = || drop(signs.send(Sign::Alive));
            if let Ok(done) = panics::caught_here(|| work(&alive)) {
                // The receiver of a step that hung is gone.
                let _ = signs.send(Sign::Done(done));
            }
        };
        if let Err(error) = thread::Builder::new().spawn(work) {
            console::error(&format!("{what}: {error}"));
            return Err(error);
        }
        let mut patience = Patience::new(limit, Instant::now(), unwritten());
        loop {
            self.feed();
            match told.recv_timeout(FEED.min(limit)) {
                Ok(Sign::Done(done)) => return Ok(done),
                Ok(Sign::Alive) => patience.alive(Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
                // The panic is on the console already.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other(format!("{what} panicked")));
                }
            }
            if patience.is_over(Instant::now(), unwritten()) {
                console::error(&format!(
                    "{what} hangs; the machine ends without waiting for it"
                ));
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn feed(&self) {
        for watchdog in &self.watchdogs {
            let _ = watchdog.feed();
        }
    }
}

/// Timeout of a step, measured from its last progress.
#[derive(Debug)]
struct Patience {
    limit: Duration,
    since: Instant,
    /// Minimum so far of the data that waits for write-back, in kB.
    least: u64,
}

impl Patience {
    fn new(limit: Duration, now: Instant, unwritten: u64) -> Patience {
        Patience {
            limit,
            since: now,
            least: unwritten,
        }
    }

    fn alive(&mut self, now: Instant) {
        self.since = now;
    }

    fn is_over(&mut self, now: Instant, unwritten: u64) -> bool {
        if unwritten < self.least {
            self.least = unwritten;
            self.since = now;
        }
        now.duration_since(self.since) >= self.limit
    }
}

/// Data in memory that waits for write-back to disks and servers, in kB. By then no process adds to it.
fn unwritten() -> u64 {
    memory::info(Path::new("/proc")).map_or(0, |info| info.dirty.saturating_add(info.writeback))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Steps with one watchdog, which is a file.
    fn steps(watchdog: &Path) -> Steps {
        Steps::new(vec![Watchdog::go_on(watchdog).unwrap()])
    }

    #[test]
    fn hung_shutdown_step_is_abandoned_and_a_finishing_step_is_awaited() {
        let watchdog = tempfile::NamedTempFile::new().unwrap();
        let steps = steps(watchdog.path());
        let fed = || fs::metadata(watchdog.path()).unwrap().len();
        assert_eq!(steps.run("a step", HOUR, |_| 7).unwrap(), 7);
        let before = fed();
        assert!(before > 0);
        let (_never, waits) = mpsc::channel::<()>();
        // Write-back on the test's host counts as progress, so the wait may exceed the limit a little.
        let hung = steps.run("another", Duration::from_millis(1), move |_| waits.recv());
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(fed() > before);
        let signs = |alive: &dyn Fn()| (0..1000).for_each(|_| alive());
        steps.run("the next", HOUR, signs).unwrap();
        assert!(fed() >= before + 1000);
    }

    #[test]
    fn panicking_shutdown_step_is_not_awaited() {
        let watchdog = tempfile::NamedTempFile::new().unwrap();
        let steps = steps(watchdog.path());
        let broken = steps.run("a step", HOUR, |_| -> u8 { panic!("a bug") });
        assert_eq!(broken.unwrap_err().to_string(), "a step panicked");
    }

    #[test]
    fn shutdown_step_that_makes_progress_has_no_timeout() {
        let start = Instant::now();
        let at = |minutes: u32| start + minutes * Duration::from_secs(60);
        let mut patience = Patience::new(2 * Duration::from_secs(60), start, 100);
        assert!(!patience.is_over(at(1), 100));
        // A new minimum is progress.
        assert!(!patience.is_over(at(2), 99));
        assert!(!patience.is_over(at(3), 99));
        // A rise is no progress, nor is a fall that stays above the minimum.
        assert!(patience.is_over(at(4), 120));
        patience.alive(at(4));
        assert!(!patience.is_over(at(5), 110));
        assert!(patience.is_over(at(6), 99));
    }
}
