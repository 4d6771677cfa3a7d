//! Parses the range of a blob that a client requests, and streams it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::verify::Pending;

/// Size of a read in bytes. At most two chunks are in flight.
const CHUNK: u64 = 64 * 1024;

/// A byte range of a blob; empty only if the blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Meaning of the header `Range` (RFC 9110, section 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No range, or one of an unsupported form, which the RFC allows to ignore.
    Whole,
    /// One range, clipped to the blob's length.
    Part(Part),
    /// A range that starts after the end.
    Beyond,
}

/// Parses the header's value.
pub(crate) fn range(header: Option<&str>, length: u64) -> Asked {
    let parsed = header
        .and_then(|value| value.trim().strip_prefix("bytes="))
        .and_then(|range| range.split_once('-'));
    let Some((first, last)) = parsed else {
        return Asked::Whole;
    };
    let (start, end) = match (number(first), number(last)) {
        // A suffix range.
        (None, Some(count)) if first.is_empty() => (length.saturating_sub(count), length),
        (Some(start), None) if last.is_empty() => (start, length),
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(length)),
        _ => return Asked::Whole,
    };
    match end.checked_sub(start) {
        None | Some(0) => Asked::Beyond,
        Some(length) => Asked::Part(Part { start, length }),
    }
}

fn number(text: &str) -> Option<u64> {
    // `parse` would accept a sign.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The range as a body. With `pending`, the range is the whole blob, and is verified. A read error or a wrong digest
/// closes the connection before the last bytes.
pub(crate) fn body(
    file: Arc<File>,
    part: Part,
    pending: Option<Pending>,
) -> StreamBody<impl Stream<Item = io::Result<Frame<Bytes>>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(send(file, part, pending, sender));
    StreamBody::new(unfold(receiver, async |mut receiver| {
        let chunk: io::Result<Bytes> = receiver.recv().await?;
        Some((chunk.map(Frame::data), receiver))
    }))
}

async fn send(
    file: Arc<File>,
    part: Part,
    mut pending: Option<Pending>,
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    let (mut at, end) = (part.start, part.start.saturating_add(part.length));
    while at < end {
        let (reader, check) = (file.clone(), pending.take());
        let wanted = CHUNK.min(end - at);
        let is_last = at + wanted == end;
        let work = move || {
            let bytes = read(&reader, at, wanted)?;
            Ok((verified(check, &bytes, is_last)?, bytes))
        };
        let read = tokio::task::spawn_blocking(work).await;
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
        let chunk = read.map(|(rest, bytes)| {
            pending = rest;
            bytes
        });
        let failed = chunk.is_err();
        if sender.send(chunk).await.is_err() || failed {
            return;
        }
        at = at.saturating_add(wanted);
    }
}

/// The verification after these bytes; `None` after the last ones.
fn verified(check: Option<Pending>, bytes: &[u8], is_last: bool) -> io::Result<Option<Pending>> {
    let Some(mut check) = check else {
        return Ok(None);
    };
    check.update(bytes);
    if !is_last {
        return Ok(Some(check));
    }
    let finished = check.finish();
    let finished = finished.inspect_err(|wrong| eprintln!("registryd: {wrong}"));
    finished.map(|()| None)
}

fn read(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(start: u64, length: u64) -> Asked {
        Asked::Part(Part { start, length })
    }

    #[test]
    fn byte_ranges_follow_the_rfc() {
        assert_eq!(range(None, 10), Asked::Whole);
        assert_eq!(range(Some("bytes=0-"), 10), part(0, 10));
        assert_eq!(range(Some("bytes=3-5"), 10), part(3, 3));
        assert_eq!(range(Some("bytes=3-99"), 10), part(3, 7));
        assert_eq!(range(Some("bytes=-4"), 10), part(6, 4));
        assert_eq!(range(Some("bytes=-99"), 10), part(0, 10));
        assert_eq!(range(Some("bytes=10-"), 10), Asked::Beyond);
        assert_eq!(range(Some("bytes=-0"), 10), Asked::Beyond);
        for ignored in [
            "bytes=5-3",
            "bytes=0-1,3-4",
            "bytes=+1-2",
            "lines=0-",
            "bytes=-",
            "",
        ] {
            assert_eq!(range(Some(ignored), 10), Asked::Whole, "{ignored}");
        }
    }

    proptest! {
        #[test]
        fn hostile_ranges_stay_within_the_blob(header in "bytes=[0-9]{0,22}-[0-9]{0,22}", length in 0_u64..1000) {
            if let Asked::Part(part) = range(Some(&header), length) {
                prop_assert!(part.length > 0 && part.start + part.length <= length);
            }
        }
    }
}
