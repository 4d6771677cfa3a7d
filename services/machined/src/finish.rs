//! The only exit of process 1. Every end of the boot (a request, a signal, a fatal error, a panic) comes here and never
//! returns.

mod step;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::durable;
use corten_base::mode::Mode;
use corten_base::mount_table::{self, Mount};
use corten_base::panics;
use corten_persistence::last_stop::{self, Reason, Stop};
use corten_persistence::meta;
use corten_sys::power::{self, End};
use corten_sys::process::{Signal, reap, signal_all};
use corten_sys::watchdog;
use corten_sys::{cgroup, host, mount};
use corten_volumes::{EPHEMERAL, STATE, Target};

use crate::boot::cgroups;
use step::Steps;

/// Time between SIGTERM and SIGKILL for processes outside services: remaining pods and their shims.
const GRACE: Duration = Duration::from_secs(5);
/// Timeout after SIGKILL. A process in uninterruptible sleep survives it anyway.
const KILL: Duration = Duration::from_secs(2);
/// Timeout of a step without progress: it waits for a dead server or disk.
const STUCK: Duration = Duration::from_secs(60);
/// The same for a mount after another one has hung: a dead server has many mounts.
const STUCK_LATER: Duration = Duration::from_secs(5);
/// The same for wiping, which reports progress every 64 MiB.
const WIPE_STUCK: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(50);
/// Seconds to read the reason (the reference's value).
const COUNTDOWN: u32 = 10;

/// Two threads may fail at once; the second waits until the first ends the machine.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Parameters of the end of a boot.
#[derive(Debug)]
pub struct Ending {
    /// Restart or power off.
    pub end: End,
    /// Reason, for the next boot.
    pub stop: Stop,
    /// Devices to wipe after all unmounts, in this order.
    pub wipe: Vec<Target>,
}

/// Ends all processes, records the reason, unmounts, wipes, flushes, and ends the machine.
pub fn finish(ending: &Ending) -> ! {
    enter();
    leave(ending)
}

/// Reports why the node cannot continue, counts down, and restarts. With `corten.panic=0` halts instead.
pub fn fatal(why: &str) -> ! {
    enter();
    console::error(&format!("cannot go on: {why}"));
    // Reading the command line may fail as well, for the same reason.
    if panics::caught_here(stays_on_failure).unwrap_or(false) {
        console::error(
            "not restarting: the kernel parameter corten.panic or panic is 0; reset the machine",
        );
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

fn stays_on_failure() -> bool {
    Cmdline::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default()).stays_on_failure()
}

fn enter() {
    if ENTERED.swap(true, Ordering::SeqCst) {
        wait_for_ever();
    }
}

fn leave(ending: &Ending) -> ! {
    // The watchdogs' feeder is gone; the steps feed them now.
    let watchdogs = || watchdog::running(Path::new(watchdog::CLASS), Path::new("/dev"));
    let steps = Steps::new(panics::caught_here(watchdogs).unwrap_or_default());
    let end = and_write_back(
        || clear_up(&steps, ending),
        || {
            let what = "syncing the file systems";
            let _ = steps.run(what, STUCK, |_| power::sync());
        },
    );
    console::say(match end {
        End::Restart => "restarting",
        End::PowerOff => "switching off",
    });
    if let Err(error) = power::end(end) {
        console::error(&format!(
            "the kernel refuses to end the machine: {error}; switch it off by hand"
        ));
    }
    wait_for_ever()
}

/// Runs `clear_up` and then `write_back`, even if the first panics. An incomplete cleanup is no reason to stay: the
/// next boot repairs the file systems.
fn and_write_back(clear_up: impl FnOnce() -> End, write_back: impl FnOnce()) -> End {
    let end = panics::caught_here(clear_up).unwrap_or(End::Restart);
    let _ = panics::caught_here(write_back);
    end
}

/// Everything before the final flush. Returns whether to restart or power off.
fn clear_up(steps: &Steps, Ending { end, stop, wipe }: &Ending) -> End {
    // A failed step is logged and skipped.
    let _ = steps.run("ending all processes", STUCK, |_| end_processes());
    let (stop, targets) = (stop.clone(), wipe.clone());
    let _ = steps.run("recording why this boot ends", STUCK, move |_| {
        write_down(&stop, &targets);
    });
    unmount_all(
        mounted_by_us(mount_table::now(), Mode::now()),
        |target, limit| {
            let what = format!("unmounting {}", target.display());
            steps.run(&what, limit, move |_| {
                if mount::unmount(&target).is_err() {
                    let _ = mount::detach(&target);
                }
            })
        },
    );
    let _ = steps.run("closing volumes", STUCK, |_| corten_volumes::close());
    let is_wiped = wipe_all(wipe, |target| {
        let (what, target) = (format!("wiping {target}"), target.clone());
        steps.run(&what, WIPE_STUCK, move |alive| target.empty(alive))?
    });
    // After a power-off the operator cannot repeat the wipe.
    if is_wiped { *end } else { End::Restart }
}

/// Records for the next boot why this one ends, and which volumes it has to create again.
fn write_down(stop: &Stop, wipe: &[Target]) {
    let state = Path::new(STATE.target);
    let boot = host::boot_id();
    let written = if durable::is_volume(state) {
        last_stop::record(state, &boot, stop)
    } else {
        corten_volumes::meta_partition()
            .and_then(|meta| meta.map_or(Ok(()), |meta| meta::end_lock(&meta, &boot, stop)))
    };
    if let Err(error) = written {
        console::warn(&format!("cannot record why this boot ends: {error}"));
    }
    let ends: Vec<_> = wipe.iter().flat_map(Target::ends).collect();
    corten_volumes::user::forget(state, &ends);
}

/// Unmounts each mount point within a time limit.
fn unmount_all(
    targets: Vec<PathBuf>,
    mut unmount: impl FnMut(PathBuf, Duration) -> io::Result<()>,
) {
    let mut limit = STUCK;
    for target in targets {
        let is_stuck = |error: io::Error| error.kind() == io::ErrorKind::TimedOut;
        if unmount(target, limit).is_err_and(is_stuck) {
            limit = STUCK_LATER;
        }
    }
}

/// Wipes the targets; returns whether all succeeded. After a disk failed, the node's own partitions stay, because only
/// this node can be asked to repeat the wipe.
fn wipe_all(targets: &[Target], mut empty: impl FnMut(&Target) -> io::Result<()>) -> bool {
    let mut failed = false;
    for target in targets {
        if failed && !matches!(target, Target::Disk(_)) {
            console::error(&format!(
                "{target} is not wiped, so that the node can repeat the failed wipe"
            ));
            continue;
        }
        console::say(&format!("wiping {target}"));
        match empty(target) {
            Ok(()) => console::say(&format!("{target} is wiped")),
            Err(error) => {
                failed = true;
                console::error(&format!(
                    "{target} is not wiped: {error}; repeat the reset after the restart"
                ));
            }
        }
    }
    !failed
}

/// Sends SIGTERM to every process, then SIGKILL to the rest.
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

/// Mount points to unmount, innermost first. The kernel's file systems and the root stay: they have nothing to write
/// back, and console output needs them. The roots of containers do not stay, because they keep EPHEMERAL busy, which a
/// reset wipes. The volumes of a node that is a container stay: its runtime has mounted them, and a reset empties them.
fn mounted_by_us(mounts: Vec<Mount>, mode: Mode) -> Vec<PathBuf> {
    let is_ours = |target: &PathBuf| {
        let kernels = ["/proc", "/sys", "/dev", "/run"];
        let volumes = [STATE, EPHEMERAL].map(|volume| Path::new(volume.target));
        let is_kernels = kernels.iter().any(|top| target.starts_with(top));
        let is_runtimes = mode == Mode::Container && volumes.contains(&target.as_path());
        target.as_path() != Path::new("/")
            && (!is_kernels || target.starts_with("/run/containerd"))
            && !is_runtimes
    };
    let targets = mounts.into_iter().map(|mount| PathBuf::from(mount.target));
    let mut targets: Vec<PathBuf> = targets.filter(is_ours).collect();
    targets.reverse();
    targets
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
    fn system_disk_is_kept_if_another_disk_fails_to_wipe() {
        let disk = |name: &str| Target::Disk(corten_volumes::Disk::new(name, 0));
        let meta = Target::Partition("META");
        let targets = [disk("vdb"), disk("vdc"), meta, Target::SystemDisk];
        for (broken, reached) in [("vdb", 2), ("none", 4)] {
            let mut seen = Vec::new();
            let is_wiped = wipe_all(&targets, |target| {
                seen.push(target.clone());
                if *target == disk(broken) {
                    return Err(io::Error::other("broken"));
                }
                Ok(())
            });
            assert_eq!(seen, targets[..reached]);
            assert_eq!(is_wiped, broken == "none");
        }
    }

    #[test]
    fn file_systems_are_synced_even_after_a_panic_of_the_shutdown() {
        for (has_bug, end) in [(false, End::PowerOff), (true, End::Restart)] {
            let mut is_written = false;
            let clear_up = || {
                assert!(!has_bug, "a bug");
                End::PowerOff
            };
            assert_eq!(and_write_back(clear_up, || is_written = true), end);
            assert!(is_written);
        }
        let restarts = and_write_back(|| End::Restart, || panic!("a bug"));
        assert_eq!(restarts, End::Restart);
    }

    #[test]
    fn unmounts_after_a_hung_mount_have_a_shorter_timeout() {
        let failed = |kind: io::ErrorKind| Err(kind.into());
        let ends = [
            Ok(()),
            failed(io::ErrorKind::Other),
            failed(io::ErrorKind::TimedOut),
            Ok(()),
            failed(io::ErrorKind::Other),
        ];
        let mut limits = Vec::new();
        let targets = vec![PathBuf::from("/a"); ends.len()];
        let mut ends = ends.into_iter();
        unmount_all(targets, |_, limit| {
            limits.push(limit);
            ends.next().unwrap()
        });
        assert_eq!(limits, [STUCK, STUCK, STUCK, STUCK_LATER, STUCK_LATER]);
    }

    #[test]
    fn inner_mounts_are_unmounted_first_and_kernel_mounts_stay() {
        let mounts = "\
            /dev/loop0 / squashfs ro 0 0\n\
            proc /proc proc rw 0 0\n\
            tmpfs /run tmpfs rw 0 0\n\
            tmpfs /run/containerd/x tmpfs rw 0 0\n\
            tmpfs /var tmpfs rw 0 0\n\
            tmpfs /runner tmpfs rw 0 0\n\
            overlay /var/lib/a\\040b overlay rw 0 0\n";
        let of = |mode| mounted_by_us(mount_table::parse(mounts), mode);
        assert_eq!(
            of(Mode::Machine),
            ["/var/lib/a b", "/runner", "/var", "/run/containerd/x"].map(PathBuf::from)
        );
        // The runtime's volume stays.
        assert_eq!(
            of(Mode::Container),
            ["/var/lib/a b", "/runner", "/run/containerd/x"].map(PathBuf::from)
        );
    }
}
