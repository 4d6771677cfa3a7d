//! The worker threads; each handles one event at a time.
//!
//! A device or driver may block a worker for ever. The pool logs such a late event and starts a replacement worker, up
//! to a limit. Later events of the same device keep waiting.

use crate::event::Event;
use crate::queue::Ticket;
use anyhow::Context as _;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// An event that takes longer is logged, because clients wait for its device.
const SLOW: Duration = Duration::from_millis(500);

/// An event that takes longer counts as late: it may never end.
pub const LATE: Duration = Duration::from_secs(30);

/// Limit of replacement workers.
const SPARE: usize = 8;

/// Stack size in bytes. libkmod keeps paths and index nodes on the stack.
const STACK: usize = 512 * 1024;

type Job = (Ticket, Event);

/// Makes a worker's event handler, on the worker's own thread.
pub type Work = dyn Fn() -> Box<dyn FnMut(&Event)> + Send + Sync;

/// The worker pool.
pub struct Pool {
    jobs: Sender<Job>,
    done: Receiver<Ticket>,
    /// Number of events handed to workers and not done.
    in_work: usize,
    started: usize,
    shared: Arc<Shared>,
}

/// State shared by the workers.
struct Shared {
    work: Box<Work>,
    queue: Mutex<Receiver<Job>>,
    finished: Sender<Ticket>,
    wake: OwnedFd,
    running: Mutex<BTreeMap<Ticket, Running>>,
    alive: AtomicUsize,
    most: usize,
}

/// An event that a worker handles.
struct Running {
    event: String,
    since: Instant,
    /// The event was logged as late.
    is_late: bool,
    /// A replacement for its worker was started.
    is_replaced: bool,
}

impl Pool {
    /// Starts `workers` threads, at least one.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(workers: usize, work: Box<Work>) -> anyhow::Result<Self> {
        let workers = workers.max(1);
        let (jobs, queue) = channel();
        let (finished, done) = channel();
        let mut pool = Self {
            jobs,
            done,
            in_work: 0,
            started: 0,
            shared: Arc::new(Shared {
                work,
                queue: Mutex::new(queue),
                finished,
                wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                running: Mutex::default(),
                alive: AtomicUsize::new(0),
                most: workers + SPARE,
            }),
        };
        for _ in 0..workers {
            pool.start_one().context("start a worker")?;
        }
        Ok(pool)
    }

    fn start_one(&mut self) -> std::io::Result<()> {
        let shared = self.shared.clone();
        let worker = thread::Builder::new().name(format!("worker{}", self.started));
        worker.stack_size(STACK).spawn(move || shared.work())?;
        self.started += 1;
        self.shared.alive.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Hands an event to a worker.
    ///
    /// # Errors
    /// If no worker is left.
    pub fn give(&mut self, job: Job) -> anyhow::Result<()> {
        self.jobs.send(job).context("hand an event to a worker")?;
        self.in_work += 1;
        Ok(())
    }

    /// The events finished since the last call.
    pub fn done(&mut self) -> Vec<Ticket> {
        // Reset the wake-up counter.
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8][..]);
        let done: Vec<Ticket> = self.done.try_iter().collect();
        self.in_work = self.in_work.saturating_sub(done.len());
        done
    }

    /// The events that are late now.
    pub fn late(&self) -> Vec<Ticket> {
        let running = self.shared.running();
        let late = running.iter().filter(|(_, running)| running.is_late);
        late.map(|(ticket, _)| *ticket).collect()
    }

    /// Whether a running event may become late.
    pub fn may_be_late(&self) -> bool {
        self.in_work > self.late().len()
    }

    /// Logs events that became late, and replaces their workers.
    pub fn replace_late(&mut self, now: Instant) {
        let shared = self.shared.clone();
        let mut running = shared.running();
        for one in running.values_mut() {
            let is_late = now.saturating_duration_since(one.since) > LATE;
            if is_late && !one.is_late {
                one.is_late = true;
                let seconds = LATE.as_secs();
                warn!(
                    "{}: takes longer than {seconds} s: its device or driver hangs",
                    one.event
                );
            }
            if !one.is_late || one.is_replaced || shared.alive() >= shared.most {
                continue;
            }
            match self.start_one() {
                Ok(()) => one.is_replaced = true,
                Err(error) => warn!("{}: cannot start another worker: {error}", one.event),
            }
        }
    }

    /// Whether every worker is blocked, so that no event is handled.
    pub fn is_held_up(&self) -> bool {
        self.late().len() >= self.shared.alive()
    }
}

/// Readable when an event is finished.
impl AsFd for Pool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<Ticket, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    /// A worker's loop: handles events one at a time until its replacement has started.
    fn work(&self) {
        let mut handle = (self.work)();
        loop {
            // The lock is held while waiting, so that exactly one worker gets the next job.
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let job = queue.recv();
            drop(queue);
            let Ok((ticket, event)) = job else { return };
            let since = Instant::now();
            let running = Running {
                event: event.to_string(),
                since,
                is_late: false,
                is_replaced: false,
            };
            self.running().insert(ticket, running);
            handle(&event);
            let time = since.elapsed();
            if time > SLOW {
                info!("{event}: took {} ms", time.as_millis());
            }
            let running = self.running().remove(&ticket);
            let is_replaced = running.is_some_and(|running| running.is_replaced);
            if is_replaced {
                self.alive.fetch_sub(1, Ordering::Relaxed);
            }
            if self.finished.send(ticket).is_err() {
                return;
            }
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            if is_replaced {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LATE, Pool, SPARE};
    use crate::event::Event;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    const WORKERS: usize = 2;

    fn event(path: &str) -> Event {
        Event::parse(format!("ACTION=add\nDEVPATH={path}").as_bytes()).unwrap()
    }

    /// A pool whose workers block on events below `/hangs` until the test sends a message. Events are reported as they
    /// begin.
    fn pool() -> (Pool, Receiver<String>, Sender<()>) {
        let (begins, begun) = channel();
        let (go_on, held) = channel();
        let held = Arc::new(Mutex::new(held));
        let begins = Mutex::new(begins);
        let work = move || -> Box<dyn FnMut(&Event)> {
            let (begins, held) = (begins.lock().unwrap().clone(), held.clone());
            Box::new(move |event| {
                begins.send(event.devpath.clone()).unwrap();
                if event.devpath.starts_with("/hangs") {
                    held.lock().unwrap().recv().unwrap();
                }
            })
        };
        (Pool::start(WORKERS, Box::new(work)).unwrap(), begun, go_on)
    }

    /// Waits for the next finished event.
    fn one_done(pool: &mut Pool) -> u64 {
        let ticket = pool.done.recv().unwrap();
        pool.in_work -= 1;
        ticket
    }

    #[test]
    fn hung_events_are_detected_and_their_workers_replaced() {
        let (mut pool, begun, go_on) = pool();
        let now = Instant::now();
        assert!(!pool.may_be_late() && !pool.is_held_up());
        for ticket in 0..2 {
            pool.give((ticket, event(&format!("/hangs/{ticket}"))))
                .unwrap();
            begun.recv().unwrap();
        }
        pool.give((2, event("/disk"))).unwrap();
        pool.replace_late(now);
        assert!(pool.may_be_late() && pool.late().is_empty());
        pool.replace_late(Instant::now() + LATE + Duration::from_secs(1));
        assert_eq!(pool.late(), [0, 1]);
        assert!(!pool.is_held_up());
        assert_eq!(
            (begun.recv().unwrap().as_str(), one_done(&mut pool)),
            ("/disk", 2)
        );
        assert!(!pool.may_be_late());

        // Both blocked workers were replaced, so they end when they are unblocked.
        assert_eq!(pool.shared.alive(), 4);
        for _ in 0..2 {
            go_on.send(()).unwrap();
            one_done(&mut pool);
        }
        assert!(pool.late().is_empty());
        assert_eq!(pool.shared.alive(), 2);
    }

    #[test]
    fn number_of_workers_is_bounded() {
        let (mut pool, begun, go_on) = pool();
        let most = WORKERS + SPARE;
        for ticket in 0..most as u64 + 5 {
            pool.give((ticket, event(&format!("/hangs/{ticket}"))))
                .unwrap();
        }
        for at_once in [WORKERS; 6] {
            for _ in 0..at_once.min(most - pool.late().len()) {
                begun.recv().unwrap();
            }
            pool.replace_late(Instant::now() + LATE + Duration::from_secs(1));
        }
        assert_eq!((pool.late().len(), pool.shared.alive()), (most, most));
        assert!(pool.is_held_up() && pool.may_be_late());
        go_on.send(()).unwrap();
        one_done(&mut pool);
        // A worker is free again, or a replacement may be started.
        pool.replace_late(Instant::now());
        begun.recv().unwrap();
    }
}
