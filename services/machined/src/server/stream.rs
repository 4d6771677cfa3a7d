//! Streams made by a thread that may block: files, sockets.
//!
//! A queue of a few messages is between the thread and the connection. When it is full, the thread waits;
//! when the caller is gone, the thread ends. So neither a slow caller nor a large answer costs memory.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::bug;
use crate::panics::{caught, caught_here};

/// Bytes in a message of a stream of bytes.
pub(super) const FRAME: usize = 64 * 1024;
/// Messages between the thread and the connection.
const QUEUE: usize = 4;
/// Streams at a time. Each has a thread, so that one whose caller is slow keeps nobody else from anything.
pub(super) const STREAMS: usize = 32;

/// Why a stream ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody listens any more.
    Gone,
    /// The caller is told this.
    Failed(Box<Status>),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Failed(Box::new(status))
    }
}

/// How making a stream goes on.
pub(super) type Flow = Result<(), Stop>;

/// Where the messages go.
#[derive(Debug)]
pub(super) struct Sink<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Sink<T> {
    /// Sends one, and waits for room.
    pub(super) fn send(&self, message: T) -> Flow {
        self.0.blocking_send(Ok(message)).map_err(|_| Stop::Gone)
    }

    /// Whether nobody listens any more.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Ends what works long before it has something to send.
    pub(super) fn check(&self) -> Flow {
        if self.is_gone() {
            return Err(Stop::Gone);
        }
        Ok(())
    }
}

/// Starts `make` on a thread of its own, as long as one of the `permits` is free.
pub(super) fn stream<T, F>(permits: &Arc<Semaphore>, make: F) -> Result<BoxStream<T>, Status>
where
    T: Send + 'static,
    F: FnOnce(&Sink<T>) -> Flow + Send + 'static,
{
    let permit = permits.clone().try_acquire_owned().map_err(|_| {
        Status::resource_exhausted(format!(
            "{STREAMS} streams are being read already; try again when one has ended"
        ))
    })?;
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
        drop(permit);
    };
    // Not one of the runtime's few threads for files: they are for what ends soon.
    std::thread::Builder::new()
        .name("stream".to_owned())
        .spawn(work)
        .map_err(|error| {
            Status::resource_exhausted(format!("no thread can be had ({error}); try again"))
        })?;
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Starts a task that sends a stream's messages. When it breaks off, the caller is told: an early end would look like
/// the whole answer.
pub(super) fn task<T: Send + 'static>(
    sender: mpsc::Sender<Result<T, Status>>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    tokio::spawn(async move {
        if caught(work).await.is_err() {
            // The caller may be gone.
            let _ = sender.send(Err(bug())).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_stream_that_breaks_off_says_so_and_frees_its_place() {
        let places = Arc::new(Semaphore::new(1));
        for _ in 0..2 {
            let mut broken = stream(&places, |sink: &Sink<u32>| {
                sink.send(1)?;
                panic!("a bug")
            })
            .unwrap();
            assert_eq!(broken.next().await.unwrap().unwrap(), 1);
            let told = broken.next().await.unwrap().unwrap_err();
            assert_eq!(told.code(), Code::Internal);
            assert!(told.message().contains("a bug of machined"), "{told}");
            assert!(broken.next().await.is_none());
            drop(places.acquire().await.unwrap());
        }
        let (sender, mut receiver) = mpsc::channel::<Result<u32, Status>>(1);
        task(sender, async { panic!("a bug") });
        let told = receiver.recv().await.unwrap().unwrap_err();
        assert_eq!(told.code(), Code::Internal);
        assert!(receiver.recv().await.is_none());
    }
}
