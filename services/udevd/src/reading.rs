//! Reads block devices with a timeout. A broken drive can block a read for minutes or for ever, so spare threads do the
//! reads. After a timeout the caller goes on without the data, and a callback reports when the read has ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Timeout of a read. A drive takes some ten seconds to spin up.
const LIMIT: Duration = Duration::from_secs(20);

/// Limit of devices that block a thread.
const MOST: usize = 16;

/// Stack size of a reader thread in bytes.
const STACK: usize = 128 * 1024;

/// Reads a device; `None` if it is unreadable.
type Read = fn(&Path) -> Option<Vec<u8>>;

/// Reason why a device was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The read blocks a thread. The callback reports when it ends.
    #[error("it does not answer; it is read again once it answers")]
    Late,
    /// Other devices block as many threads as allowed.
    #[error("it is not read, because {MOST} other devices do not answer")]
    TooMany,
    /// The kernel refuses a new thread.
    #[error("it is not read, because no thread can be started")]
    NoThread,
}

/// The reader threads.
#[derive(Debug)]
pub struct Readers {
    read: Read,
    limit: Duration,
    idle: Mutex<Vec<Reader>>,
    held_up: Arc<HeldUp>,
}

/// The devices that block a thread.
#[derive(Debug, Default)]
struct HeldUp(Mutex<BTreeSet<PathBuf>>);

impl HeldUp {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that waits for read requests.
#[derive(Debug)]
struct Reader {
    wanted: Sender<Wanted>,
    answer: Receiver<Option<Vec<u8>>>,
}

struct Wanted {
    path: PathBuf,
    /// Called if the read ends after the timeout.
    late: Box<dyn FnOnce() + Send>,
}

impl Readers {
    /// No thread yet; threads are started on demand.
    pub fn new(read: Read) -> Self {
        Self {
            read,
            limit: LIMIT,
            idle: Mutex::default(),
            held_up: Arc::default(),
        }
    }

    /// Reads a device. `late` is called when a read that timed out has ended, successfully or not.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn read(
        &self,
        path: &Path,
        late: impl FnOnce() + Send + 'static,
    ) -> Result<Option<Vec<u8>>, Unread> {
        let held_up = self.held_up.lock();
        if held_up.contains(path) {
            return Err(Unread::Late);
        }
        if held_up.len() >= MOST {
            return Err(Unread::TooMany);
        }
        drop(held_up);
        let idle = self.idle().pop();
        let reader = idle.map_or_else(|| self.start(), Ok)?;
        let wanted = Wanted {
            path: path.to_owned(),
            late: Box::new(late),
        };
        reader.wanted.send(wanted).map_err(|_| Unread::NoThread)?;
        if let Ok(answer) = reader.answer.recv_timeout(self.limit) {
            self.idle().push(reader);
            return Ok(answer);
        }
        // Recorded before the reader can see that the caller is gone.
        self.held_up.lock().insert(path.to_owned());
        Err(Unread::Late)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Result<Reader, Unread> {
        let (wanted, asked) = channel();
        // Without a buffer a successful send proves that the caller took the answer.
        let (give, answer) = sync_channel(0);
        let (read, held_up) = (self.read, self.held_up.clone());
        thread::Builder::new()
            .name("reader".to_owned())
            .stack_size(STACK)
            .spawn(move || serve(read, &asked, &give, &held_up))
            .map_err(|_| Unread::NoThread)?;
        Ok(Reader { wanted, answer })
    }
}

/// Serves read requests until the pool is gone, or a caller has timed out.
fn serve(
    read: Read,
    asked: &Receiver<Wanted>,
    give: &SyncSender<Option<Vec<u8>>>,
    held_up: &HeldUp,
) {
    while let Ok(Wanted { path, late }) = asked.recv() {
        if give.send(read(&path)).is_err() {
            held_up.lock().remove(&path);
            return late();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Readers, Unread};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn hung_device_read_is_abandoned_and_reported_on_completion() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("good"), "x").unwrap();
        let mut readers = Readers::new(|path: &Path| fs::read(path).ok());
        let never = || panic!("no caller waited for it");
        for _ in 0..2 {
            assert_eq!(readers.read(&path("good"), never), Ok(Some(b"x".to_vec())));
            assert_eq!(readers.read(&path("none"), never), Ok(None));
        }
        assert_eq!(readers.idle().len(), 1, "one thread does for all");

        // Opening a FIFO blocks until a writer opens it.
        readers.limit = Duration::ZERO;
        assert!(readers.held_up.lock().is_empty());
        readers.idle().clear();
        let (told, heard) = channel();
        for number in 0..MOST {
            let held_up = path(&format!("{number}"));
            mknodat(CWD, &held_up, FileType::Fifo, Mode::RWXU, 0).unwrap();
            let told = told.clone();
            let late = move || told.send(number).unwrap();
            assert_eq!(readers.read(&held_up, late), Err(Unread::Late));
            // The second call does not wait for it.
            assert_eq!(readers.read(&held_up, never), Err(Unread::Late));
        }
        let full = readers.read(&path("good"), never);
        assert_eq!(full, Err(Unread::TooMany));
        for number in 0..MOST {
            fs::write(path(&format!("{number}")), "y").unwrap();
            assert_eq!(heard.recv(), Ok(number));
        }
        assert!(readers.held_up.lock().is_empty());
        readers.limit = Duration::MAX;
        assert_eq!(readers.read(&path("good"), never), Ok(Some(b"x".to_vec())));
    }
}
