//! Kernel records as lines of the log `kernel`. No I/O.
//!
//! The ring stores `priority,sequence,clock,time;text`, so that a destination gets the fields unchanged. Readers get
//! the format of the API's Dmesg, made on reading.

use crate::parse::{facility, severity};
use corten_api::parameters;
use corten_sys::kmsg::Record;
use std::borrow::Cow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Facility `syslog`, severity `warning`: the priority of the daemon's own lines in this log.
const OWN_PRIORITY: u16 = 5 * 8 + 4;

/// One parsed line of the log `kernel`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// Facility × 8 + severity.
    pub priority: u16,
    /// Sequence number from the kernel.
    pub sequence: u64,
    /// Microseconds of the kernel's monotonic clock.
    pub clock: u64,
    /// Microseconds since 1970, by the wall clock at the time of reading.
    pub time: u64,
    /// Text of the record; `\n` separates its lines.
    pub text: Cow<'a, str>,
}

/// A record as a line with its line feed. `boot` is the time of the kernel clock's zero in microseconds since 1970.
/// Removes secrets of the kernel command line before the line reaches a ring, a disk or a destination.
#[must_use]
pub fn encode(record: &Record<'_>, boot: u64) -> Vec<u8> {
    let time = boot.saturating_add(record.microseconds);
    let text = parameters::hide(&record.text).replace('\n', "\\n");
    written(record.priority, record, time, &text)
}

/// The line that reports `missing` lost records before `next`.
#[must_use]
pub fn encode_loss(missing: u64, next: &Record<'_>, boot: u64) -> Vec<u8> {
    let time = boot.saturating_add(next.microseconds);
    let text = format!("{missing} kernel messages were lost");
    written(OWN_PRIORITY, next, time, &text)
}

fn written(priority: u16, record: &Record<'_>, time: u64, text: &str) -> Vec<u8> {
    let (sequence, clock) = (record.sequence, record.microseconds);
    format!("{priority},{sequence},{clock},{time};{text}\n").into_bytes()
}

/// Parses a line without its line feed; `None` if it is truncated or of another format.
#[must_use]
pub fn decode(line: &[u8]) -> Option<Line<'_>> {
    let at = line.iter().position(|byte| *byte == b';')?;
    let (numbers, text) = line.split_at_checked(at)?;
    let mut numbers = std::str::from_utf8(numbers).ok()?.split(',');
    let line = Line {
        priority: numbers.next()?.parse().ok()?,
        sequence: numbers.next()?.parse().ok()?,
        clock: numbers.next()?.parse().ok()?,
        time: numbers.next()?.parse().ok()?,
        text: String::from_utf8_lossy(text.get(1..)?),
    };
    numbers.next().is_none().then_some(line)
}

/// Formats whole lines of this log as `facility: severity: [time]: text`.
#[must_use]
pub fn worded(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() * 2);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        match decode(bare) {
            None => out.extend_from_slice(line),
            Some(line) => out.extend_from_slice(
                format!(
                    "{}: {:>7}: [{}]: {}\n",
                    facility(line.priority),
                    severity(line.priority),
                    rfc3339(line.time),
                    line.text
                )
                .as_bytes(),
            ),
        }
    }
    out
}

/// Microseconds since 1970 as RFC 3339, in UTC.
#[must_use]
pub fn rfc3339(microseconds: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(microseconds) * 1000)
        .ok()
        .and_then(|at| at.format(&Rfc3339).ok())
        // Formatting fails only for years beyond 9999.
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encode_loss, worded};
    use corten_sys::kmsg::{Record, parse};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    const BOOT: u64 = 1_735_787_045_000_000; // 2025-01-02 03:04:05 UTC

    #[test]
    fn kernel_record_is_one_line_and_reads_like_dmesg() {
        let record = parse(b"4,1,1500000,-;one\\x0atwo\n").unwrap().decoded();
        let line = encode(&record, BOOT);
        assert_eq!(line, b"4,1,1500000,1735787046500000;one\\ntwo\n");
        assert_eq!(
            worded(&[&encode_loss(3, &record, BOOT)[..], &line].concat()),
            b"syslog: warning: [2025-01-02T03:04:06.5Z]: 3 kernel messages were lost\n\
              kern: warning: [2025-01-02T03:04:06.5Z]: one\\ntwo\n"
        );
    }

    #[test]
    fn config_in_the_kernel_parameters_is_in_no_line() {
        let bytes = b"5,1,0,-;Kernel command line: quiet corten.config.inline=KLUv x=1\n";
        let line = encode(&parse(bytes).unwrap(), BOOT);
        let text = decode(line.trim_ascii_end()).unwrap().text.into_owned();
        let expected = "Kernel command line: quiet corten.config.inline=****** x=1";
        assert_eq!(text, expected);
    }

    #[test]
    fn foreign_lines_are_unchanged() {
        for line in [&b"x"[..], b"1,2,3;x", b"1,2,3,4,5;x", b"a,2,3,4;x", b""] {
            assert_eq!(decode(line), None);
            assert_eq!(worded(line), line);
        }
    }

    proptest! {
        #[test]
        fn every_record_round_trips(priority in 0u16..192, sequence: u64, clock: u64, text in "\\PC*") {
            let record = Record { priority, sequence, microseconds: clock, text: text.as_str().into() };
            let encoded = encode(&record, BOOT);
            let line = decode(&encoded[..encoded.len() - 1]).unwrap();
            prop_assert_eq!((line.priority, line.sequence, line.clock), (priority, sequence, clock));
            prop_assert_eq!(line.text, text.as_str());
        }

        #[test]
        fn hostile_lines_never_panic(line: Vec<u8>, time in any::<u64>()) {
            let _ = worded(&line);
            let _ = worded(format!("1,2,3,{time};x\n").as_bytes());
        }
    }
}
