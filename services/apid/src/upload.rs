//! Sends a caller's request to its answerer.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::reply::Body;

/// Sends a body until it ends or the answerer stops reading.
pub(crate) async fn upload(mut body: Body, mut stream: SendStream<Bytes>) {
    loop {
        let frame = tokio::select! {
            biased;
            _ = poll_fn(|context| stream.poll_reset(context)) => return,
            frame = body.frame() => frame,
        };
        // Errors are dropped here: the reader of the answer sees them.
        let sent = match frame {
            None => stream.send_data(Bytes::new(), true).map(|()| true),
            Some(Err(_)) => {
                stream.send_reset(Reason::CANCEL);
                return;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let is_last = body.is_end_stream();
                    if !data.is_empty() && !has_room(&mut stream).await {
                        return;
                    }
                    stream.send_data(data, is_last).map(|()| is_last)
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => stream.send_trailers(trailers).map(|()| true),
                    Err(_) => Ok(false),
                },
            },
        };
        if !matches!(sent, Ok(false)) {
            return;
        }
    }
}

/// Waits for room in the stream's window; false if the stream was reset.
async fn has_room(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        if !matches!(
            poll_fn(|context| stream.poll_capacity(context)).await,
            Some(Ok(_))
        ) {
            return false;
        }
    }
    true
}
