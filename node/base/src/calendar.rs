//! Formats times for people and clients.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time in UTC by RFC 3339, to the nanosecond; empty for times before 1970 or beyond the year 9999.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    // `From<SystemTime>` would panic on times beyond the year 9999.
    let since = at.duration_since(UNIX_EPOCH).ok();
    let nanoseconds = since.and_then(|since| i128::try_from(since.as_nanos()).ok());
    let at = nanoseconds.and_then(|n| OffsetDateTime::from_unix_timestamp_nanos(n).ok());
    at.and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_is_formatted_and_a_time_out_of_range_is_empty() {
        let at = |seconds: u64| rfc3339(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 500));
        assert_eq!(at(1_000_000_000), "2001-09-09T01:46:40.5Z");
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "");
        // The year 10000.
        assert_eq!(at(253_402_300_800), "");
    }
}
