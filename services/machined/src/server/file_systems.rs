//! machine.StorageService: how full file systems are.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corten_api::machine as api;
use corten_api::machine::storage_service_server::StorageService;
use rustix::fs::StatVfs;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tonic::{Request, Response, Status, async_trait};

use super::files::{absolute, refused};
use crate::bulkhead::{Bulkhead, Refused};

/// For a file system to say how full it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions at once.
const QUESTIONS: usize = 32;

/// Asks file systems how full they are. One that is silent is not asked again before it has answered, so that it
/// holds one thread.
pub(super) struct Meter {
    ask: Ask,
    threads: Bulkhead,
    /// Those that have not answered in time, and their answers if they ever come.
    silent: Mutex<HashMap<PathBuf, oneshot::Receiver<io::Result<StatVfs>>>>,
}

/// What asks the kernel.
type Ask = fn(&Path) -> io::Result<StatVfs>;

/// How full the file system of a path is.
pub(super) fn statvfs(path: &Path) -> io::Result<StatVfs> {
    Ok(rustix::fs::statvfs(path)?)
}

impl Meter {
    pub(super) fn new(ask: Ask, threads: Bulkhead) -> Meter {
        Meter {
            ask,
            threads,
            silent: Mutex::default(),
        }
    }

    /// Asks the file system of a path.
    pub(super) async fn measure(
        self: &Arc<Meter>,
        path: PathBuf,
    ) -> Result<io::Result<StatVfs>, Refused> {
        let meter = self.clone();
        // Who asks may go meanwhile; that it is silent is known all the same.
        let asking = tokio::spawn(async move { meter.patiently(path).await });
        asking.await.unwrap_or(Err(Refused::BrokeOff))
    }

    async fn patiently(&self, path: PathBuf) -> Result<io::Result<StatVfs>, Refused> {
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut silent = silent();
            silent.retain(|_, answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
            if silent.contains_key(&path) {
                return Err(self.threads.silence());
            }
        }
        let (ask, asked) = (self.ask, path.clone());
        let mut answer = self.threads.start(move || ask(&asked))?;
        let answered = self.threads.wait(&mut answer).await;
        if matches!(answered, Err(Refused::Silent(_))) {
            silent().insert(path, answer);
        }
        answered
    }
}

/// The service.
pub(super) struct FileSystems(Arc<Meter>);

impl FileSystems {
    pub(super) fn new() -> FileSystems {
        let threads = Bulkhead::new(QUESTIONS, PATIENCE);
        FileSystems(Arc::new(Meter::new(statvfs, threads)))
    }
}

#[async_trait]
impl StorageService for FileSystems {
    async fn statfs(
        &self,
        request: Request<api::StorageServiceStatfsRequest>,
    ) -> Result<Response<api::StorageServiceStatfsResponse>, Status> {
        let path = absolute(&request.into_inner().path);
        let usage = self.0.measure(path.clone()).await.map_err(|silence| {
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

    use tonic::Code;

    use super::*;

    async fn size(service: &FileSystems, path: &str) -> Result<u64, Status> {
        let path = path.to_owned();
        let request = Request::new(api::StorageServiceStatfsRequest { path });
        let answer = service.statfs(request).await?;
        Ok(answer.into_inner().size)
    }

    #[tokio::test]
    async fn a_file_system_that_is_silent_is_named_and_asked_again_when_it_has_answered() {
        static IS_AWAY: AtomicBool = AtomicBool::new(true);
        let ask = |path: &Path| {
            while path == Path::new("/nfs") && IS_AWAY.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            statvfs(Path::new("/"))
        };
        let threads = Bulkhead::new(2, Duration::from_secs(3));
        let service = FileSystems(Arc::new(Meter::new(ask, threads)));
        for _ in 0..4 {
            let silence = size(&service, "/nfs").await.unwrap_err();
            assert_eq!(silence.code(), Code::DeadlineExceeded);
            assert!(silence.message().starts_with("path: /nfs: "), "{silence}");
            size(&service, "/").await.unwrap();
        }
        IS_AWAY.store(false, Ordering::SeqCst);
        while let Err(silence) = size(&service, "/nfs").await {
            assert_eq!(silence.code(), Code::DeadlineExceeded);
        }
    }
}
