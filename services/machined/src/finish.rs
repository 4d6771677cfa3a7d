//! The one way out of process 1. Whatever ends this boot (a request, a signal, a fatal error, a bug) comes
//! here; nothing returns from here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corten_sys::power::{self, End};
use corten_sys::process::{Signal, reap, signal_all};
use corten_sys::{cgroup, host, mount};

use crate::boot::cgroups;
use crate::cmdline::Cmdline;
use crate::console;
use crate::durable;
use crate::last_stop::{self, Reason, Stop};
use crate::volumes::{self, STATE};

/// Between SIGTERM and SIGKILL for what no service owns: pods that are left, their shims.
const GRACE: Duration = Duration::from_secs(5);
/// For SIGKILL to do its work; a process in uninterruptible sleep outlives it anyway.
const KILL: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);
/// Long enough to read why (the reference's number).
const COUNTDOWN: u32 = 10;

/// Two threads may fail at once; the second waits for the first to end the machine.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// How a boot ends.
#[derive(Debug)]
pub struct Ending {
    /// By a restart, or for good.
    pub end: End,
    /// Why, for the next boot.
    pub stop: Stop,
    /// Partitions to wipe when nothing uses them any more, by name.
    pub wipe: Vec<&'static str>,
}

/// Ends what still runs, writes down why, unmounts, wipes, flushes, and ends the machine.
pub fn finish(ending: &Ending) -> ! {
    enter();
    leave(ending)
}

/// Says why the node cannot go on, counts down, then restarts, or stays with `corten.panic=0`.
pub fn fatal(why: &str) -> ! {
    enter();
    console::error(&format!("cannot go on: {why}"));
    let cmdline = Cmdline::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    if cmdline.stays_on_failure() {
        console::error("not restarting, because the kernel parameter panic is 0");
        wait_for_ever();
    }
    for left in (1..=COUNTDOWN).rev() {
        console::error(&format!("restarting in {left} s"));
        thread::sleep(Duration::from_secs(1));
    }
    leave(&Ending {
        end: End::Restart,
        stop: Stop::now(Reason::Fatal, why),
        wipe: Vec::new(),
    })
}

fn enter() {
    if ENTERED.swap(true, Ordering::SeqCst) {
        wait_for_ever();
    }
}

fn leave(Ending { end, stop, wipe }: &Ending) -> ! {
    end_processes();
    let state = Path::new(STATE.target);
    if durable::is_volume(state)
        && let Err(error) = last_stop::record(state, &host::boot_id(), stop)
    {
        console::warn(&format!("cannot write down why this boot ends: {error}"));
    }
    for target in mounted_by_us(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()) {
        if mount::unmount(&target).is_err() {
            let _ = mount::detach(&target);
        }
    }
    volumes::close();
    for name in wipe {
        match volumes::wipe(name) {
            Ok(()) => console::say(&format!("{name} is wiped")),
            Err(error) => console::error(&format!("{name} is not wiped: {error}")),
        }
    }
    console::say(match end {
        End::Restart => "restarting",
        End::PowerOff => "switching off",
    });
    power::sync();
    if let Err(error) = power::end(*end) {
        console::error(&format!("the kernel does not end the machine: {error}"));
    }
    wait_for_ever()
}

/// Asks every process to end, then kills those that do not.
fn end_processes() {
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, KILL)] {
        let _ = signal_all(signal);
        let deadline = Instant::now() + patience;
        while anyone_left() && Instant::now() < deadline {
            while let Ok(Some(_)) = reap() {}
            thread::sleep(POLL);
        }
    }
}

fn anyone_left() -> bool {
    cgroups::ALL_BUT_INIT
        .iter()
        .any(|group| cgroup::is_populated(Path::new(cgroups::ROOT), group))
}

/// The mount points to take down, the innermost first. The kernel's own file systems and the root stay: they
/// have nothing to write back, and what is said until the end needs them.
fn mounted_by_us(mounts: &str) -> Vec<PathBuf> {
    let is_ours = |target: &&str| {
        let kernels = ["/proc", "/sys", "/dev", "/run"];
        *target != "/"
            && !kernels
                .iter()
                .any(|top| target == top || target.starts_with(&format!("{top}/")))
    };
    let targets = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(is_ours);
    let mut targets: Vec<PathBuf> = targets
        .map(|target| PathBuf::from(unescape(target)))
        .collect();
    targets.reverse();
    targets
}

/// `/proc/mounts` writes blanks and backslashes as `\` and three octal digits.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (code, character)| {
        text.replace(code, character)
    })
}

fn wait_for_ever() -> ! {
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_mounts_go_first_and_the_kernels_stay() {
        let mounts = "\
            /dev/loop0 / squashfs ro 0 0\n\
            proc /proc proc rw 0 0\n\
            tmpfs /run tmpfs rw 0 0\n\
            tmpfs /run/containerd/x tmpfs rw 0 0\n\
            tmpfs /var tmpfs rw 0 0\n\
            overlay /var/lib/a\\040b overlay rw 0 0\n";
        assert_eq!(
            mounted_by_us(mounts),
            [PathBuf::from("/var/lib/a b"), PathBuf::from("/var")]
        );
    }
}
