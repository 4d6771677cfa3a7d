//! A container of the node itself, which is a child of containerd. A task follows it from start to end, even across a
//! restart of containerd, and reports to the shell.

use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use corten_base::durable;
use corten_base::panics::caught;
use corten_base::regular;
use corten_sys::process::{Exit, Signal};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use super::policy::Event;
use super::{Places, logs};
use crate::{Container, Id, ServiceSpec};

/// Delay before a retry while containerd does not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// Timeout of calls that a working containerd answers at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Search path for programs in containers.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Maximum size of a file with variables, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// A container runtime. It may be unavailable at any moment, which it reports as an error other than `NOT_FOUND`; its
/// containers keep running meanwhile.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Starts a container, or takes over one that already runs with exactly this bundle. Any other container of the
    /// same name is ended and removed first.
    async fn start(&self, id: &str, bundle: &Bundle) -> Result<Started, Status>;
    /// Waits until the container's first process has ended, and returns its exit code, or 128 plus the number of the
    /// signal that ended it. `NOT_FOUND` if there is no such container.
    async fn wait(&self, id: &str) -> Result<i32, Status>;
    /// Sends a signal to the container's first process; SIGKILL goes to all processes.
    async fn signal(&self, id: &str, signal: Signal) -> Result<(), Status>;
    /// Ends and removes the container, if it exists. All its output has been passed on by then.
    async fn remove(&self, id: &str) -> Result<(), Status>;
}

/// All inputs of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The declaration.
    pub container: Container,
    /// The complete environment as `NAME=value`; the last value of a name counts.
    pub environment: Vec<String>,
    /// Value of `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Cgroup, relative to the root of the hierarchy.
    pub cgroup: String,
    /// Upper directory of its root, for mount points and writes; a new container has an empty one.
    pub upper: PathBuf,
    /// Empty working directory next to it (overlayfs, "workdir").
    pub work: PathBuf,
    /// FIFO for its output, with an open reader.
    pub output: PathBuf,
}

impl Bundle {
    /// Empties the upper directory before a new container uses it. What an earlier container has written would shadow
    /// files of a root that has changed since, such as that of another version of an extension.
    ///
    /// # Errors
    /// Those of the file system.
    pub async fn renew_root(&self) -> io::Result<()> {
        let upper = self.upper.clone();
        let renew = move || {
            durable::remove_directory_if_there(&upper)?;
            make(&upper, 0o755)
        };
        let renewed = spawn_blocking(renew).await;
        renewed.map_err(io::Error::other).flatten()
    }
}

/// A running container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// PID of its first process.
    pub pid: u32,
    /// Whether it already ran before.
    pub taken_over: bool,
}

/// The shell's handle of a container.
#[derive(Debug)]
pub(super) struct Handle {
    signals: mpsc::UnboundedSender<Signal>,
    pid: Arc<OnceLock<u32>>,
}

impl Handle {
    /// Sends a signal as soon as containerd is reachable. A start in progress is cancelled.
    pub(super) fn signal(&self, signal: Signal) {
        // The container may have ended meanwhile.
        let _ = self.signals.send(signal);
    }

    /// PID of its first process, once it has started.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }
}

/// Starts a container and reports its events.
pub(super) fn start(
    spec: &ServiceSpec,
    container: &Container,
    places: &Places,
    logs: &logs::Sender,
    runtime: Arc<dyn Runtime>,
    told: mpsc::UnboundedSender<(Id, Event)>,
) -> Handle {
    let pid = Arc::new(OnceLock::new());
    let follower = Follower {
        id: spec.id.clone(),
        container: container.clone(),
        oom_score_adj: spec.oom_score_adj,
        cgroup: spec.cgroup.clone(),
        directory: places.containers.join(&*spec.id),
        logs: logs.clone(),
        runtime,
        told,
        pid: pid.clone(),
    };
    let (signals, heard) = mpsc::unbounded_channel();
    tokio::spawn(follower.run(heard));
    Handle { signals, pid }
}

struct Follower {
    id: Id,
    container: Container,
    oom_score_adj: i32,
    cgroup: String,
    directory: PathBuf,
    logs: logs::Sender,
    runtime: Arc<dyn Runtime>,
    told: mpsc::UnboundedSender<(Id, Event)>,
    pid: Arc<OnceLock<u32>>,
}

impl Follower {
    async fn run(self, signals: mpsc::UnboundedReceiver<Signal>) {
        let event = match caught(self.follow(signals)).await {
            Ok(Ok(exit)) => Event::Exited(exit),
            Ok(Err(why)) => Event::Failed(why),
            // The container may keep running; the next start takes it over.
            Err(panicked) => Event::Failed(format!("machined cannot follow it: {panicked}")),
        };
        self.tell(event);
    }

    fn tell(&self, event: Event) {
        // The shell ends only with machined.
        let _ = self.told.send((self.id.clone(), event));
    }

    async fn follow(&self, mut signals: mpsc::UnboundedReceiver<Signal>) -> Result<Exit, String> {
        let bundle = tokio::select! {
            bundle = self.bundle() => bundle?,
            Some(signal) = signals.recv() => return Ok(Exit::Signal(signal.as_raw())),
        };
        let writer = self
            .pump(&bundle.output)
            .map_err(|error| format!("cannot read its output: {error}"))?;
        let outcome = tokio::select! {
            started = self.start(&bundle) => match started {
                Ok(started) => {
                    // A follower starts its container only once.
                    let _ = self.pid.set(started.pid);
                    self.tell(Event::Ready(self.say(started)));
                    self.until_end(&mut signals).await
                }
                Err(status) => Err(status.message().to_owned()),
            },
            Some(signal) = signals.recv() => Ok(Exit::Signal(signal.as_raw())),
        };
        // If this fails, the next start removes the remains.
        let _ = timeout(PATIENCE, self.runtime.remove(&self.id)).await;
        // Now the reader of the output reaches its end.
        drop(writer);
        outcome
    }

    /// Retries while containerd is unavailable: it may even have started the container. The policy's timeout bounds the
    /// whole start.
    async fn start(&self, bundle: &Bundle) -> Result<Started, Status> {
        loop {
            match self.runtime.start(&self.id, bundle).await {
                Err(status) if status.code() == Code::Unavailable => sleep(AGAIN).await,
                other => return other,
            }
        }
    }

    fn say(&self, started: Started) -> String {
        let Started { pid, taken_over } = started;
        let id = &self.id;
        let did = if taken_over { "Took over" } else { "Started" };
        format!("{did} task {id} (PID {pid}) for container {id}")
    }

    async fn until_end(
        &self,
        signals: &mut mpsc::UnboundedReceiver<Signal>,
    ) -> Result<Exit, String> {
        let mut unsent = None;
        loop {
            if let Some(signal) = unsent {
                let sent = timeout(PATIENCE, self.runtime.signal(&self.id, signal)).await;
                if matches!(sent, Ok(Ok(()))) {
                    unsent = None;
                }
            }
            tokio::select! {
                ended = self.runtime.wait(&self.id) => match ended {
                    Ok(code) => return Ok(Exit::Code(code)),
                    Err(status) if status.code() == Code::NotFound => {
                        return Err("the container is gone without a known exit code".to_owned());
                    }
                    // The container runs on without containerd, which is being restarted.
                    Err(_) => sleep(AGAIN).await,
                },
                Some(signal) = signals.recv() => unsent = Some(signal),
                () = sleep(AGAIN), if unsent.is_some() => {}
            }
        }
    }

    async fn bundle(&self) -> Result<Bundle, String> {
        let (upper, work) = (self.directory.join("upper"), self.directory.join("work"));
        let output = self.directory.join("output");
        make(&self.directory, 0o700)
            .and_then(|()| make(&upper, 0o755))
            .and_then(|()| make(&work, 0o700))
            .and_then(|()| make_fifo(&output))
            .map_err(|error| format!("{}: {error}", self.directory.display()))?;
        let mut environment = vec![PATH.to_owned()];
        environment.extend(self.container.environment.iter().cloned());
        if let Some(file) = &self.container.environment_file {
            let path = file.clone();
            // The file may be on a file system that does not answer.
            let read = spawn_blocking(move || read_environment(&path)).await;
            let more = read.map_err(io::Error::other).flatten().map_err(|error| {
                format!("cannot read the variables of {}: {error}", file.display())
            })?;
            environment.extend(more);
        }
        Ok(Bundle {
            container: self.container.clone(),
            environment,
            oom_score_adj: self.oom_score_adj,
            cgroup: self.cgroup.clone(),
            upper,
            work,
            output,
        })
    }

    /// Reads the FIFO until the last writer closes it: the container, and the returned handle.
    fn pump(&self, fifo: &Path) -> io::Result<pipe::Sender> {
        let reader = pipe::OpenOptions::new().open_receiver(fifo)?;
        let writer = pipe::OpenOptions::new().open_sender(fifo)?;
        let aloud = self.container.log_to_console;
        tokio::spawn(logs::pump(
            self.id.clone(),
            reader,
            self.logs.clone(),
            aloud,
        ));
        Ok(writer)
    }
}

fn make(directory: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
}

/// Creates the FIFO, or keeps an existing one: a running container may write to it.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    match mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Err(Errno::EXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Parses lines `NAME=value`; skips empty lines and those that begin with `#`.
fn read_environment(path: &Path) -> io::Result<Vec<String>> {
    let mut text = String::new();
    let mut file = regular::open(path, true)?.take(LARGEST_FILE);
    file.read_to_string(&mut text)?;
    // The file may grow while it is read, or report no size.
    if file.limit() == 0 {
        let what = format!("it has {LARGEST_FILE} bytes or more");
        return Err(io::Error::other(what));
    }
    let mut found = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let name = line.split_once('=').map_or("", |(name, _)| name);
        if name.is_empty() || line.contains('\0') {
            let what = format!("line {} does not have the form NAME=value", number + 1);
            return Err(io::Error::other(what));
        }
        found.push(line.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
#[path = "container_tests.rs"]
mod tests;
