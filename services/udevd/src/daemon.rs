//! The event loop: one thread receives and orders events, a few workers handle them.
//!
//! A device that blocks its worker delays no other device. Events that wait for such a device do not count when the
//! daemon decides that it is idle.

use crate::apply::{Handler, Roots};
use crate::broadcast::Broadcast;
use crate::coldplug::{Coldplug, ask};
use crate::database::gone;
use crate::modules::{self, Loader};
use crate::monitor::{Monitor, Received, Source};
use crate::pool::{Pool, Work};
use crate::queue::Queue;
use crate::reload::RuleWatch;
use crate::rules::{Rules, Severity};
use crate::watch::Watches;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::LazyCell;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tracing::{info, warn};

/// Limit of events taken off the socket and not yet handled. Beyond it the kernel's socket buffer holds them.
const QUEUE_BOUND: usize = 2048;

/// Coldplug requests more events only while fewer than this number wait, so that coldplug alone cannot overrun the
/// socket.
const COLDPLUG_LOW: usize = 128;

/// Number of devices coldplug requests at once.
const COLDPLUG_BATCH: usize = 64;

/// Interval of the check for late events, while a running event may become late.
const LOOK_FOR_LATE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Runs the event loop until it fails.
///
/// # Errors
/// If the monitor cannot be set up, or receiving fails.
pub fn run(roots: Roots, rule_directories: &[PathBuf], workers: usize) -> anyhow::Result<()> {
    let started = Instant::now();
    // Listen before the first read of sysfs, so that no event in between is lost.
    let monitor = Monitor::new().context("listen for uevents")?;
    let broadcast = Arc::new(Broadcast::new().context("open the socket of handled events")?);
    // Its files are long, and the network awaits interfaces, which need no module.
    let policy = Arc::new(LazyLock::new(|| Arc::new(modules::policy())));
    let (marker, dev) = (roots.run.join("queue"), roots.dev.clone());
    let work = |handler: Arc<Handler>| -> Box<Work> {
        Box::new(move || {
            let policy = policy.clone();
            // Without libkmod only module loading fails; the rest of the daemon works.
            let loader = LazyCell::new(move || {
                Loader::new(Path::new("/sys"), Arc::clone(&policy))
                    .inspect_err(|error| warn!("no modules will be loaded: {error}"))
                    .ok()
            });
            let (handler, broadcast) = (handler.clone(), broadcast.clone());
            Box::new(move |event| {
                let plan = handler.handle(event, &|| loader.as_ref());
                if let Err(error) = broadcast.send(event, &plan) {
                    warn!("{event}: cannot notify the listeners: {error}");
                }
            })
        })
    };
    let mut daemon = Daemon::new(monitor, roots, rule_directories, workers, work)?;
    crate::nodes::standard_links(&dev);
    crate::nodes::static_nodes(&dev, &daemon.handler.static_nodes());
    let (mut ready, mut settled, mut marked) = (false, false, false);
    loop {
        let idle = daemon.step()?;
        // Clients wait until this file is gone (`udev_queue_get_queue_is_empty`).
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
        if !ready {
            ready = true;
            corten_daemon::ready("udevd");
        }
        if daemon.coldplug.go_on() {
            continue;
        }
        if !settled {
            settled = true;
            let (handled, time) = (daemon.handled, started.elapsed().as_millis());
            info!("settled: {handled} events in {time} ms");
        }
        daemon.wait(false)?;
    }
}

struct Daemon<S> {
    monitor: S,
    handler: Arc<Handler>,
    pool: Pool,
    queue: Queue,
    coldplug: Coldplug,
    watches: Arc<Watches>,
    rule_watch: RuleWatch,
    rule_directories: Vec<PathBuf>,
    /// Socket for health checks. The daemon accepts and closes a connection as long as it handles events.
    health: UnixListener,
    handled: u64,
    /// The kernel dropped events, so the database may contain devices that are gone.
    has_lost: bool,
}

/// File descriptors that became readable.
struct Happened {
    /// Events are on the socket. Always false while the queue is full.
    events: bool,
    /// A worker finished an event.
    done: bool,
    /// A directory of rule files changed.
    rules: bool,
    /// A process wrote to a disk.
    written: bool,
    /// A client asks for a health check.
    asked: bool,
}

/// Reads the rule files and logs, once, which lines have no effect.
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

impl<S: Source> Daemon<S> {
    /// Starts with a coldplug of all devices. `work` makes the closure that handles events.
    fn new(
        monitor: S,
        roots: Roots,
        rule_directories: &[PathBuf],
        workers: usize,
        work: impl FnOnce(Arc<Handler>) -> Box<Work>,
    ) -> anyhow::Result<Self> {
        for directory in ["data", "rules.d"] {
            fs::create_dir_all(roots.run.join(directory))
                .context("make the database's directory")?;
        }
        let path = roots.run.join("health");
        gone(fs::remove_file(&path)).context("remove the former daemon's socket")?;
        let health = UnixListener::bind(&path).context("open the socket for health checks")?;
        health.set_nonblocking(true)?;
        // Watch before the files are read, so that no change in between is lost.
        let rule_watch = RuleWatch::new(rule_directories).context("watch the rule files")?;
        let watches = Arc::new(Watches::new().context("watch the disks")?);
        let mut handler = Handler::new(roots);
        handler.watch_with(watches.clone());
        handler.set_rules(load_rules(rule_directories));
        let handler = Arc::new(handler);
        handler.sweep();
        Ok(Self {
            monitor,
            pool: Pool::start(workers, work(handler.clone()))?,
            queue: Queue::default(),
            coldplug: Coldplug::everything(handler.sysfs()),
            handler,
            watches,
            rule_watch,
            rule_directories: rule_directories.to_owned(),
            health,
            handled: 0,
            has_lost: false,
        })
    }

    /// Number of events that wait or are in work, without those that a late event blocks.
    fn waiting(&self) -> usize {
        match self.pool.late().as_slice() {
            [] => self.queue.len(),
            late => self.queue.len() - self.queue.held_up_by(late),
        }
    }

    /// Number of events that may be taken off the socket. Twice the bound may be queued if late events block the rest.
    fn room(&self) -> usize {
        let room = QUEUE_BOUND.saturating_sub(self.waiting());
        room.min((2 * QUEUE_BOUND).saturating_sub(self.queue.len()))
    }

    /// Handles what happened. Waits first, unless coldplug has more to request. Returns true, without waiting, when the
    /// queue is empty.
    fn step(&mut self) -> anyhow::Result<bool> {
        let waiting = self.waiting();
        if waiting < COLDPLUG_LOW {
            self.coldplug.advance(COLDPLUG_BATCH);
        }
        let more = !self.coldplug.is_done() && waiting < COLDPLUG_LOW;
        let quiet = self.coldplug.is_done() && waiting == 0;
        let Happened {
            events,
            done,
            rules,
            written,
            asked,
        } = self.wait(more || quiet)?;
        if asked {
            // Closing the connection is the answer.
            while self.health.accept().is_ok() {}
        }
        self.pool.replace_late(Instant::now());
        if quiet && !events && !done && !rules && !written {
            if self.has_lost {
                self.has_lost = false;
                self.handler.sweep();
            }
            return Ok(true);
        }
        if written {
            for devpath in self.watches.written() {
                ask(&self.handler.sysfs().path(&devpath), "change");
            }
        }
        if rules && self.rule_watch.changed() {
            self.handler.set_rules(load_rules(&self.rule_directories));
            // New rules apply to present devices, too.
            self.coldplug = Coldplug::everything(self.handler.sysfs());
        }
        if done {
            for ticket in self.pool.done() {
                self.queue.done(ticket);
                self.handled += 1;
            }
        }
        // Computed once: with many events behind a late one the computation is expensive.
        let room = if events { self.room() } else { 0 };
        for _ in 0..room {
            match self.monitor.receive().context("receive uevents")? {
                Received::Event(event) => self.queue.push(event),
                Received::Broken => {}
                Received::Empty => break,
                Received::Overrun => {
                    warn!("the kernel dropped uevents: asking for all devices again");
                    self.has_lost = true;
                    self.coldplug = Coldplug::everything(self.handler.sysfs());
                }
            }
        }
        while let Some(job) = self.queue.pop() {
            self.pool.give(job)?;
        }
        Ok(false)
    }

    /// Waits for something to happen; with `only_look` polls without blocking.
    fn wait(&self, only_look: bool) -> anyhow::Result<Happened> {
        let mut files = vec![
            PollFd::new(&self.pool, PollFlags::IN),
            PollFd::new(&self.rule_watch, PollFlags::IN),
            PollFd::new(&self.watches, PollFlags::IN),
        ];
        // Omit a descriptor that cannot be served now: its error conditions would wake the loop, too.
        let mut add = |file, is_wanted: bool| {
            is_wanted.then(|| {
                files.push(PollFd::from_borrowed_fd(file, PollFlags::IN));
                files.len() - 1
            })
        };
        let events = add(self.monitor.as_fd(), self.room() > 0);
        let asked = add(self.health.as_fd(), !self.pool.is_held_up());
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let soon = self.pool.may_be_late().then_some(&LOOK_FOR_LATE);
        let limit = if only_look { Some(&at_once) } else { soon };
        match poll(&mut files, limit) {
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
            events: events.is_some_and(happened),
            asked: asked.is_some_and(happened),
        })
    }
}

#[cfg(test)]
#[path = "daemon_tests.rs"]
mod tests;
