//! The answer of a call, on its way to the caller: a task per answer joins the bytes of frames as they arrive.
//!
//! HTTP/2's window counts bytes, but the library keeps a few hundred bytes per unread frame: 64 KiB that arrive byte by
//! byte take 16 MiB. The answerer may send more only when the caller reads, so the buffer never exceeds the window.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::{FlowControl, Reason, RecvStream};
use http::HeaderMap;
use http_body::Frame;
use tokio::task::JoinHandle;

use crate::connection::Slot;

/// Size of a piece in bytes: a frame of HTTP/2 (RFC 9113, section 4.2).
pub(crate) const PIECE: usize = 16 * 1024;

/// A task that is aborted when this value is dropped.
#[derive(Debug)]
pub(crate) struct Task<T = ()>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Task<T> {
        Task(tokio::spawn(work))
    }

    /// The task's result; `None` if it panicked.
    pub(crate) async fn done(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Received bytes. All pieces but the last are full, so that their memory does not exceed the window.
#[derive(Debug, Default)]
struct Pieces {
    full: VecDeque<Vec<u8>>,
    last: Vec<u8>,
}

impl Pieces {
    fn push(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = PIECE - self.last.len();
            let (now, rest) = data.split_at(data.len().min(room));
            let length = self.last.len() + now.len();
            if length > self.last.capacity() {
                let capacity = length.max(2 * self.last.capacity()).min(PIECE);
                self.last.reserve_exact(capacity - self.last.len());
            }
            self.last.extend_from_slice(now);
            if self.last.len() == PIECE {
                self.full.push_back(mem::take(&mut self.last));
            }
            data = rest;
        }
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let full = self.full.pop_front();
        full.or_else(|| (!self.last.is_empty()).then(|| mem::take(&mut self.last)))
    }

    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_empty()
    }
}

/// End of an answer: trailers, an error, or neither.
type End = Option<Result<HeaderMap, h2::Error>>;

/// The part of an answer not yet passed on.
#[derive(Debug, Default)]
struct Received {
    pieces: Pieces,
    /// Taken once; afterwards the answer has ended without trailers.
    end: Option<End>,
    reader: Option<Waker>,
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the state and wakes the reader.
fn tell(received: &Mutex<Received>, change: impl FnOnce(&mut Received)) {
    let reader = {
        let mut received = lock(received);
        change(&mut received);
        received.reader.take()
    };
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Receives an answer to its end.
async fn receive(mut stream: RecvStream, received: Arc<Mutex<Received>>) {
    let end = loop {
        match stream.data().await {
            Some(Ok(data)) => tell(&received, |received| received.pieces.push(&data)),
            Some(Err(error)) => break Err(error),
            None => break stream.trailers().await,
        }
    };
    let end = match end {
        Ok(trailers) => trailers.map(Ok),
        // NO_ERROR: the answerer sent its complete answer (RFC 9113, section 8.1).
        Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
        Err(error) => Some(Err(error)),
    };
    tell(&received, |received| received.end = Some(end));
}

/// An answer's body. Its connection counts as used while it exists.
#[derive(Debug)]
pub(crate) struct Answer {
    received: Arc<Mutex<Received>>,
    window: FlowControl,
    _receiving: Option<Task>,
    /// The upload of the request, which may still be running.
    _sending: Option<Task>,
    _slot: Slot,
}

impl Answer {
    pub(crate) fn new(mut stream: RecvStream, sending: Option<Task>, slot: Slot) -> Answer {
        let window = stream.flow_control().clone();
        let received = Arc::<Mutex<Received>>::default();
        let receiving = if stream.is_end_stream() {
            lock(&received).end = Some(None);
            None
        } else {
            Some(Task::spawn(receive(stream, received.clone())))
        };
        Answer {
            received,
            window,
            _receiving: receiving,
            _sending: sending,
            _slot: slot,
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    /// Joins small pieces, because each costs as much memory as a large one, here and on the way to the caller.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let piece = {
            let mut received = lock(&self.received);
            let received = &mut *received;
            match (received.pieces.pop(), &mut received.end) {
                (Some(piece), _) => piece,
                (None, Some(end)) => {
                    return Poll::Ready(end.take().map(|end| end.map(Frame::trailers)));
                }
                (None, None) => {
                    received.reader = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        };
        // An error means that the stream has ended meanwhile.
        let _ended = self.window.release_capacity(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        let received = lock(&self.received);
        received.pieces.is_empty() && matches!(received.end, Some(None))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::test_runner::TestRunner;
    use tokio::io::duplex;

    use super::*;
    use crate::connection::Connection;

    const WINDOW: u32 = 64 * 1024;
    const WINDOW_BYTES: usize = 64 * 1024;

    #[test]
    fn hostile_pieces_allocate_their_size_and_keep_their_order() {
        let run = |(lengths, reads): (Vec<usize>, Vec<bool>)| {
            let (mut pieces, mut found, mut expected) = (Pieces::default(), Vec::new(), Vec::new());
            let mut take = |pieces: &mut Pieces| {
                let piece = pieces.pop();
                let is_one = piece.is_some();
                found.extend(piece.unwrap_or_default());
                is_one
            };
            for (number, (length, read)) in lengths.into_iter().zip(reads).enumerate() {
                let data = vec![u8::try_from(number).unwrap(); length];
                pieces.push(&data);
                expected.extend(data);
                let kept = pieces.full.iter().map(Vec::capacity);
                let kept = kept.sum::<usize>() + pieces.last.capacity();
                let bytes = pieces.full.len() * PIECE + pieces.last.len();
                assert!(kept <= bytes.next_multiple_of(PIECE), "{kept} of {bytes}");
                assert!(pieces.full.iter().all(|piece| piece.len() == PIECE));
                if read {
                    take(&mut pieces);
                }
            }
            while take(&mut pieces) {}
            assert!(pieces.is_empty());
            assert_eq!(found, expected);
            Ok(())
        };
        let lengths = vec(0..40_000usize, 0..20);
        let reads = vec(any::<bool>(), 20);
        let mut runner = TestRunner::default();
        runner.run(&(lengths, reads), run).unwrap();
    }

    /// An answer, and its sending stream.
    async fn answer() -> (Answer, h2::SendStream<Bytes>) {
        let (near, far) = duplex(1 << 16);
        let server = tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let stream = respond.send_response(Response::new(()), false).unwrap();
            tokio::spawn(async move { poll_fn(|context| server.poll_closed(context)).await });
            stream
        });
        let connection = Connection::begin(near, WINDOW).await.unwrap();
        let (sender, slot) = connection.slot().unwrap();
        let mut sender = sender.ready().await.unwrap();
        let request = Request::get("http://node/").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let body = response.await.unwrap().into_body();
        (Answer::new(body, None, slot), server.await.unwrap())
    }

    /// Sends `bytes` bytes one by one; false if the window is full.
    async fn send(stream: &mut h2::SendStream<Bytes>, bytes: usize) -> bool {
        for _ in 0..bytes {
            stream.reserve_capacity(1);
            // Waits until the bytes arrive; the window reopens when the caller reads.
            for _ in 0..1000 {
                if stream.capacity() > 0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if stream.capacity() == 0 {
                return false;
            }
            stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        }
        true
    }

    #[tokio::test]
    async fn single_byte_frames_fill_the_window_and_are_joined_into_pieces() {
        let (mut answer, mut stream) = answer().await;
        assert!(send(&mut stream, WINDOW_BYTES).await);
        assert!(!send(&mut stream, 1).await);
        let all = || lock(&answer.received).pieces.full.len() * PIECE;
        while all() < WINDOW_BYTES {
            tokio::task::yield_now().await;
        }
        // The answerer may send more only after the caller reads.
        for _ in 0..WINDOW_BYTES / PIECE {
            let frame = answer.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), vec![b'x'; PIECE]);
        }
        assert!(send(&mut stream, 10).await);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        stream.send_trailers(trailers.clone()).unwrap();
        let rest = answer.collect().await.unwrap();
        assert_eq!(rest.trailers(), Some(&trailers));
        assert_eq!(rest.to_bytes(), vec![b'x'; 10]);
    }

    #[tokio::test]
    async fn data_before_a_stream_error_is_forwarded_before_the_error() {
        let (mut answer, mut stream) = answer().await;
        assert!(send(&mut stream, 3).await);
        while lock(&answer.received).pieces.last.len() < 3 {
            tokio::task::yield_now().await;
        }
        stream.send_reset(Reason::ENHANCE_YOUR_CALM);
        while lock(&answer.received).end.is_none() {
            tokio::task::yield_now().await;
        }
        let frame = answer.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "xxx");
        let error = answer.frame().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        assert!(answer.frame().await.is_none());
    }
}
