//! Streams produced by a thread that may block, from files or sockets.
//!
//! A queue of a few messages connects the thread with the connection. The thread waits while it is full, and ends when
//! the caller disconnects. So neither a slow caller nor a large answer costs memory.

use corten_base::panics::{caught, caught_here};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

/// Size in bytes of a message in a stream of bytes.
pub const FRAME: usize = 64 * 1024;
/// Messages queued between thread and connection.
const QUEUE: usize = 4;

/// Reason why a stream ends early.
#[derive(Debug)]
pub enum Stop {
    /// The caller disconnected.
    Gone,
    /// The error for the caller.
    Failed(Box<Status>),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Failed(Box::new(status))
    }
}

/// Result of producing a stream. The caller gets the error of [`Stop::Failed`] after the messages.
pub type Flow = Result<(), Stop>;

/// Receiver of the messages; its thread may block.
#[derive(Debug)]
pub struct Sink<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Sink<T> {
    /// Sends a message; waits for room.
    ///
    /// # Errors
    /// [`Stop::Gone`].
    pub fn send(&self, message: T) -> Flow {
        self.0.blocking_send(Ok(message)).map_err(|_| Stop::Gone)
    }

    /// Whether the caller disconnected.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Fails if the caller disconnected, for work that runs long before its first message.
    ///
    /// # Errors
    /// [`Stop::Gone`].
    pub fn check(&self) -> Flow {
        if self.is_gone() {
            return Err(Stop::Gone);
        }
        Ok(())
    }
}

/// Runs `make` on its own thread, which holds `place` until it ends: the owner of the places bounds the threads. A panic
/// ends the stream with [`bug`].
///
/// # Errors
/// RESOURCE_EXHAUSTED if the system cannot create a thread.
pub fn stream<T, P, F>(place: P, make: F) -> Result<BoxStream<T>, Status>
where
    T: Send + 'static,
    P: Send + 'static,
    F: FnOnce(&Sink<T>) -> Flow + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    let work = move || {
        let sink = Sink(sender);
        let status = match caught_here(|| make(&sink)) {
            Ok(Ok(()) | Err(Stop::Gone)) => None,
            Ok(Err(Stop::Failed(status))) => Some(*status),
            Err(_) => Some(bug()),
        };
        if let Some(status) = status {
            let _ = sink.0.blocking_send(Err(status));
        }
        drop(place);
    };
    // Not one of the runtime's few blocking threads: those are for short work.
    std::thread::Builder::new()
        .name("stream".to_owned())
        .spawn(work)
        .map_err(|error| {
            Status::resource_exhausted(format!("cannot start a thread ({error}); try again"))
        })?;
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Error of a call whose handler panicked. The place of the panic is only in the log.
#[must_use]
pub fn bug() -> Status {
    ended_by_bug("this call")
}

/// The status of work that panicked.
#[must_use]
pub fn ended_by_bug(what: &str) -> Status {
    Status::internal(format!(
        "a bug of machined ended {what}; `cortenctl logs machined` shows it"
    ))
}

/// Starts a task that sends a stream's messages. If it panics, the caller gets an error: an early end would look like a
/// complete answer.
pub fn task<T: Send + 'static>(
    sender: mpsc::Sender<Result<T, Status>>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    tokio::spawn(async move {
        if caught(work).await.is_err() {
            // The caller may have disconnected.
            let _ = sender.send(Err(bug())).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_stream::StreamExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn panicking_stream_ends_with_an_error_and_frees_its_slot() {
        let place = Arc::new(());
        for _ in 0..2 {
            let mut broken = stream(place.clone(), |sink: &Sink<u32>| {
                sink.send(1)?;
                panic!("a bug")
            })
            .unwrap();
            assert_eq!(broken.next().await.unwrap().unwrap(), 1);
            let told = broken.next().await.unwrap().unwrap_err();
            assert_eq!(told.code(), Code::Internal);
            assert!(told.message().contains("a bug of machined"), "{told}");
            assert!(broken.next().await.is_none());
            while Arc::strong_count(&place) > 1 {
                tokio::task::yield_now().await;
            }
        }
        let (sender, mut receiver) = mpsc::channel::<Result<u32, Status>>(1);
        task(sender, async { panic!("a bug") });
        let told = receiver.recv().await.unwrap().unwrap_err();
        assert_eq!(told.code(), Code::Internal);
        assert!(receiver.recv().await.is_none());
    }
}
