//! Dates for formats that store year, month and day.

/// Year, month (1-12) and day (1-31) in UTC of `epoch` seconds since 1970 (proleptic Gregorian).
pub fn date(epoch: u64) -> (u64, u8, u8) {
    // Counting starts at 0000-03-01, so that the leap day is the last of its year.
    let days = (epoch / 86_400).saturating_add(719_468);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era.saturating_mul(400) + year + u64::from(month <= 2);
    (
        year,
        u8::try_from(month).unwrap_or(1),
        u8::try_from(day).unwrap_or(1),
    )
}

/// `2023-11-14T22:13:20Z`.
pub fn rfc3339(epoch: u64) -> String {
    let (year, month, day) = date(epoch);
    let (hour, minute, second) = (epoch / 3600 % 24, epoch / 60 % 60, epoch % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_timestamps_format_as_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
