//! gRPC's framing in HTTP/2 bodies: a flag, a length of four bytes, a message.

use std::ops::Deref;

use bytes::{Buf as _, Bytes, BytesMut};
use corten_api::MAX_MESSAGE;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::Status;

use crate::quota::{Holder, Quota, Taken};

/// Length of the frame head: flag and length.
const HEAD: usize = 5;
/// Limit in bytes of a short message, bounded by the number of calls. Longer ones share [`Memory`].
pub(crate) const SMALL: usize = 64 * 1024;

/// Quota for long messages of merged calls, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) quota: Quota,
    /// The caller of the merged call.
    pub(crate) holder: Holder,
}

/// A message, and its share of the quota for long ones.
#[derive(Debug)]
pub(crate) struct Message {
    bytes: Bytes,
    held: Option<Taken>,
}

impl Message {
    /// Moves its quota share, for the bytes made of it.
    pub(crate) fn into_held(self) -> Option<Taken> {
        self.held
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads messages from a body, then its trailers.
#[derive(Debug)]
pub(crate) struct Frames<B> {
    body: B,
    buffer: BytesMut,
    memory: Memory,
    held: Option<Taken>,
    trailers: Option<HeaderMap>,
}

impl<B: Body<Data = Bytes> + Unpin> Frames<B> {
    pub(crate) fn new(body: B, memory: Memory) -> Frames<B> {
        Frames {
            body,
            buffer: BytesMut::new(),
            memory,
            held: None,
            trailers: None,
        }
    }

    /// The next message; `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, Status> {
        loop {
            if let Some(bytes) = take(&mut self.buffer)? {
                let held = self.held.take();
                return Ok(Some(Message { bytes, held }));
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None | Some(Err(_)) => return Err(Status::unavailable("the stream ended early")),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.keep(&data)?,
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    fn keep(&mut self, data: &[u8]) -> Result<(), Status> {
        let length = self.buffer.len() + data.len();
        if length > SMALL {
            let Memory { quota, holder } = &self.memory;
            let enough = match &mut self.held {
                Some(held) => held.grow(length),
                none => {
                    *none = quota.take(holder, length);
                    none.is_some()
                }
            };
            if !enough {
                return Err(Status::resource_exhausted(
                    "too many long messages at once: ask fewer nodes, or one alone",
                ));
            }
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// The trailers, after the end of the body.
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
        return Err(Status::resource_exhausted(
            "a message is larger than 32 MiB",
        ));
    }
    if buffer.len() - HEAD < length {
        return Ok(None);
    }
    buffer.advance(HEAD);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// A message with its frame head.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    joined_frame(message.len(), [message])
}

/// Joins the parts of a message of `length` bytes and adds the frame head. Drops each part after copying it.
pub(crate) fn joined_frame(
    length: usize,
    parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD + length);
    out.extend_from_slice(&[0]);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part.as_ref());
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_reassembled_from_any_chunks() {
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
