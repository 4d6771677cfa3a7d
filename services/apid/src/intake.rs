//! Limits a request: its length by the method's limit ([`corten_api::requests`]), long requests by a quota, and its
//! duration. The answerer of a call holds the request in memory until the last byte arrives.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use corten_api::requests::{HEAD, PART, Request, SMALL};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::quota::Taken;
use crate::reply::{Body, BoxError};

/// Timeout of a message, and of the next piece of a streamed request.
const PATIENCE: Duration = Duration::from_secs(60);

/// A call's share of the quota for long requests.
type Share = Arc<Mutex<Taken>>;

/// A request being received.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) body: Body,
    pub(crate) failure: Failure,
}

/// Receives the reason why a request was aborted.
#[derive(Debug)]
pub(crate) struct Failure {
    why: oneshot::Receiver<Status>,
    /// Released when the answer begins, because until then the answerer holds the request.
    _share: Share,
}

impl Intake {
    /// The request `body` of a call to `path`. Its quota `share` grows with its length.
    pub(crate) fn new<B>(body: B, path: &str, share: Taken) -> Result<Intake, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let share = Arc::new(Mutex::new(share));
        let request = Request::of(path);
        if request == Request::Parts && !grow(&share, PART) {
            return Err(too_many());
        }
        let (failed, why) = oneshot::channel();
        let counted = Counted {
            body: body.map_err(Into::into).boxed_unsync(),
            request,
            length: 0,
            waiting: None,
            share: share.clone(),
            failed: Some(failed),
        };
        Ok(Intake {
            body: counted.boxed_unsync(),
            failure: Failure { why, _share: share },
        })
    }
}

impl Failure {
    /// The result of `work`, which sends the request. If the request is aborted, its reason.
    pub(crate) async fn or<T>(
        mut self,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let done = tokio::select! {
            biased;
            Ok(status) = &mut self.why => return Err(status),
            done = work => done,
        };
        // `work` reads the request and may fail before the reason arrives here.
        done.map_err(|status| self.why.try_recv().unwrap_or(status))
    }
}

struct Counted {
    body: Body,
    request: Request,
    /// Number of bytes received.
    length: usize,
    /// Timeout, set while no data arrives. A streamed request restarts it with each part.
    waiting: Option<Pin<Box<Sleep>>>,
    share: Share,
    failed: Option<oneshot::Sender<Status>>,
}

impl Counted {
    fn count(&mut self, more: usize) -> Result<(), Status> {
        self.length = self.length.saturating_add(more);
        let Some(most) = self.request.most() else {
            self.waiting = None;
            return Ok(());
        };
        if self.length > most {
            return Err(Status::resource_exhausted(format!(
                "the request has more than {} KiB, the most that this method takes",
                (most - HEAD) / 1024
            )));
        }
        if self.length > SMALL + HEAD && !grow(&self.share, self.length) {
            return Err(too_many());
        }
        Ok(())
    }

    fn fail(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(failed) = self.failed.take() {
            let _ = failed.send(status.clone());
        }
        Poll::Ready(Some(Err(status.into())))
    }
}

fn grow(share: &Share, amount: usize) -> bool {
    let mut share = share.lock().unwrap_or_else(PoisonError::into_inner);
    share.grow(amount)
}

fn too_many() -> Status {
    Status::resource_exhausted("too many long requests at once: try again later")
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                match self.count(length) {
                    Ok(()) => Poll::Ready(Some(Ok(frame))),
                    Err(status) => self.fail(status),
                }
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => {
                let waiting = self
                    .waiting
                    .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
                ready!(waiting.as_mut().poll(context));
                self.fail(Status::deadline_exceeded(format!(
                    "the request was not complete within {} s",
                    PATIENCE.as_secs()
                )))
            }
        }
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
    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    use tokio::time::Instant;
    use tonic::Code;

    use super::*;
    use crate::quota::{Quota, holder};

    const MEMORY: &str = "/machine.MachineService/Memory";
    const APPLY: &str = "/machine.MachineService/ApplyConfiguration";
    const IMPORT: &str = "/machine.ImageService/Import";

    /// Pieces of these lengths, one per `pause`, then silence.
    fn pieces(lengths: &[usize], pause: Duration) -> Body {
        let pieces: Vec<Bytes> = lengths
            .iter()
            .map(|length| vec![0; *length].into())
            .collect();
        let pieces = stream::iter(pieces).then(move |piece| async move {
            sleep(pause).await;
            Ok::<_, BoxError>(Frame::data(piece))
        });
        Body::new(StreamBody::new(pieces.chain(stream::pending())))
    }

    /// Receives the request like an answerer; returns the number of bytes and the final status.
    async fn sent(body: Body, path: &str, quota: &Quota) -> (usize, Status) {
        let share = quota.begin(&holder("10.0.0.1"));
        let Intake { mut body, failure } = match Intake::new(body, path, share) {
            Ok(intake) => intake,
            Err(status) => return (0, status),
        };
        let mut came = 0;
        let work = async {
            while let Some(Ok(frame)) = body.frame().await {
                came += frame.data_ref().map_or(0, Bytes::len);
            }
            Err::<(), _>(Status::unavailable("the stream ended early"))
        };
        let status = failure.or(work).await.unwrap_err();
        (came, status)
    }

    #[tokio::test(start_paused = true)]
    async fn request_has_a_deadline_and_each_streamed_part_its_own() {
        let quota = Quota::new(1 << 30, 1 << 30, 0);
        let second = Duration::from_secs(1);
        let begun = Instant::now();
        for path in [MEMORY, APPLY] {
            let begun = Instant::now();
            let (came, status) = sent(pieces(&[1; 100], second), path, &quota).await;
            assert_eq!(status.code(), Code::DeadlineExceeded, "{path}: {status}");
            assert!(came < 100 && begun.elapsed() < 2 * PATIENCE, "{path}");
        }
        let (came, status) = sent(pieces(&[1; 100], second), IMPORT, &quota).await;
        assert_eq!((came, status.code()), (100, Code::DeadlineExceeded));
        assert!(begun.elapsed() >= PATIENCE + 100 * second);
        assert_eq!(quota.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn hostile_lengths_are_bounded_by_the_method_and_the_quota() {
        let quota = Quota::new(3 * PART, 2 * PART, 0);
        let at_once = Duration::ZERO;
        let whole = [&[SMALL / 4; 4][..], &[HEAD]].concat();
        let (came, status) = sent(pieces(&whole, at_once), MEMORY, &quota).await;
        assert_eq!(
            (came, status.code()),
            (SMALL + HEAD, Code::DeadlineExceeded)
        );
        let longer = [&whole[..], &[1]].concat();
        let (_, status) = sent(pieces(&longer, at_once), MEMORY, &quota).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("64 KiB"), "{status}");
        // A short request takes nothing of the quota; a long one takes its length.
        let all = quota.take(&holder("10.0.0.1"), 2 * PART);
        let (came, _) = sent(pieces(&whole, at_once), APPLY, &quota).await;
        assert_eq!(came, SMALL + HEAD);
        let (_, status) = sent(pieces(&longer, at_once), APPLY, &quota).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        let (_, status) = sent(pieces(&[1], at_once), IMPORT, &quota).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        drop(all);
        // A streamed request counts as one part, whatever its length.
        let (came, status) = sent(pieces(&[PART; 9], at_once), IMPORT, &quota).await;
        assert_eq!((came, status.code()), (9 * PART, Code::DeadlineExceeded));
        assert_eq!(quota.in_use(), 0);
    }
}
