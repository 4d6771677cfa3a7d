//! A program under test in a process of its own, and what the kernel says it takes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A busy machine must not fail a test; a good one takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between looks at what is waited for.
const LOOK: Duration = Duration::from_millis(10);
pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A process, which ends with this value.
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

    /// Starts a daemon of the image, and waits until it says that it is ready; `directory` is its own.
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

    /// A line of a file of the process that tells KiB, in bytes.
    fn bytes(&self, name: &str, field: &str) -> usize {
        let text = fs::read_to_string(self.file(name)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.unwrap().parse::<usize>().unwrap() * KIB
    }

    /// Bytes of memory that are the process's own now: not those of its file, of which more come as more of the
    /// program is used (proc_pid_smaps(5), `smaps_rollup`).
    pub fn own(&self) -> usize {
        self.bytes("smaps_rollup", "Anonymous:")
    }

    /// Bytes it has in memory now, its file's among them. From here on [`Process::peak`] counts.
    pub fn begin(&self) -> usize {
        // Forgets the most there was (proc_pid_clear_refs(5)).
        fs::write(self.file("clear_refs"), "5").unwrap();
        self.bytes("status", "VmRSS:")
    }

    /// The most bytes it had in memory since [`Process::begin`].
    pub fn peak(&self) -> usize {
        self.bytes("status", "VmHWM:")
    }

    /// Nanoseconds of processors that its threads have had (the kernel's Documentation/scheduler/sched-stats.rst).
    fn worked(&self) -> u64 {
        let threads = fs::read_dir(self.file("task")).unwrap();
        let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("schedstat")).ok();
        // A thread may end meanwhile.
        let stats = threads.filter_map(|thread| of(thread.unwrap()));
        stats
            .map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Its open descriptors and its threads.
    pub fn descriptors_and_threads(&self) -> (usize, usize) {
        let count = |name| fs::read_dir(self.file(name)).unwrap().count();
        (count("fd"), count("task"))
    }
}

impl Process {
    /// Waits until it has no more descriptors and threads than it had before.
    pub async fn comes_back_to(&self, (descriptors, threads): (usize, usize)) {
        let left = || self.descriptors_and_threads();
        let is_as_before = |left: &(usize, usize)| left.0 <= descriptors && left.1 <= threads;
        until("descriptors and threads", left, is_as_before).await;
    }
}

/// Waits until the processes have nothing to do.
pub async fn at_rest(processes: &[&Process]) {
    // Of that long, so little work is none.
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

/// Waits until `found` is what was wanted.
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

/// Fails when something took more than its bound; says what it took.
pub fn within(what: &str, before: usize, after: usize, bound: usize) {
    let more = after.saturating_sub(before);
    eprintln!("{what}: {} KiB more, bound {} KiB", more / KIB, bound / KIB);
    assert!(
        more <= bound,
        "{what}: {more} bytes more, the bound is {bound}"
    );
}
