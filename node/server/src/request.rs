//! Limits the length of requests by method ([`corten_api::requests`]).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corten_api::requests::{HEAD, Request};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// A request body that fails beyond its limit and drops the received data.
struct Bounded {
    body: Body,
    /// Limit in bytes.
    most: usize,
    left: usize,
}

/// The body of a call to `path` with that method's limit.
pub(super) fn bounded(body: Body, path: &str) -> Body {
    match Request::of(path).most() {
        Some(most) => Body::new(Bounded {
            body,
            most,
            left: most,
        }),
        // Each message has the service's own limit.
        None => body,
    }
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = self.left.checked_sub(length) else {
                self.body = Body::empty();
                return Poll::Ready(Some(Err(too_long(self.most))));
            };
            self.left = left;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_long(most: usize) -> Status {
    let kib = (most - HEAD) / 1024;
    Status::resource_exhausted(format!(
        "the request has more than {kib} KiB, the most that this method takes"
    ))
}
