//! A program under test in a process of its own, and its resources as the kernel reports them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Timeout of a step; an idle machine needs milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);
pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A process, killed when this value is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Process {
    pub fn new(child: Child) -> Process {
        Process(child)
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
        let process = Process(child);
        let mut word = [0; 64];
        ready
            .recv(&mut word)
            .unwrap_or_else(|error| panic!("{arguments:?} is not ready: {error}"));
        assert!(word.starts_with(b"READY=1"));
        process
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0.id())
    }

    /// A value in bytes from a line of a process file that gives KiB.
    fn bytes(&self, name: &str, field: &str) -> usize {
        let text = fs::read_to_string(self.file(name)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.unwrap().parse::<usize>().unwrap() * KIB
    }

    /// Private memory of the process in bytes, without pages of the program file, which grow as more of the program is
    /// used (proc_pid_smaps(5), `smaps_rollup`).
    pub fn own(&self) -> usize {
        self.bytes("smaps_rollup", "Anonymous:")
    }

    /// Resident memory in bytes, without pages of the program file. Resets [`Process::peak`].
    pub fn begin(&self) -> usize {
        // Resets the peak (proc_pid_clear_refs(5)).
        fs::write(self.file("clear_refs"), "5").unwrap();
        self.bytes("status", "VmRSS:") - self.mapped()
    }

    /// Peak resident memory in bytes since [`Process::begin`], without the pages of the program file that are resident
    /// now. The kernel drops such pages when other processes need memory and maps them again at the next use.
    pub fn peak(&self) -> usize {
        self.bytes("status", "VmHWM:") - self.mapped()
    }

    /// Resident pages of files in bytes (proc_pid_status(5), `RssFile`).
    fn mapped(&self) -> usize {
        self.bytes("status", "RssFile:")
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
