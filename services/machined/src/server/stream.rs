//! Streams made by a thread that may block: files, sockets.
//!
//! A queue of a few messages is between the thread and the connection. When it is full, the thread waits;
//! when the caller is gone, the thread ends. So neither a slow caller nor a large answer costs memory.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

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
        if let Err(Stop::Failed(status)) = make(&sink) {
            let _ = sink.0.blocking_send(Err(*status));
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
