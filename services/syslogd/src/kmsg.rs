//! Records of `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg). No I/O.

use std::borrow::Cow;

/// One record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Facility × 8 + severity; user space writers choose their own facility.
    pub priority: u16,
    /// The record's number; grows by one, so a gap is loss.
    pub sequence: u64,
    /// Microseconds of the kernel's monotonic clock.
    pub microseconds: u64,
    /// The text, with the kernel's `\xNN` escapes decoded.
    pub text: Cow<'a, str>,
}

/// Reads `6,339,5140900,-[,...];text\n KEY=value\n`. `None` when the prefix is
/// not that. The dictionary lines behind the text are left out.
#[must_use]
pub fn parse(record: &[u8]) -> Option<Record<'_>> {
    let semicolon = record.iter().position(|b| *b == b';')?;
    let prefix = std::str::from_utf8(record.get(..semicolon)?).ok()?;
    let text = record.get(semicolon + 1..)?;
    let mut fields = prefix.split(',');
    let priority = fields.next()?.parse().ok()?;
    let sequence = fields.next()?.parse().ok()?;
    let microseconds = fields.next()?.parse().ok()?;
    let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
    let text = unescape(text.get(..end)?);
    Some(Record {
        priority,
        sequence,
        microseconds,
        text,
    })
}

/// The kernel writes bytes below 32, above 126 and the backslash as `\xNN`.
fn unescape(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let decoded = rest
            .strip_prefix(b"\\x")
            .and_then(|hex| hex.split_at_checked(2))
            .and_then(|(hex, after)| Some((std::str::from_utf8(hex).ok()?, after)))
            .and_then(|(hex, after)| Some((u8::from_str_radix(hex, 16).ok()?, after)));
        let (byte, after) = decoded.unwrap_or((*byte, after));
        plain.push(byte);
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
}

/// Counts what the kernel overwrote before it was read.
#[derive(Debug, Default)]
pub struct Sequence {
    next: Option<u64>,
}

impl Sequence {
    /// Notes the number of a record; returns how many records are missing
    /// between it and the one before.
    pub fn note(&mut self, sequence: u64) -> u64 {
        let missing = self.next.map_or(0, |next| sequence.saturating_sub(next));
        self.next = Some(sequence.saturating_add(1));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::{Sequence, parse};
    use corten_corpus::{hostile, samples};
    use proptest::prelude::proptest;

    #[test]
    fn recorded_records() {
        let r = parse(b"6,339,5140900,-;NET: Registered PF_INET6\n SUBSYSTEM=net\n").unwrap();
        assert_eq!((r.priority, r.sequence), (6, 339));
        assert_eq!(r.microseconds, 5_140_900);
        assert_eq!(r.text, "NET: Registered PF_INET6");
        let r = parse(b"12,340,5690716,-,caller=T1;udevd: a\\x0ab \\xc3\\xa4 \\x5c\n").unwrap();
        assert_eq!(r.priority, 12);
        assert_eq!(r.text, "udevd: a\nb \u{e4} \\");
    }

    #[test]
    fn what_is_no_record() {
        for bytes in [&b""[..], b"hello", b"6,1;x", b"a,b,c,-;x", b"6,1,-5,-;x"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn gaps_are_counted_once() {
        let mut sequence = Sequence::default();
        let missing: Vec<u64> = [7, 8, 11, 12, 12].map(|n| sequence.note(n)).to_vec();
        assert_eq!(missing, [0, 0, 2, 0, 0]);
    }

    #[test]
    fn samples_are_records() {
        for sample in samples("kmsg") {
            assert!(parse(&sample.bytes).is_some(), "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in hostile("kmsg")) {
            let _ = parse(&bytes);
            let _ = parse(&[b"6,1,1,-;", &bytes[..]].concat());
        }
    }
}
