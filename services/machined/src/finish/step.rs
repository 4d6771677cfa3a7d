//! A step of the machine's end. What it waits for may be a disk or a server that is dead, and then it never ends; the
//! machine does.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use corten_base::console;
use corten_base::panics;
use corten_base::proc::memory;
use corten_sys::watchdog::Watchdog;

/// Between two signs of life to the watchdogs: few take a shorter timeout than 2 s.
const FEED: Duration = Duration::from_secs(1);

/// Who ends the machine, step by step.
#[derive(Debug)]
pub(super) struct Steps {
    watchdogs: Vec<Watchdog>,
}

/// What a step tells.
enum Sign<T> {
    Alive,
    Done(T),
}

impl Steps {
    /// Feeds these watchdogs while a step gets on, and not otherwise.
    pub(super) fn new(watchdogs: Vec<Watchdog>) -> Steps {
        Steps { watchdogs }
    }

    /// Does the work in a thread of its own and waits until it has ended, or has made no progress for `limit`. What it
    /// calls is progress, and that less in memory waits to be written.
    ///
    /// # Errors
    /// It hangs ([`io::ErrorKind::TimedOut`]), has broken off or could not begin; this is told already.
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
                // Nobody waits for one that hung.
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
                // The panic is told.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other(format!("{what} broke off")));
                }
            }
            if patience.is_over(Instant::now(), unwritten()) {
                console::error(&format!("{what} hangs; the machine ends without it"));
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

/// How long a step has made no progress.
#[derive(Debug)]
struct Patience {
    limit: Duration,
    since: Instant,
    /// The least that has waited to be written.
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

/// What in memory waits to be written to disks and servers, in kB; nobody makes more of it any more.
fn unwritten() -> u64 {
    memory::info(Path::new("/proc")).map_or(0, |info| info.dirty.saturating_add(info.writeback))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// With one watchdog, which is a file.
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
        // As less may be written meanwhile, which is progress, it may be waited for a little longer.
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
        assert_eq!(broken.unwrap_err().to_string(), "a step broke off");
    }

    #[test]
    fn shutdown_step_that_makes_progress_has_no_timeout() {
        let start = Instant::now();
        let at = |minutes: u32| start + minutes * Duration::from_secs(60);
        let mut patience = Patience::new(2 * Duration::from_secs(60), start, 100);
        assert!(!patience.is_over(at(1), 100));
        // Less waits to be written.
        assert!(!patience.is_over(at(2), 99));
        assert!(!patience.is_over(at(3), 99));
        // More, and then less than that, is what others write.
        assert!(patience.is_over(at(4), 120));
        patience.alive(at(4));
        assert!(!patience.is_over(at(5), 110));
        assert!(patience.is_over(at(6), 99));
    }
}
