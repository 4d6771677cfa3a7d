//! Isolates work that may hang for ever on external resources, such as the mount of a dead server.
//!
//! Owns a small pool of threads for each kind of such work, because a thread that the kernel blocks cannot be ended.
//! When all its threads hang, it refuses new work at once. Never delays the rest of the node.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tonic::Status;

/// A bounded pool of threads for one kind of work.
#[derive(Debug, Clone)]
pub struct Bulkhead {
    free: Arc<Semaphore>,
    threads: usize,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// All threads are busy.
    #[error("{0} calls like it are already waiting for an answer; try again later")]
    Full(usize),
    /// The timeout has passed; the thread stays blocked.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The system cannot create a thread.
    #[error("no thread can be created: {0}; try again")]
    NoThread(io::Error),
    /// The work panicked.
    #[error("machined has a bug; its log has the panic message")]
    BrokeOff,
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let text = refused.to_string();
        match refused {
            Refused::Full(_) | Refused::NoThread(_) => Status::resource_exhausted(text),
            Refused::Silent(_) => Status::deadline_exceeded(text),
            Refused::BrokeOff => Status::internal(text),
        }
    }
}

impl Bulkhead {
    /// A pool of at most `threads` threads; `patience` is the timeout of an answer.
    #[must_use]
    pub fn new(threads: usize, patience: Duration) -> Bulkhead {
        Bulkhead {
            free: Arc::new(Semaphore::new(threads)),
            threads,
            patience,
        }
    }

    /// The same pool with another timeout.
    #[must_use]
    pub fn patient(&self, patience: Duration) -> Bulkhead {
        Bulkhead {
            patience,
            ..self.clone()
        }
    }

    /// Runs the work on a thread and waits for its answer.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let mut answer = self.start(work)?;
        self.wait(&mut answer).await
    }

    /// Starts the work on a thread. The thread stays occupied until the work is done, even if the caller stops waiting.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Refused> {
        let taken = self.free.clone().try_acquire_owned();
        let taken = taken.map_err(|_| Refused::Full(self.threads))?;
        let (tell, told) = oneshot::channel();
        let work = move || {
            let answer = work();
            // Free the thread first: a caller with an answer may start more work.
            drop(taken);
            let _ = tell.send(answer);
        };
        let thread = thread::Builder::new().name("bulkhead".to_owned());
        thread.spawn(work).map_err(Refused::NoThread)?;
        Ok(told)
    }

    /// Waits for the answer of started work. After a timeout the caller may wait again.
    ///
    /// # Errors
    /// [`Refused::Silent`], [`Refused::BrokeOff`].
    pub async fn wait<T>(&self, answer: &mut oneshot::Receiver<T>) -> Result<T, Refused> {
        self.within(answer).await?.map_err(|_| Refused::BrokeOff)
    }

    /// Applies the timeout of an answer to a step on the way to it.
    ///
    /// # Errors
    /// [`Refused::Silent`].
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Refused> {
        let ended = timeout(self.patience, work).await;
        ended.map_err(|_| self.silence())
    }

    /// The timeout of an answer.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The error of a timeout.
    #[must_use]
    pub fn silence(&self) -> Refused {
        Refused::Silent(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn hung_calls_time_out_and_a_full_bulkhead_refuses_the_next_call() {
        let bulkhead = Bulkhead::new(2, Duration::from_millis(1));
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (end, hangs) = mpsc::channel::<()>();
            let silent = bulkhead.run(move || hangs.recv()).await.unwrap_err();
            assert_eq!(Status::from(silent).code(), Code::DeadlineExceeded);
            ends.push(end);
        }
        let full = Status::from(bulkhead.run(|| ()).await.unwrap_err());
        assert_eq!(full.code(), Code::ResourceExhausted);
        assert!(full.message().starts_with("2 calls like it"), "{full}");
        // A late answer frees its thread.
        ends.clear();
        let patient = bulkhead.patient(Duration::from_secs(60));
        let free = patient.free.clone().acquire_many_owned(2).await.unwrap();
        drop(free);
        assert_eq!(patient.run(|| 7).await.unwrap(), 7);
        let broke = patient.run(|| panic!("a bug")).await;
        let broke: Result<(), Refused> = broke;
        assert_eq!(Status::from(broke.unwrap_err()).code(), Code::Internal);
        // A panic frees its thread as well.
        for _ in 0..3 {
            assert_eq!(patient.run(|| 8).await.unwrap(), 8);
        }
    }
}
