//! Ctrl-C: what runs is stopped, what is half-written goes, and the user is told how to go on.
//!
//! The cache needs no help: its entries appear by one rename (see [`crate::cache`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Remedy as _, Result};

/// What a shell reports of a program that Ctrl-C ended: 128 + SIGINT.
const EXIT_CODE: i32 = 130;

/// What a signal finds to do.
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

/// Makes SIGINT, SIGTERM and SIGHUP end the program in good order, with exit code 130.
pub fn install() -> Result<()> {
    ctrlc::set_handler(stop).or_fail("cannot handle Ctrl-C", "report this: it should always work")
}

#[expect(
    clippy::exit,
    reason = "a signal ends the program, whatever it was doing"
)]
fn stop() {
    // Held to the end: nobody reports as a failure what was ended here.
    let pending = pending();
    for pid in &pending.children {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    for path in &pending.partial {
        // It may not be there yet; and there is nobody left to tell.
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

/// A program that is stopped with this one, for as long as this value lives.
#[derive(Debug)]
pub struct Child(u32);

impl Child {
    /// The program with this process id.
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

/// A file or directory that is removed with this program, for as long as this value lives.
#[derive(Debug)]
pub struct Partial(PathBuf);

impl Partial {
    /// The file or directory at `path`, there already or not.
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
