//! A program under test in a process of its own, and its resources as the kernel reports them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of a step; an idle machine needs milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);
/// Interval of the samples for [`Process::peak`].
const SAMPLE: Duration = Duration::from_millis(2);
pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A process, killed when this value is dropped.
pub struct Process {
    child: Child,
    /// Peak of [`Process::own`].
    peak: Arc<AtomicUsize>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Process {
    pub fn new(child: Child) -> Process {
        let peak = Arc::<AtomicUsize>::default();
        let (samples, pid) = (Arc::downgrade(&peak), child.id());
        // The kernel's own peak (`VmHWM`) has the pages of the program file, which come and go on a busy machine.
        thread::spawn(move || {
            while let Some(peak) = samples.upgrade() {
                peak.fetch_max(own(pid).unwrap_or_default(), Ordering::SeqCst);
                drop(peak);
                thread::sleep(SAMPLE);
            }
        });
        Process { child, peak }
    }

    /// Starts a daemon of the image in its own `directory` and waits until it reports that it is ready.
    pub fn daemon<S: AsRef<OsStr> + std::fmt::Debug>(directory: &Path, arguments: &[S]) -> Process {
        let notify = directory.join("notify");
        let ready = UnixDatagram::bind(&notify).unwrap();
        ready.set_read_timeout(Some(PATIENCE)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_corten-node"))
            .args(arguments)
            .env("NOTIFY_SOCKET", &notify)
            .spawn()
            .unwrap();
        let process = Process::new(child);
        let mut word = [0; 64];
        ready
            .recv(&mut word)
            .unwrap_or_else(|error| panic!("{arguments:?} is not ready: {error}"));
        assert!(word.starts_with(b"READY=1"));
        process
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// Private memory of the process in bytes, without pages of the program file, which grow as more of the program is
    /// used.
    pub fn own(&self) -> usize {
        own(self.child.id()).unwrap()
    }

    /// The same as [`Process::own`]. Resets [`Process::peak`].
    pub fn begin(&self) -> usize {
        let now = self.own();
        self.peak.store(now, Ordering::SeqCst);
        now
    }

    /// Peak of [`Process::own`] since [`Process::begin`].
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst).max(self.own())
    }

    /// CPU time of all threads in nanoseconds (the kernel's Documentation/scheduler/sched-stats.rst).
    fn worked(&self) -> u64 {
        let threads = fs::read_dir(self.file("task")).unwrap();
        let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("schedstat")).ok();
        // A thread may end meanwhile.
        let stats = threads.filter_map(|thread| of(thread.unwrap()));
        stats
            .map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Number of open file descriptors and of threads.
    pub fn descriptors_and_threads(&self) -> (usize, usize) {
        let count = |name| fs::read_dir(self.file(name)).unwrap().count();
        (count("fd"), count("task"))
    }
}

impl Process {
    /// Waits until it has no more file descriptors and threads than before.
    pub async fn comes_back_to(&self, (descriptors, threads): (usize, usize)) {
        let left = || self.descriptors_and_threads();
        let is_as_before = |left: &(usize, usize)| left.0 <= descriptors && left.1 <= threads;
        until("descriptors and threads", left, is_as_before).await;
    }
}

/// Private memory of a process in bytes (proc_pid_smaps(5), `smaps_rollup`); none if it has ended.
fn own(pid: u32) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let number = line?.trim().strip_suffix(" kB")?;
    Some(number.parse::<usize>().ok()? * KIB)
}

/// Waits until the processes are idle.
pub async fn at_rest(processes: &[&Process]) {
    // Less CPU time than this per interval counts as idle.
    const LONG: Duration = Duration::from_millis(300);
    const LITTLE: u64 = 2_000_000;
    let worked = || processes.iter().map(|one| one.worked()).sum::<u64>();
    let mut last = worked();
    loop {
        tokio::time::sleep(LONG).await;
        let now = worked();
        if now.abs_diff(last) < LITTLE {
            return;
        }
        last = now;
    }
}

/// Polls until `found` meets the condition.
pub async fn until<T: std::fmt::Debug>(
    what: &str,
    found: impl Fn() -> T,
    is_it: impl Fn(&T) -> bool,
) {
    let begin = Instant::now();
    loop {
        let now = found();
        if is_it(&now) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: still {now:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Fails if the growth exceeds the bound; prints the growth.
pub fn within(what: &str, before: usize, after: usize, bound: usize) {
    let more = after.saturating_sub(before);
    eprintln!("{what}: {} KiB more, bound {} KiB", more / KIB, bound / KIB);
    assert!(
        more <= bound,
        "{what}: {more} bytes more, the bound is {bound}"
    );
}
