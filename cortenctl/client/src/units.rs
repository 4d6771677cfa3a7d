//! Numbers in the forms of the node API's clients: durations as `1h2m3s`, sizes in powers of a
//! thousand.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use time::OffsetDateTime;
use time::macros::format_description;

/// A duration to the second: `45s`, `2m33s`, `1h0m5s`.
pub fn duration(duration: Duration) -> String {
    let total = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_millis() >= 500));
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A long duration in the largest unit with a value of at least two: `300 days`, `36 hours`.
pub fn coarse(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let fits = units.into_iter().find(|(size, _)| seconds / size >= 2);
    let (size, unit) = fits.unwrap_or((1, "seconds"));
    format!("{} {unit}", seconds / size)
}

/// The age of something; `0s` if the node's clock is ahead of ours.
pub fn age(at: Timestamp, now: SystemTime) -> String {
    let passed = SystemTime::try_from(at)
        .ok()
        .and_then(|at| now.duration_since(at).ok());
    duration(passed.unwrap_or_default())
}

/// Parses `90s`, `2m`, `1h30m`, `500ms`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 2m or 1h30m");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(millis).ok_or_else(wrong)?;
        total = total
            .checked_add(Duration::from_millis(part))
            .ok_or_else(wrong)?;
        rest = tail;
    }
    if total.is_zero() {
        Err(wrong())
    } else {
        Ok(total)
    }
}

/// A size in bytes for people: `512 B`, `1.9 GB`, `140 MB`.
pub fn size(bytes: u64) -> String {
    let (number, unit) = scaled(bytes, 1000.0, ["kB", "MB", "GB", "TB", "PB", "EB"]);
    format!("{number} {unit}")
}

/// The same in powers of 1024, as `df` writes it: `512B`, `1.9GiB`, `140MiB`.
pub fn binary_size(bytes: u64) -> String {
    let (number, unit) = scaled(bytes, 1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
    format!("{number}{unit}")
}

/// The number before a unit, with at least two digits, and the unit.
fn scaled(bytes: u64, step: f64, units: [&'static str; 6]) -> (String, &'static str) {
    if bytes < 10 {
        return (bytes.to_string(), "B");
    }
    let (value, unit) = divided(bytes, step, units);
    let unit = unit.unwrap_or("B");
    let rounded = (value * 10.0 + 0.5).floor() / 10.0;
    let digits = usize::from(rounded < 10.0);
    (format!("{rounded:.digits$}"), unit)
}

/// A number of things: `999`, `52.4K`, `2M`.
pub fn count(count: u64) -> String {
    let (value, unit) = divided(count, 1000.0, ["K", "M", "G", "T", "P", "E"]);
    let text = format!("{value:.1}");
    format!(
        "{}{}",
        text.trim_end_matches(".0"),
        unit.unwrap_or_default()
    )
}

/// A number in the largest unit in which it is at least 1, where each unit is `step` times the one
/// before. No unit if the number is smaller than the first.
fn divided(number: u64, step: f64, units: [&'static str; 6]) -> (f64, Option<&'static str>) {
    let mut value = number as f64;
    let mut unit = None;
    for next in units {
        if value < step {
            break;
        }
        value /= step;
        unit = Some(next);
    }
    (value, unit)
}

/// A size from a node, which may be negative.
pub fn signed_size(bytes: i64) -> String {
    let text = size(bytes.unsigned_abs());
    if bytes < 0 { format!("-{text}") } else { text }
}

/// A timestamp in the form of RFC 3339; `?` outside of the calendar.
pub fn moment(at: Timestamp) -> String {
    let nanos = u32::try_from(at.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    match (OffsetDateTime::from_unix_timestamp(at.seconds), nanos) {
        (Ok(time), Some(_)) if time.year() >= 0 => at.to_string(),
        _ => "?".to_owned(),
    }
}

/// Maximum age of a file time that is shown with seconds: half a year.
const RECENT: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// The modification time of a file, in seconds since 1970, in the form of `ls`. It is UTC, with the
/// year instead of the seconds if it is old.
pub fn file_time(modified: i64, now: SystemTime) -> String {
    let Ok(time) = OffsetDateTime::from_unix_timestamp(modified) else {
        return "?".to_owned();
    };
    let passed = now.duration_since(SystemTime::from(time));
    let recent = passed.is_ok_and(|passed| passed < RECENT);
    let text = if recent {
        let form =
            format_description!("[month repr:short] [day padding:space] [hour]:[minute]:[second]");
        time.format(form)
    } else {
        let form =
            format_description!("[month repr:short] [day padding:space] [year] [hour]:[minute]");
        time.format(form)
    };
    text.unwrap_or_else(|_| "?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (153, "2m33s"),
            (3605, "1h0m5s"),
            (100_000, "27h46m40s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
            if seconds > 0 {
                assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds));
            }
        }
        assert_eq!(duration(Duration::from_millis(1500)), "2s");
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        for wrong in [
            "",
            "5",
            "m",
            "-1s",
            "1d",
            "0s",
            "1.5m",
            "99999999999999999999h",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_never_run_backwards() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        assert_eq!(age(at(847), now), "2m33s");
        assert_eq!(age(at(5000), now), "0s");
    }

    #[test]
    fn sizes_use_decimal_units() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (82_854_982, "83 MB"),
            (1_920_000_000, "1.9 GB"),
            (u64::MAX, "18 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn disk_sizes_use_binary_units_and_counts_decimal_ones() {
        let sizes = [0, 1023, 1 << 10, 960 << 20, u64::MAX].map(binary_size);
        assert_eq!(sizes, ["0B", "1023B", "1.0KiB", "960MiB", "16EiB"]);
        let counts = [0, 999, 52_400, 2_000_000, u64::MAX].map(count);
        assert_eq!(counts, ["0", "999", "52.4K", "2M", "18.4E"]);
    }

    #[test]
    fn out_of_range_times_of_a_node_are_shown_as_unknown() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(moment(at(1, 500_000_000)), "1970-01-01T00:00:01.500Z");
        assert_eq!(moment(at(i64::MAX, 0)), "?");
        assert_eq!(moment(at(i64::MIN, 0)), "?");
        assert_eq!(moment(at(0, -1)), "?");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(file_time(1_699_999_000, now), "Nov 14 21:56:40");
        assert_eq!(file_time(1_000_000_000, now), "Sep  9 2001 01:46");
        assert_eq!(file_time(i64::MIN, now), "?");
        assert_eq!(file_time(-1, now), "Dec 31 1969 23:59");
        assert_eq!(signed_size(-5), "-5 B");
        assert_eq!(signed_size(i64::MIN), "-9.2 EB");
    }
}
