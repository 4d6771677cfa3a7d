//! A client that writes to the Kubernetes API all the time.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::kubectl::Kubectl;

/// Longest time in which the client repeats a write: a holder of a shared address may end without a farewell.
const RETRIED: Duration = Duration::from_secs(180);
/// Pause before a repetition.
const PAUSE: Duration = Duration::from_millis(500);
/// The least number of writes that show anything.
const LEAST: usize = 10;

/// The writes that the API server has confirmed.
#[derive(Debug)]
pub struct Written {
    count: usize,
    /// The longest time that a write took with its repetitions.
    longest: Duration,
}

impl Written {
    /// Writes objects, one after the other, while `action` runs.
    ///
    /// # Panics
    /// `action` panics, or a write fails for 180 s.
    #[must_use]
    pub fn during(kubectl: &Kubectl, action: impl FnOnce()) -> Written {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stopped = Stop(&stop);
            let writer = scope.spawn(|| write_until(kubectl, &stop));
            action();
            drop(stopped);
            writer.join().expect("every write within its time")
        })
    }

    /// Checks that the cluster has every confirmed write.
    ///
    /// # Panics
    /// A write is lost, or there were too few of them.
    pub fn check(&self, kubectl: &Kubectl) {
        assert!(self.count > LEAST, "{self}");
        let names = "jsonpath={.items[*].data.number}";
        let found = kubectl.call(&["get", "configmaps", "-o", names]);
        let found = found.expect("the objects");
        let found: Vec<usize> = found
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        let is_lost = |one: &usize| !found.contains(one);
        let lost: Vec<usize> = (0..self.count).filter(is_lost).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { count, longest } = self;
        write!(f, "{count} writes, the longest took {longest:?}")
    }
}

/// Stops the writer at the end of the test, also if it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write_until(kubectl: &Kubectl, stop: &AtomicBool) -> Written {
    let mut written = Written {
        count: 0,
        longest: Duration::ZERO,
    };
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let number = written.count;
        let name = format!("written-{number}");
        let object = format!("--from-literal=number={number}");
        let create = ["create", "configmap", &name, &object];
        loop {
            match kubectl.call(&[&create[..], &["--request-timeout=20s"]].concat()) {
                Ok(_) => break,
                // The answer of an earlier attempt was lost, not its write.
                Err(why) if why.contains("AlreadyExists") || why.contains("already exists") => {
                    break;
                }
                Err(why) => assert!(begun.elapsed() < RETRIED, "{name}: {why}"),
            }
            thread::sleep(PAUSE);
        }
        written.longest = written.longest.max(begun.elapsed());
        written.count += 1;
    }
    written
}
