//! Restarts a node whose machined hangs before the verdict on its version, so that the boot loader counts the start.
//!
//! Owns: a thread of its own, because a hung runtime runs no task.
//! Never: judges a version.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A time at which the node restarts unless the deadline is lifted; clones are the same deadline.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<(Mutex<Option<Instant>>, Condvar)>);

impl Deadline {
    /// Starts the thread that calls `restart` after `patience`.
    #[must_use]
    pub fn start(patience: Duration, restart: impl FnOnce() + Send + 'static) -> Deadline {
        let deadline = Deadline(Arc::new((
            Mutex::new(Instant::now().checked_add(patience)),
            Condvar::new(),
        )));
        let watched = deadline.clone();
        let thread = thread::Builder::new().name("trial".to_owned());
        let started = thread.spawn(move || {
            if watched.passes() {
                restart();
            }
        });
        if let Err(error) = started {
            corten_base::console::warn(&format!("cannot watch the trial of a version: {error}"));
        }
        deadline
    }

    /// Moves the deadline to `patience` from now.
    pub fn extend(&self, patience: Duration) {
        self.set(Instant::now().checked_add(patience));
    }

    /// Lifts the deadline for good.
    pub fn lift(&self) {
        self.set(None);
    }

    fn set(&self, until: Option<Instant>) {
        let (lock, changed) = &*self.0;
        let mut current = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A lifted deadline stays lifted: its thread has ended.
        *current = current.and(until);
        changed.notify_all();
    }

    /// Waits; returns whether the deadline has passed, and not been lifted.
    fn passes(&self) -> bool {
        let (lock, changed) = &*self.0;
        let mut until = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(moment) = *until {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = changed.wait_timeout(until, left);
            until = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A time that no test waits for.
    const FAR: Duration = Duration::from_secs(3600);

    fn started(patience: Duration) -> (Deadline, mpsc::Receiver<()>) {
        let (sender, passed) = mpsc::channel();
        let deadline = Deadline::start(patience, move || sender.send(()).unwrap());
        (deadline, passed)
    }

    #[test]
    fn node_restarts_at_the_deadline() {
        let (deadline, passed) = started(FAR);
        deadline.extend(Duration::from_millis(1));
        passed.recv().unwrap();
    }

    #[test]
    fn lifted_deadline_never_restarts_the_node() {
        let (deadline, passed) = started(FAR);
        deadline.lift();
        deadline.extend(Duration::ZERO);
        // The thread drops its sender at its end.
        passed.recv().unwrap_err();
    }
}
