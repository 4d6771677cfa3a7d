//! Streams produced by a thread that may block, from files or sockets.
//!
//! A queue of a few messages connects the thread with the connection. The thread waits while it is full, and ends when
//! the caller disconnects. So neither a slow caller nor a large answer costs memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corten_base::panics::{caught, caught_here};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Extensions, Status};

use super::access::Caller;
use super::bug;

/// Size of a message in a stream of bytes.
pub(super) const FRAME: usize = 64 * 1024;
/// Messages queued between thread and connection.
const QUEUE: usize = 4;
/// Limit of concurrent streams. Each has its own thread, so that a slow caller blocks no other.
pub(super) const STREAMS: usize = 32;
/// Limit of concurrent streams per certificate, so that a reader leaves room for administrators.
const EACH: usize = 8;

/// Slots for long operations. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Plural noun for what the slots limit.
    what: &'static str,
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By serial number of the certificate.
    each: HashMap<String, usize>,
}

/// A slot, released on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    serial: Option<String>,
}

impl Places {
    /// `most` slots for `what` (a plural noun).
    pub(super) fn new(what: &'static str, most: usize) -> Places {
        Places(Arc::new(Shared {
            what,
            most,
            taken: Mutex::default(),
        }))
    }

    /// Takes a slot for a call with these extensions. Callers without a certificate only share the total limit.
    pub(super) fn enter(&self, extensions: &Extensions) -> Result<Place, Status> {
        let Shared { what, most, .. } = *self.0;
        let serial = Caller::serial(extensions);
        let mut taken = self.taken();
        if taken.all >= most {
            return Err(Status::resource_exhausted(format!(
                "{most} {what} are under way already; try again when one has ended"
            )));
        }
        if let Some(serial) = &serial {
            let own = taken.each.entry(serial.clone()).or_insert(0);
            if *own >= EACH {
                return Err(Status::resource_exhausted(format!(
                    "{EACH} {what} of one certificate are under way already, which is the maximum; try again when one \
                     has ended"
                )));
            }
            *own += 1;
        }
        taken.all += 1;
        drop(taken);
        let places = self.clone();
        Ok(Place { places, serial })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(serial) = &self.serial
            && let Some(own) = taken.each.get_mut(serial)
        {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.each.remove(serial);
            }
        }
    }
}

/// Reason why a stream ends early.
#[derive(Debug)]
pub(super) enum Stop {
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

/// Result of producing a stream.
pub(super) type Flow = Result<(), Stop>;

/// Receiver of the messages.
#[derive(Debug)]
pub(super) struct Sink<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Sink<T> {
    /// Sends a message; waits for room.
    pub(super) fn send(&self, message: T) -> Flow {
        self.0.blocking_send(Ok(message)).map_err(|_| Stop::Gone)
    }

    /// Whether the caller disconnected.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Fails if the caller disconnected, for work that runs long before its first message.
    pub(super) fn check(&self) -> Flow {
        if self.is_gone() {
            return Err(Stop::Gone);
        }
        Ok(())
    }
}

/// Runs `make` on its own thread, which holds `place` until it ends.
pub(super) fn stream<T, F>(place: Place, make: F) -> Result<BoxStream<T>, Status>
where
    T: Send + 'static,
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

/// Starts a task that sends a stream's messages. If it panics, the caller gets an error: an early end would look like a
/// complete answer.
pub(super) fn task<T: Send + 'static>(
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
    use tokio_stream::StreamExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn panicking_stream_ends_with_an_error_and_frees_its_slot() {
        let places = Places::new("streams", 1);
        let nobody = Extensions::new();
        for _ in 0..2 {
            let mut broken = stream(places.enter(&nobody).unwrap(), |sink: &Sink<u32>| {
                sink.send(1)?;
                panic!("a bug")
            })
            .unwrap();
            assert_eq!(broken.next().await.unwrap().unwrap(), 1);
            let told = broken.next().await.unwrap().unwrap_err();
            assert_eq!(told.code(), Code::Internal);
            assert!(told.message().contains("a bug of machined"), "{told}");
            assert!(broken.next().await.is_none());
            while places.enter(&nobody).is_err() {
                tokio::task::yield_now().await;
            }
        }
        let (sender, mut receiver) = mpsc::channel::<Result<u32, Status>>(1);
        task(sender, async { panic!("a bug") });
        let told = receiver.recv().await.unwrap().unwrap_err();
        assert_eq!(told.code(), Code::Internal);
        assert!(receiver.recv().await.is_none());
    }

    #[test]
    fn streams_of_one_certificate_leave_room_for_others() {
        let places = Places::new("streams", 2 * EACH);
        let of = |serial: &str| {
            let mut extensions = Extensions::new();
            extensions.insert(Caller {
                roles: Vec::new(),
                serial: Some(serial.to_owned()),
            });
            extensions
        };
        let enter = |serial: &str| places.enter(&of(serial));
        let reader: Vec<_> = (0..EACH).map(|_| enter("a").unwrap()).collect();
        let refused = enter("a").unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("one certificate"), "{refused}");
        let admin: Vec<_> = (0..EACH).map(|_| enter("b").unwrap()).collect();
        let all = enter("c").unwrap_err();
        assert!(all.message().starts_with("16 streams"), "{all}");
        drop((reader, admin));
        assert!(places.taken().each.is_empty());
        enter("a").unwrap();
    }
}
