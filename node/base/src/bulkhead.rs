//! Work that may hang for ever on what is not the node's own: a network mount whose server is away, a name that
//! nobody answers for.
//!
//! Nothing ends a thread that waits in the kernel. So such work has threads of its own (a bulkhead, as in a ship), and
//! few: when all of them hang, who comes next is refused at once, and what else the node does goes on.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tonic::Status;

/// Threads for one kind of work.
#[derive(Debug, Clone)]
pub struct Bulkhead {
    free: Arc<Semaphore>,
    threads: usize,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// All threads are at work.
    #[error("{0} like it wait for their answers already; try again when one has come")]
    Full(usize),
    /// It did not come in time. The thread waits on.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The system has none.
    #[error("no thread can be had: {0}; try again")]
    NoThread(io::Error),
    /// The work panicked.
    #[error("a bug, which the log of machined names")]
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
    /// So many threads at once, and so long one waits for an answer.
    #[must_use]
    pub fn new(threads: usize, patience: Duration) -> Bulkhead {
        Bulkhead {
            free: Arc::new(Semaphore::new(threads)),
            threads,
            patience,
        }
    }

    /// The same threads for who has another patience.
    #[must_use]
    pub fn patient(&self, patience: Duration) -> Bulkhead {
        Bulkhead {
            patience,
            ..self.clone()
        }
    }

    /// Does the work in a thread, and waits for its answer.
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

    /// Begins the work in a thread, which is taken until the work is done, whether somebody waits for it or not.
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
            // Who has the answer may ask again.
            drop(taken);
            let _ = tell.send(answer);
        };
        let thread = thread::Builder::new().name("bulkhead".to_owned());
        thread.spawn(work).map_err(Refused::NoThread)?;
        Ok(told)
    }

    /// Waits for the answer to what was begun; one that is late can be waited for again.
    ///
    /// # Errors
    /// [`Refused::Silent`], [`Refused::BrokeOff`].
    pub async fn wait<T>(&self, answer: &mut oneshot::Receiver<T>) -> Result<T, Refused> {
        self.within(answer).await?.map_err(|_| Refused::BrokeOff)
    }

    /// Waits for what leads to an answer as long as for an answer.
    ///
    /// # Errors
    /// [`Refused::Silent`].
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Refused> {
        let ended = timeout(self.patience, work).await;
        ended.map_err(|_| self.silence())
    }

    /// How long one waits for an answer.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// That there is no answer.
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
    async fn what_hangs_is_left_alone_and_when_all_hang_the_next_is_refused() {
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
        assert!(full.message().starts_with("2 like it"), "{full}");
        // An answer that comes after all makes room.
        ends.clear();
        let patient = bulkhead.patient(Duration::from_secs(60));
        let free = patient.free.clone().acquire_many_owned(2).await.unwrap();
        drop(free);
        assert_eq!(patient.run(|| 7).await.unwrap(), 7);
        let broke = patient.run(|| panic!("a bug")).await;
        let broke: Result<(), Refused> = broke;
        assert_eq!(Status::from(broke.unwrap_err()).code(), Code::Internal);
        // A bug costs no thread either.
        for _ in 0..3 {
            assert_eq!(patient.run(|| 8).await.unwrap(), 8);
        }
    }
}
