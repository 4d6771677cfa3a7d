//! Ctrl-C: stops the running tools, removes half-written files, and tells the user how to continue.
//!
//! The cache needs no clean-up: its entries appear by atomic rename (see [`crate::cache`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Remedy as _, Result};

/// The exit code that a shell reports for a program ended by Ctrl-C: 128 + SIGINT.
const EXIT_CODE: i32 = 130;

/// The work of the signal handler.
struct Pending {
    children: BTreeSet<u32>,
    partial: BTreeSet<PathBuf>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    children: BTreeSet::new(),
    partial: BTreeSet::new(),
});

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes SIGINT, SIGTERM and SIGHUP clean up and end the program with exit code 130.
pub fn install() -> Result<()> {
    ctrlc::set_handler(stop).or_fail("cannot handle Ctrl-C", "report this: it should always work")
}

#[expect(clippy::exit, reason = "a signal ends the program at any point")]
fn stop() {
    // The lock is held to the end, so that no thread reports the killed tools as failures.
    let pending = pending();
    for pid in &pending.children {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    for path in &pending.partial {
        // The path may not exist yet, and an error has no reader any more.
        let _ = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
    }
    eprintln!(
        "mkimage: interrupted\n\
         remedy: run the same command again; finished steps are kept, nothing is half-written"
    );
    std::process::exit(EXIT_CODE);
}

/// A child process that is stopped with this program, as long as this value lives.
#[derive(Debug)]
pub struct Child(u32);

impl Child {
    /// Registers the process with this id.
    pub fn new(pid: u32) -> Self {
        pending().children.insert(pid);
        Self(pid)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        pending().children.remove(&self.0);
    }
}

/// A file or directory that is removed with this program, as long as this value lives.
#[derive(Debug)]
pub struct Partial(PathBuf);

impl Partial {
    /// Registers `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        pending().partial.insert(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        pending().partial.remove(&self.0);
    }
}
