//! A call's answer: counts against the quota until it is sent, and completes the audit line at its end.

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

/// Limit of frames waiting to be sent. HTTP/2 keeps a few hundred bytes per frame, however small. Data that arrives
/// meanwhile is joined.
const UNSENT: usize = 16;

/// An answer being sent.
pub(crate) struct Call {
    body: Body,
    line: Option<Line>,
    place: Arc<Place>,
}

/// The call's quota, held until its whole answer is sent.
struct Place {
    /// Its share of all calls, and its caller's count of calls.
    _held: (Option<Taken>, Arc<()>),
    unsent: AtomicUsize,
    /// The task that waits for a frame to be sent.
    waiting: AtomicWaker,
}

/// A frame waiting to be sent.
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
    /// `line` is written at the end of the body; `held` is released when the whole body is sent.
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
            // A frame may have been sent just before the registration.
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
        // The call continues when a frame was sent.
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
