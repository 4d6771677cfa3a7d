//! machine.StorageService: usage of file systems.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corten_api::machine as api;
use corten_api::machine::storage_service_server::StorageService;
use corten_base::bulkhead::{Bulkhead, Refused};
use corten_base::mount_table::{self, Mount};
use rustix::fs::StatVfs;
use tokio::sync;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status, async_trait};

use crate::files::{absolute, refused};

/// Timeout of a file system's answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit of concurrent queries of all callers.
const QUESTIONS: usize = 32;

/// Queries the usage of file systems. Each file system has at most one query for its mount point and one for the paths
/// below it. So one that hangs blocks at most two threads, however often it is queried. Clones share the threads.
#[derive(Debug, Clone)]
pub struct Meter {
    ask: Ask,
    table: Table,
    threads: Bulkhead,
    questions: Arc<Mutex<HashMap<About, Question>>>,
}

/// The system call.
type Ask = fn(&Path) -> io::Result<StatVfs>;
/// The mount table.
type Table = fn() -> Vec<Mount>;

/// Subject of a query; queries with the same subject run one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum About {
    /// A mount point.
    Mount(PathBuf),
    /// A path below this mount point. A link may lead from there to a file system that hangs; the mount point itself
    /// has its own queries.
    Below(PathBuf),
}

/// The running query of a subject, and the lock for the next ones.
#[derive(Debug)]
struct Question {
    turn: Arc<sync::Mutex<()>>,
    since: Instant,
}

impl Meter {
    /// Queries the kernel, on at most 32 threads.
    #[must_use]
    pub fn of_the_kernel() -> Meter {
        let ask: Ask = |path| Ok(rustix::fs::statvfs(path)?);
        Meter::by(ask, mount_table::now, Bulkhead::new(QUESTIONS, PATIENCE))
    }

    pub(crate) fn by(ask: Ask, table: Table, threads: Bulkhead) -> Meter {
        Meter {
            ask,
            table,
            threads,
            questions: Arc::default(),
        }
    }

    /// A clone with another timeout.
    pub(crate) fn patient(&self, patience: Duration) -> Meter {
        Meter {
            threads: self.threads.patient(patience),
            ..self.clone()
        }
    }

    /// Usage of the file system mounted at `target`.
    pub(crate) async fn mount(&self, target: PathBuf) -> Result<io::Result<StatVfs>, Refused> {
        self.ask(About::Mount(target.clone()), target).await
    }

    /// Usage of the file system that holds `path`.
    async fn path(&self, path: PathBuf) -> Result<io::Result<StatVfs>, Refused> {
        let mounts = spawn_blocking(self.table).await.unwrap_or_default();
        self.ask(about(&path, &mounts), path).await
    }

    /// Registers a query before it runs, because its caller may leave while other callers arrive.
    async fn ask(&self, about: About, path: PathBuf) -> Result<io::Result<StatVfs>, Refused> {
        let turn = self.turn(&about)?;
        let asking = async {
            let turn = turn.lock_owned().await;
            self.begin(&about);
            let ask = self.ask;
            // The lock moves to the thread, so that the thread is free before the next query starts.
            let answer = self.threads.start(move || (ask(&path), turn))?;
            let (answer, _turn) = answer.await.map_err(|_| Refused::BrokeOff)?;
            Ok(answer)
        };
        self.threads.within(asking).await?
    }

    /// The lock of a subject. Fails if the running query has exceeded the timeout.
    fn turn(&self, about: &About) -> Result<Arc<sync::Mutex<()>>, Refused> {
        let mut questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        questions.retain(|_, question| Arc::strong_count(&question.turn) > 1);
        let question = questions.entry(about.clone()).or_insert_with(|| Question {
            turn: Arc::default(),
            since: Instant::now(),
        });
        let is_under_way = question.turn.try_lock().is_err();
        if is_under_way && question.since.elapsed() >= self.threads.patience() {
            return Err(self.threads.silence());
        }
        Ok(question.turn.clone())
    }

    fn begin(&self, about: &About) {
        let mut questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(question) = questions.get_mut(about) {
            question.since = Instant::now();
        }
    }
}

/// The subject of a path, from its text alone: accessing the path could block for ever.
fn about(path: &Path, mounts: &[Mount]) -> About {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    let targets = mounts.iter().map(|mount| Path::new(&mount.target));
    let holding = targets.filter(|target| plain.starts_with(target));
    let mount = holding.max_by_key(|target| target.as_os_str().len());
    let mount = mount.unwrap_or(Path::new("/")).to_owned();
    // A link may precede `..`.
    if path == mount {
        About::Mount(mount)
    } else {
        About::Below(mount)
    }
}

/// The service. Sizes are bytes. A file system that does not answer within 10 s is DEADLINE_EXCEEDED.
#[derive(Debug)]
pub struct FileSystems(Meter);

impl FileSystems {
    /// Shares the threads of `meter`.
    #[must_use]
    pub fn new(meter: &Meter) -> FileSystems {
        FileSystems(meter.patient(PATIENCE))
    }
}

#[async_trait]
impl StorageService for FileSystems {
    async fn statfs(
        &self,
        request: Request<api::StorageServiceStatfsRequest>,
    ) -> Result<Response<api::StorageServiceStatfsResponse>, Status> {
        let path = absolute(&request.into_inner().path);
        let usage = self.0.path(path.clone()).await.map_err(|silence| {
            let status = Status::from(silence);
            let text = format!("path: {}: {}", path.display(), status.message());
            Status::new(status.code(), text)
        })?;
        let usage = usage.map_err(|error| refused("path", &path, &error))?;
        Ok(Response::new(in_bytes(usage)))
    }
}

/// Sizes in bytes.
fn in_bytes(usage: StatVfs) -> api::StorageServiceStatfsResponse {
    let bytes = |blocks: u64| blocks.saturating_mul(usage.f_frsize);
    api::StorageServiceStatfsResponse {
        size: bytes(usage.f_blocks),
        used: bytes(usage.f_blocks.saturating_sub(usage.f_bfree)),
        available: bytes(usage.f_bavail),
        inodes: usage.f_files,
        inodes_used: usage.f_files.saturating_sub(usage.f_ffree),
        inodes_free: usage.f_ffree,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::join_all;
    use tonic::Code;

    use super::*;

    /// Timeout for a file system that answers, on a busy machine, too.
    const ANSWER: Duration = Duration::from_secs(60);
    /// Timeout for a file system that hangs.
    const SILENCE: Duration = Duration::from_millis(10);

    async fn size(service: &FileSystems, path: &str) -> Result<u64, Status> {
        let path = path.to_owned();
        let request = Request::new(api::StorageServiceStatfsRequest { path });
        let answer = service.statfs(request).await?;
        Ok(answer.into_inner().size)
    }

    fn mounts(targets: &[&str]) -> Vec<Mount> {
        let line = |target: &&str| format!("source {target} type rw 0 0\n");
        mount_table::parse(&targets.iter().map(line).collect::<String>())
    }

    #[tokio::test]
    async fn silent_file_system_is_named_and_measured_again_once_it_answers() {
        static IS_AWAY: AtomicBool = AtomicBool::new(true);
        let ask: Ask = |path| {
            while path == Path::new("/nfs") && IS_AWAY.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(rustix::fs::statvfs("/")?)
        };
        let threads = Bulkhead::new(2, ANSWER);
        let meter = Meter::by(ask, || mounts(&["/", "/nfs"]), threads);
        let hurried = FileSystems(meter.patient(SILENCE));
        let service = FileSystems(meter);
        for _ in 0..4 {
            let silence = size(&hurried, "/nfs").await.unwrap_err();
            assert_eq!(silence.code(), Code::DeadlineExceeded);
            assert!(silence.message().starts_with("path: /nfs: "), "{silence}");
            size(&service, "/").await.unwrap();
        }
        IS_AWAY.store(false, Ordering::SeqCst);
        size(&service, "/nfs").await.unwrap();
    }

    #[tokio::test]
    async fn hostile_concurrent_requests_for_a_hung_mount_leave_threads_for_others() {
        let ask: Ask = |path| {
            while path.starts_with("/dead") || path.starts_with("/a/../dead") {
                std::thread::park();
            }
            Ok(rustix::fs::statvfs("/")?)
        };
        let threads = Bulkhead::new(3, ANSWER);
        let meter = Meter::by(ask, || mounts(&["/", "/a", "/dead"]), threads);
        let hurried = FileSystems(meter.patient(SILENCE));
        let service = FileSystems(meter);
        let below = (0..32).flat_map(|n| [format!("/dead/{n}"), format!("/a/../dead/{n}")]);
        let itself = std::iter::repeat_n("/dead".to_owned(), 32);
        let paths: Vec<String> = below.chain(itself).collect();
        let all = paths.iter().map(|path| size(&hurried, path));
        for answer in join_all(all).await {
            assert_eq!(answer.unwrap_err().code(), Code::DeadlineExceeded);
        }
        for other in ["/", "/a", "/a/b", "/deadline"] {
            size(&service, other).await.unwrap();
        }
        // The list of mounts has the same limit.
        service.0.mount("/a".into()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn queued_requests_get_a_thread() {
        let ask: Ask = |_| Ok(rustix::fs::statvfs("/")?);
        let threads = Bulkhead::new(1, ANSWER);
        let meter = Meter::by(ask, || mounts(&["/"]), threads);
        let all = (0..1000).map(|_| meter.mount("/".into()));
        for answer in join_all(all).await {
            answer.unwrap().unwrap();
        }
    }

    #[test]
    fn path_is_resolved_to_its_mount() {
        let mounts = mounts(&["/", "/var", "/var/lib/x", "/var/libx"]);
        for (path, mount) in [
            ("/", "/"),
            ("/var", "/var"),
            ("/var/", "/var"),
            ("//var/./lib/x", "/var/lib/x"),
        ] {
            let expected = About::Mount(mount.into());
            assert_eq!(about(Path::new(path), &mounts), expected, "{path}");
        }
        for (path, mount) in [
            ("/variable", "/"),
            ("/var/lib", "/var"),
            ("/var/lib/x/y", "/var/lib/x"),
            ("/var/link/..", "/var"),
            ("/var/../../var/lib/x", "/var/lib/x"),
        ] {
            let expected = About::Below(mount.into());
            assert_eq!(about(Path::new(path), &mounts), expected, "{path}");
        }
        assert_eq!(about(Path::new("/x"), &[]), About::Below("/".into()));
    }
}
