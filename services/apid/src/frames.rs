//! gRPC's framing (a flag, a length of four bytes, a message), read from and
//! written to HTTP/2 bodies.

use bytes::{Buf as _, Bytes, BytesMut};
use corten_api::MAX_MESSAGE;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tonic::Status;

/// Flag and length.
const HEAD: usize = 5;

/// Messages out of a body, then its trailers.
#[derive(Debug)]
pub(crate) struct Frames {
    body: Incoming,
    buffer: BytesMut,
    trailers: Option<HeaderMap>,
}

impl Frames {
    pub(crate) fn new(body: Incoming) -> Frames {
        Frames {
            body,
            buffer: BytesMut::new(),
            trailers: None,
        }
    }

    /// The next message, or `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                return Ok(Some(message));
            }
            if self.body.is_end_stream() && self.trailers.is_some() {
                return Ok(None);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(_)) => return Err(Status::unavailable("the stream broke off")),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// The trailers, once the body has ended.
    pub(crate) fn into_trailers(self) -> Option<HeaderMap> {
        self.trailers
    }
}

fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, Status> {
    let Some((head, _)) = buffer.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let [flag, length @ ..] = head else {
        return Ok(None);
    };
    if *flag != 0 {
        return Err(Status::unimplemented(
            "compressed messages cannot be merged",
        ));
    }
    let length = length
        .iter()
        .fold(0usize, |n, byte| (n << 8) | usize::from(*byte));
    if length > MAX_MESSAGE {
        return Err(Status::resource_exhausted("a message of more than 32 MiB"));
    }
    if buffer.len() - HEAD < length {
        return Ok(None);
    }
    buffer.advance(HEAD);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// A message with its frame's head.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut out = BytesMut::with_capacity(HEAD + message.len());
    out.extend_from_slice(&[0]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let all = [framed(b"one"), framed(b""), framed(b"three")].concat();
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for byte in all {
            buffer.extend_from_slice(&[byte]);
            while let Some(message) = take(&mut buffer).unwrap() {
                found.push(message);
            }
        }
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
    }

    #[test]
    fn compressed_and_huge_frames_are_refused() {
        take(&mut BytesMut::from(&[1, 0, 0, 0, 0][..])).unwrap_err();
        take(&mut BytesMut::from(&[0, 0xff, 0xff, 0xff, 0xff][..])).unwrap_err();
    }
}
