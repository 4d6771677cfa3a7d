//! An answer as its caller gets it: counted until the last of it is sent, and told in the audit log at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use tonic::{Code, Status};

use crate::audit::Line;
use crate::quota::Taken;
use crate::reply::{Body, BoxError, counted};

/// Frames of an answer that wait to be sent, at most: HTTP/2 keeps a few hundred bytes of each, however small. What
/// comes meanwhile is put together.
const UNSENT: usize = 16;

/// An answer on its way.
pub(crate) struct Call {
    body: Body,
    line: Option<Line>,
    place: Arc<Place>,
}

/// The call counts as long as some of its answer has still to be sent.
struct Place {
    /// Its share of all calls, and its caller's count of them.
    _held: (Option<Taken>, Arc<()>),
    unsent: AtomicUsize,
    /// Who waits for one of them to be sent.
    waiting: AtomicWaker,
}

/// A frame that waits to be sent.
struct Unsent(Arc<Place>);

impl Unsent {
    fn new(place: &Arc<Place>) -> Unsent {
        place.unsent.fetch_add(1, Ordering::SeqCst);
        Unsent(place.clone())
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.unsent.fetch_sub(1, Ordering::SeqCst);
        self.0.waiting.wake();
    }
}

impl Call {
    /// `line` is written when the body is at its end, and `held` let go when all of it is sent.
    pub(crate) fn new(body: Body, line: Option<Line>, held: (Option<Taken>, Arc<()>)) -> Call {
        Call {
            body,
            line,
            place: Arc::new(Place {
                _held: held,
                unsent: AtomicUsize::new(0),
                waiting: AtomicWaker::new(),
            }),
        }
    }

    fn has_many_unsent(&self) -> bool {
        self.place.unsent.load(Ordering::SeqCst) >= UNSENT
    }
}

impl http_body::Body for Call {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.has_many_unsent() {
            self.place.waiting.register(context.waker());
            // One may have been sent just before.
            if self.has_many_unsent() {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let place = &self.place;
        let held = |data| counted(data, Unsent::new(place));
        let polled = polled.map_ok(|frame| frame.map_data(held));
        if let Some(line) = &mut self.line {
            match &polled {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                        line.ended(&status);
                    }
                }
                Poll::Ready(Some(Err(_))) => line.ended(&Status::new(Code::Unavailable, "")),
                _ => {}
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test]
    async fn number_of_unsent_small_frames_is_bounded() {
        let frames = (0..2 * UNSENT).map(|_| Frame::data(Bytes::from_static(b"x")));
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
        let body = body.map_err(BoxError::from).boxed_unsync();
        let counted = Arc::new(());
        let mut call = Call::new(body, None, (None, counted.clone()));
        let mut unsent = Vec::new();
        while unsent.len() < UNSENT {
            unsent.push(call.frame().await.unwrap().unwrap());
        }
        assert!(call.frame().now_or_never().is_none());
        // It goes on when one has been sent, and hears of it.
        let next = tokio::spawn(async move { (call.frame().await.unwrap().unwrap(), call) });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        unsent.pop();
        let (frame, call) = next.await.unwrap();
        drop((call, frame));
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(unsent);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
