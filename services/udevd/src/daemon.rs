//! The daemon: one thread that listens and orders, a few that handle.

use crate::apply::{Handler, Roots};
use crate::broadcast::Broadcast;
use crate::coldplug::{Coldplug, ask};
use crate::database::gone;
use crate::event::Event;
use crate::modprobe_d::Policy;
use crate::modules::{self, Loader};
use crate::monitor::{Monitor, Received};
use crate::queue::{Queue, Ticket};
use crate::reload::RuleWatch;
use crate::rules::{Rules, Severity};
use crate::watch::Watches;
use anyhow::Context as _;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Events taken off the socket before the queue is worked on; beyond this the
/// kernel keeps them for us.
const QUEUE_BOUND: usize = 2048;

/// Coldplug asks for more only while fewer events than this are waiting, so it
/// cannot overrun the socket by itself.
const COLDPLUG_LOW: usize = 128;

/// How many devices coldplug asks for at once.
const COLDPLUG_BATCH: usize = 64;

/// An event that takes longer is worth a line: somebody waits for its device.
const SLOW: Duration = Duration::from_millis(500);

/// libkmod keeps paths and index nodes on the stack.
const STACK: usize = 512 * 1024;

/// What a worker is given, and gives back.
type Job = (Ticket, Event);

/// Listens for ever.
///
/// # Errors
/// When the monitor cannot be set up or breaks.
pub fn run(roots: Roots, rule_directories: &[PathBuf], workers: usize) -> anyhow::Result<()> {
    let started = Instant::now();
    // Before anything is read from sysfs: what comes in between is then heard.
    let monitor = Monitor::new().context("listen for uevents")?;
    for directory in ["data", "rules.d"] {
        fs::create_dir_all(roots.run.join(directory)).context("make the database's directory")?;
    }
    // Before they are read, as above.
    let rule_watch = RuleWatch::new(rule_directories).context("watch the rule files")?;
    let rules = load_rules(rule_directories);
    crate::nodes::standard_links(&roots.dev);
    crate::nodes::static_nodes(&roots.dev, &rules.static_nodes());
    let marker = roots.run.join("queue");
    let watches = Arc::new(Watches::new().context("watch the disks")?);
    let mut handler = Handler::new(roots);
    handler.watch_with(watches.clone());
    handler.set_rules(rules);
    let handler = Arc::new(handler);
    handler.sweep();
    let coldplug = Coldplug::everything(handler.sysfs());
    let pool = Pool::start(&handler, workers)?;
    let mut daemon = Daemon {
        monitor,
        handler,
        pool,
        queue: Queue::default(),
        coldplug,
        watches,
        rule_watch,
        rule_directories: rule_directories.to_owned(),
        handled: 0,
    };
    let (mut settled, mut marked) = (false, false);
    loop {
        let idle = daemon.step()?;
        // Clients wait for this file to go (udev_queue_get_queue_is_empty).
        if idle == marked {
            marked = !idle;
            let done = if marked {
                fs::write(&marker, "")
            } else {
                gone(fs::remove_file(&marker))
            };
            if let Err(error) = done {
                warn!("{}: {error}", marker.display());
            }
        }
        if !idle {
            continue;
        }
        if !settled {
            settled = true;
            let (handled, time) = (daemon.handled, started.elapsed().as_millis());
            info!("settled: {handled} events in {time} ms");
            corten_daemon::ready("udevd");
        }
        daemon.wait(true, false)?;
    }
}

struct Daemon {
    monitor: Monitor,
    handler: Arc<Handler>,
    pool: Pool,
    queue: Queue,
    coldplug: Coldplug,
    watches: Arc<Watches>,
    rule_watch: RuleWatch,
    rule_directories: Vec<PathBuf>,
    handled: u64,
}

/// What there is to deal with.
struct Happened {
    /// Events are on the socket; asked for only when there is room for them.
    events: bool,
    /// A worker is done.
    done: bool,
    /// A directory with rule files changed.
    rules: bool,
    /// A disk was written to.
    written: bool,
}

/// Reads the rule files and tells, once, what in them has no effect.
fn load_rules(directories: &[PathBuf]) -> Rules {
    let (rules, problems) = Rules::load(directories);
    for problem in &problems {
        match problem.severity {
            Severity::Broken => warn!("{problem}: the line is skipped"),
            Severity::Unsupported => info!("{problem}"),
        }
    }
    info!("{} rules", rules.len());
    rules
}

impl Daemon {
    /// Deals with what happened, waiting for it unless there is more to ask
    /// for. True, at once, when nothing is left to do.
    fn step(&mut self) -> anyhow::Result<bool> {
        if self.queue.len() < COLDPLUG_LOW {
            self.coldplug.advance(COLDPLUG_BATCH);
        }
        let more = !self.coldplug.is_done() && self.queue.len() < COLDPLUG_LOW;
        let quiet = self.coldplug.is_done() && self.queue.len() == 0;
        let Happened {
            events,
            done,
            rules,
            written,
        } = self.wait(self.queue.len() < QUEUE_BOUND, more || quiet)?;
        if quiet && !events && !done && !rules && !written {
            return Ok(true);
        }
        if written {
            for devpath in self.watches.written() {
                ask(&self.handler.sysfs().path(&devpath), "change");
            }
        }
        if rules && self.rule_watch.changed() {
            self.handler.set_rules(load_rules(&self.rule_directories));
            // They are for the devices that are there, too.
            self.coldplug = Coldplug::everything(self.handler.sysfs());
        }
        if done {
            self.pool.drain();
        }
        while let Ok(ticket) = self.pool.done.try_recv() {
            self.queue.done(ticket);
            self.handled += 1;
        }
        while events && self.queue.len() < QUEUE_BOUND {
            match self.monitor.receive().context("receive uevents")? {
                Received::Event(event) => self.queue.push(event),
                Received::Broken => {}
                Received::Empty => break,
                Received::Overrun => {
                    warn!("the kernel dropped uevents: asking for all devices again");
                    self.coldplug = Coldplug::everything(self.handler.sysfs());
                }
            }
        }
        while let Some(job) = self.queue.pop() {
            // The workers end only with the process.
            self.pool
                .jobs
                .send(job)
                .context("hand an event to a worker")?;
        }
        Ok(false)
    }

    /// Waits, or only looks.
    fn wait(&self, room: bool, only_look: bool) -> anyhow::Result<Happened> {
        let mut files = vec![
            PollFd::new(&self.pool.wake, PollFlags::IN),
            PollFd::new(&self.rule_watch, PollFlags::IN),
            PollFd::new(&self.watches, PollFlags::IN),
        ];
        if room {
            files.push(PollFd::new(&self.monitor, PollFlags::IN));
        }
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut files, only_look.then_some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for events"),
        }
        let happened = |index| {
            files
                .get(index)
                .is_some_and(|file: &PollFd<'_>| !file.revents().is_empty())
        };
        Ok(Happened {
            done: happened(0),
            rules: happened(1),
            written: happened(2),
            events: happened(3),
        })
    }
}

/// The workers.
struct Pool {
    jobs: Sender<Job>,
    done: Receiver<Ticket>,
    wake: Arc<OwnedFd>,
}

impl Pool {
    fn start(handler: &Arc<Handler>, workers: usize) -> anyhow::Result<Self> {
        let (jobs, queue) = channel();
        let (finished, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let broadcast = Arc::new(Broadcast::new().context("open the socket of handled events")?);
        let policy = Arc::new(modules::policy());
        for number in 0..workers.max(1) {
            let (handler, queue) = (handler.clone(), queue.clone());
            let (finished, wake) = (finished.clone(), wake.clone());
            let (broadcast, policy) = (broadcast.clone(), policy.clone());
            thread::Builder::new()
                .name(format!("worker{number}"))
                .stack_size(STACK)
                .spawn(move || work(&handler, &policy, &queue, &finished, &wake, &broadcast))
                .context("start a worker")?;
        }
        Ok(Self { jobs, done, wake })
    }

    /// Takes the wake-up calls that came so far.
    fn drain(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8][..]);
    }
}

/// One worker: handles what it gets, one event at a time.
fn work(
    handler: &Handler,
    policy: &Arc<Policy>,
    queue: &Mutex<Receiver<Job>>,
    finished: &Sender<Ticket>,
    wake: &OwnedFd,
    broadcast: &Broadcast,
) {
    // Without libkmod everything but modules still works.
    let loader = Loader::new(std::path::Path::new("/sys"), policy.clone())
        .inspect_err(|error| warn!("no modules will be loaded: {error}"))
        .ok();
    loop {
        // The lock is held while waiting: the next job goes to one of them.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((ticket, event)) = job else { return };
        let started = Instant::now();
        let plan = handler.handle(&event, loader.as_ref());
        if let Err(error) = broadcast.send(&event, &plan) {
            warn!("{event}: tell the listeners: {error}");
        }
        let time = started.elapsed();
        if time > SLOW {
            info!("{event}: took {} ms", time.as_millis());
        }
        if finished.send(ticket).is_err() {
            return;
        }
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}
