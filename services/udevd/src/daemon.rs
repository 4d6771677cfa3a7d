//! The daemon: one thread that listens and orders, a few that handle.
//!
//! A device that holds up who handles its events holds up nobody else. What is not handled for its sake does not count
//! when it is asked whether all is done.

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
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};

/// Events taken off the socket before the queue is worked on; beyond this the
/// kernel keeps them for us.
const QUEUE_BOUND: usize = 2048;

/// Coldplug asks for more only while fewer events than this are waiting, so it
/// cannot overrun the socket by itself.
const COLDPLUG_LOW: usize = 128;

/// How many devices coldplug asks for at once.
const COLDPLUG_BATCH: usize = 64;

/// How often it is looked for events that have become late, while some may.
const LOOK_FOR_LATE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Listens for ever.
///
/// # Errors
/// When the monitor cannot be set up or breaks.
pub fn run(roots: Roots, rule_directories: &[PathBuf], workers: usize) -> anyhow::Result<()> {
    let started = Instant::now();
    // Before anything is read from sysfs: what comes in between is then heard.
    let monitor = Monitor::new().context("listen for uevents")?;
    let broadcast = Arc::new(Broadcast::new().context("open the socket of handled events")?);
    let policy = Arc::new(modules::policy());
    let (marker, dev) = (roots.run.join("queue"), roots.dev.clone());
    let work = |handler: Arc<Handler>| -> Box<Work> {
        Box::new(move || {
            // Without libkmod everything but modules still works.
            let loader = Loader::new(Path::new("/sys"), policy.clone())
                .inspect_err(|error| warn!("no modules will be loaded: {error}"))
                .ok();
            let (handler, broadcast) = (handler.clone(), broadcast.clone());
            Box::new(move |event| {
                let plan = handler.handle(event, loader.as_ref());
                if let Err(error) = broadcast.send(event, &plan) {
                    warn!("{event}: tell the listeners: {error}");
                }
            })
        })
    };
    let mut daemon = Daemon::new(monitor, roots, rule_directories, workers, work)?;
    crate::nodes::standard_links(&dev);
    crate::nodes::static_nodes(&dev, &daemon.handler.static_nodes());
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
    /// Who asks whether this works still calls here, and is answered as long as events are handled.
    health: UnixListener,
    handled: u64,
    /// Events were lost, and with them perhaps the going of devices.
    has_lost: bool,
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
    /// Somebody asks whether this works.
    asked: bool,
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

impl<S: Source> Daemon<S> {
    /// Begins with all devices there are. `work`: makes what events are handled with.
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
        gone(fs::remove_file(&path)).context("remove the socket of the daemon before")?;
        let health = UnixListener::bind(&path).context("open the socket for health checks")?;
        health.set_nonblocking(true)?;
        // Before they are read: what changes in between is then heard.
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

    /// Events that wait or are in work, but for those that a late one holds up.
    fn waiting(&self) -> usize {
        match self.pool.late().as_slice() {
            [] => self.queue.len(),
            late => self.queue.len() - self.queue.held_up_by(late),
        }
    }

    /// How many more events may be taken off the socket. As many may wait for late ones.
    fn room(&self) -> usize {
        let room = QUEUE_BOUND.saturating_sub(self.waiting());
        room.min((2 * QUEUE_BOUND).saturating_sub(self.queue.len()))
    }

    /// Deals with what happened, waiting for it unless there is more to ask
    /// for. True, at once, when nothing is left to do.
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
            // Hanging up is the answer.
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
            // They are for the devices that are there, too.
            self.coldplug = Coldplug::everything(self.handler.sysfs());
        }
        if done {
            for ticket in self.pool.done() {
                self.queue.done(ticket);
                self.handled += 1;
            }
        }
        // Counted once: behind a late event there may be many.
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

    /// Waits, or only looks.
    fn wait(&self, only_look: bool) -> anyhow::Result<Happened> {
        let mut files = vec![
            PollFd::new(&self.pool, PollFlags::IN),
            PollFd::new(&self.rule_watch, PollFlags::IN),
            PollFd::new(&self.watches, PollFlags::IN),
        ];
        // Not even an error is of interest in what cannot be dealt with.
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
