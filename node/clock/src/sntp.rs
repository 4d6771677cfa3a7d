//! SNTP: one stateless query and its answer, as an NTP version 4 client (RFC 4330; packet format: RFC 5905, section
//! 7.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Packet size in bytes, without extensions.
pub const SIZE: usize = 48;
/// UDP port of the servers.
pub const PORT: u16 = 123;

/// Seconds from NTP's epoch, 1900, to 1970.
const TO_UNIX: u64 = 2_208_988_800;
/// Seconds in an NTP era, which has 32 bits.
const ERA: u64 = 1 << 32;
/// Limit in nanoseconds of a server's distance from a reference clock (RFC 5905, section 13: MAXDISP).
const MAX_DISTANCE: i64 = 16_000_000_000;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const VERSION: u8 = 4;

/// Reason to discard an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// Shorter than a packet.
    #[error("the answer has {0} bytes instead of {SIZE}")]
    Short(usize),
    /// Answer to another query: an old one, or forged.
    #[error("the answer belongs to another request")]
    NotOurs,
    /// The server is not synchronized itself.
    #[error("the server is not synchronised itself")]
    Unsynchronised,
    /// The server asks for fewer queries.
    #[error("the server asks for fewer queries")]
    Rate,
    /// The server denies service; its four-letter code.
    #[error("the server denies service ({0})")]
    Denied(String),
    /// The numbers contradict each other.
    #[error("the answer contradicts itself")]
    Absurd,
}

/// Measurement from one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Correction of our clock in nanoseconds; negative when our clock is ahead.
    pub offset: i64,
    /// Round-trip time in nanoseconds; half of it is the error of the offset.
    pub delay: i64,
    /// Distance of the server from a reference clock in nanoseconds (RFC 5905, section 11.2: root distance).
    pub distance: i64,
}

/// Builds a query. The server returns `cookie`; a random one reveals nothing about the client and cannot be guessed
/// (draft-ietf-ntp-data-minimization, by the authors of RFC 8915).
#[must_use]
pub fn question(cookie: [u8; 8]) -> [u8; SIZE] {
    let mut packet = [0; SIZE];
    packet[0] = VERSION << 3 | CLIENT;
    packet[40..].copy_from_slice(&cookie);
    packet
}

/// Parses the answer to the query with that cookie. `left` and `came` are the times of sending and receipt on our
/// clock.
///
/// # Errors
/// The answer is useless.
pub fn answer(
    packet: &[u8],
    cookie: [u8; 8],
    left: SystemTime,
    came: SystemTime,
) -> Result<Sample, BadAnswer> {
    let short = || BadAnswer::Short(packet.len());
    let packet: &[u8; SIZE] = packet.first_chunk().ok_or_else(short)?;
    let [first, stratum, ..] = *packet;
    let (leap, version, mode) = (first >> 6, first >> 3 & 7, first & 7);
    if mode != SERVER || !(3..=VERSION).contains(&version) || packet[24..32] != cookie {
        return Err(BadAnswer::NotOurs);
    }
    if stratum == 0 {
        return Err(kiss(&packet[12..16]));
    }
    if leap == 3 || stratum > 15 {
        return Err(BadAnswer::Unsynchronised);
    }
    let number = |at: usize| {
        let bytes = packet.get(at..at + 4).unwrap_or_default();
        u32::from_be_bytes(bytes.try_into().unwrap_or_default())
    };
    // Root delay and root dispersion: 16 bits of seconds and 16 bits of fraction.
    let short_form = |at: usize| (i64::from(number(at)) * 1_000_000_000) >> 16;
    let distance = short_form(4) / 2 + short_form(8);
    if distance > MAX_DISTANCE {
        return Err(BadAnswer::Unsynchronised);
    }
    let (Some(received), Some(sent)) = (time(number(32), number(36)), time(number(40), number(44)))
    else {
        return Err(BadAnswer::Absurd);
    };
    let (there, back) = (difference(received, left), difference(sent, came));
    let offset = i128::midpoint(there, back);
    let delay = difference(came, left) - difference(sent, received);
    // The server answered before the query, or our clock was set meanwhile.
    if delay < 0 || difference(sent, received) < 0 {
        return Err(BadAnswer::Absurd);
    }
    let fits = |number: i128| i64::try_from(number).map_err(|_| BadAnswer::Absurd);
    Ok(Sample {
        offset: fits(offset)?,
        delay: fits(delay)?,
        distance,
    })
}

/// Kiss code of a kiss-o'-death packet (RFC 5905, section 7.4).
fn kiss(code: &[u8]) -> BadAnswer {
    match code {
        b"RATE" => BadAnswer::Rate,
        b"DENY" | b"RSTR" => BadAnswer::Denied(String::from_utf8_lossy(code).into_owned()),
        _ => BadAnswer::Unsynchronised,
    }
}

/// NTP's seconds wrap in 2036; a timestamp that looks earlier than 1968 belongs to the next era (RFC 4330, section 3).
/// Zero means no time.
fn time(seconds: u32, fraction: u32) -> Option<SystemTime> {
    if (seconds, fraction) == (0, 0) {
        return None;
    }
    let era = if seconds >> 31 == 0 { ERA } else { 0 };
    let seconds = (u64::from(seconds) + era).checked_sub(TO_UNIX)?;
    let nanoseconds = (u64::from(fraction) * 1_000_000_000) >> 32;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds))
}

/// Difference in nanoseconds; negative when `one` is earlier.
#[must_use]
pub fn difference(one: SystemTime, other: SystemTime) -> i128 {
    let count = |span: Duration| i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    match one.duration_since(other) {
        Ok(span) => count(span),
        Err(error) => -count(error.duration()),
    }
}

/// Adds nanoseconds to a time.
pub(super) fn moved(time: SystemTime, offset: i64) -> Option<SystemTime> {
    let span = Duration::from_nanos(offset.unsigned_abs());
    if offset < 0 {
        time.checked_sub(span)
    } else {
        time.checked_add(span)
    }
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    const COOKIE: [u8; 8] = *b"a-cookie";
    /// 2026-01-01.
    const NOW: u64 = 1_767_225_600;

    fn at(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW) + Duration::from_millis(milliseconds)
    }

    fn stamp(milliseconds: u64) -> [u8; 8] {
        let seconds = u32::try_from((NOW + TO_UNIX + milliseconds / 1000) % ERA).unwrap();
        let part = u32::try_from((milliseconds % 1000) * ERA / 1000).unwrap();
        [seconds.to_be_bytes(), part.to_be_bytes()]
            .concat()
            .try_into()
            .unwrap()
    }

    /// A server that received and answered the query at these times of its clock, in milliseconds.
    fn packet(received: u64, sent: u64) -> [u8; SIZE] {
        let mut packet = [0; SIZE];
        packet[0] = VERSION << 3 | SERVER;
        packet[1] = 2;
        packet[24..32].copy_from_slice(&COOKIE);
        packet[32..40].copy_from_slice(&stamp(received));
        packet[40..].copy_from_slice(&stamp(sent));
        packet
    }

    fn read(packet: &[u8]) -> Result<Sample, BadAnswer> {
        answer(packet, COOKIE, at(1000), at(1100))
    }

    #[test]
    fn request_reveals_nothing_about_the_node() {
        let question = question(COOKIE);
        assert_eq!(question[0], 0x23);
        assert!(question[1..40].iter().all(|byte| *byte == 0));
        assert_eq!(question[40..], COOKIE);
    }

    /// Cookie of the queries that the samples answer.
    const ASKED: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn corpus_samples_are_read() {
        for sample in samples("sntp") {
            let found = answer(&sample.bytes, ASKED, at(1000), at(1100));
            let expected = match &*sample.name {
                "kiss-rate" => Err(BadAnswer::Rate),
                "kiss-deny" => Err(BadAnswer::Denied("DENY".to_owned())),
                _ => {
                    found.unwrap();
                    continue;
                }
            };
            assert_eq!(found, expected, "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_answers_never_panic(packet in hostile("sntp"), left: u32, takes: u32) {
            let left = UNIX_EPOCH + Duration::from_secs(left.into());
            let came = left + Duration::from_millis(takes.into());
            if let Ok(sample) = answer(&packet, ASKED, left, came) {
                // The round trip cannot exceed our waiting time.
                let most = i64::from(takes) * 1_000_000;
                prop_assert!((0..=most).contains(&sample.delay), "{sample:?}");
            }
        }
    }

    #[test]
    fn offset_and_delay_are_computed_from_the_four_timestamps() {
        // 40 ms to the server, 10 ms there and 50 ms back, on a clock 5 s ahead.
        let sample = read(&packet(6040, 6050)).unwrap();
        let milliseconds = |nanoseconds: i64| (nanoseconds + 500_000) / 1_000_000;
        assert_eq!(milliseconds(sample.offset), 4995);
        assert_eq!(milliseconds(sample.delay), 90);
        // Without a hardware clock our time is 1970.
        let (left, came) = (UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(100));
        let sample = answer(&packet(0, 0), COOKIE, left, came).unwrap();
        let seconds = i64::try_from(NOW).unwrap();
        assert_eq!(sample.offset, seconds * 1_000_000_000 - 50_000_000);
    }

    #[test]
    fn ntp_era_rollover_of_2036_is_handled() {
        let of = |seconds| {
            time(seconds, 0)
                .unwrap()
                .duration_since(UNIX_EPOCH)
                .unwrap()
        };
        assert_eq!(of(1).as_secs(), ERA + 1 - TO_UNIX);
        assert_eq!(of(u32::MAX).as_secs(), ERA - 1 - TO_UNIX);
        assert_eq!(time(0, 0), None);
    }

    #[test]
    fn unusable_answers_are_refused_with_a_reason() {
        let changed = |at: usize, byte: u8| {
            let mut packet = packet(1040, 1050);
            packet[at] = byte;
            read(&packet)
        };
        assert_eq!(read(&[0; 47]), Err(BadAnswer::Short(47)));
        assert_eq!(changed(24, 0), Err(BadAnswer::NotOurs));
        assert_eq!(changed(0, VERSION << 3 | CLIENT), Err(BadAnswer::NotOurs));
        let alarm = 3 << 6 | VERSION << 3 | SERVER;
        assert_eq!(changed(0, alarm), Err(BadAnswer::Unsynchronised));
        assert_eq!(changed(1, 16), Err(BadAnswer::Unsynchronised));
        // A root dispersion of 256 s.
        assert_eq!(changed(8, 1), Err(BadAnswer::Unsynchronised));
        // Sent before it was received, or a negative round trip.
        assert_eq!(read(&packet(1050, 1040)), Err(BadAnswer::Absurd));
        assert_eq!(read(&packet(1000, 1200)), Err(BadAnswer::Absurd));
        let mut unset = packet(1040, 1050);
        unset[40..].fill(0);
        assert_eq!(read(&unset), Err(BadAnswer::Absurd));
    }

    #[test]
    fn kiss_of_death_is_not_used_as_a_time() {
        let kiss = |code: &[u8; 4]| {
            let mut packet = packet(1040, 1050);
            packet[1] = 0;
            packet[12..16].copy_from_slice(code);
            read(&packet).unwrap_err()
        };
        assert_eq!(kiss(b"RATE"), BadAnswer::Rate);
        assert_eq!(kiss(b"DENY"), BadAnswer::Denied("DENY".to_owned()));
        assert_eq!(kiss(b"INIT"), BadAnswer::Unsynchronised);
        // A packet with a wrong cookie may be forged.
        let mut forged = packet(1040, 1050);
        forged[1] = 0;
        forged[24] = 0;
        assert_eq!(read(&forged), Err(BadAnswer::NotOurs));
    }
}
