//! A record of `/dev/kmsg`, as the API words it.
//!
//! Documentation/ABI/testing/dev-kmsg: `priority,sequence,microseconds,flags;
//! message`, then lines that begin with a blank (a dictionary); bytes that do
//! not print are written as `\xNN`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_api::parameters;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Syslog facilities by number.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// Syslog priorities by number.
const PRIORITIES: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
];

/// One line for the API, with its line feed; `None` for what is no record.
pub(super) fn line(record: &[u8], booted: SystemTime) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(record);
    let (prefix, rest) = text.split_once(';')?;
    let mut fields = prefix.split(',');
    let code: usize = fields.next()?.parse().ok()?;
    let _sequence = fields.next()?;
    let since_boot: u64 = fields.next()?.parse().ok()?;
    // The kernel's command line is in it, and a config may be in that.
    let message = parameters::hide(rest.split('\n').next().unwrap_or_default());
    let facility = FACILITIES.get(code / 8).copied().unwrap_or("unknown");
    let priority = PRIORITIES.get(code % 8).copied().unwrap_or("unknown");
    let at = booted.checked_add(Duration::from_micros(since_boot))?;
    // Not `From<SystemTime>`: that one panics on times beyond the year 9999.
    let nanoseconds = i128::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
    let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?;
    let at = at.format(&Rfc3339).ok()?;
    Some(format!("{facility}: {priority:>7}: [{at}]: {message}\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worded(record: &str) -> Option<String> {
        let booted = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        line(record.as_bytes(), booted).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_record_is_one_line() {
        assert_eq!(
            worded("6,339,5140900,-;NET: Registered PF_INET\n SUBSYSTEM=x\n").unwrap(),
            "kern:    info: [2023-11-14T22:13:25.1409Z]: NET: Registered PF_INET\n"
        );
        assert_eq!(
            worded("30,1,0,-;started; well").unwrap(),
            "daemon:    info: [2023-11-14T22:13:20Z]: started; well\n"
        );
    }

    #[test]
    fn a_config_in_the_kernels_parameters_is_not_shown() {
        for line in [
            "Command line: quiet corten.config.inline=KLUvSECRET",
            "Kernel command line: talos.config.early=KLUvSECRET x=1",
            "Unknown kernel command line parameters \"corten.config.inline=KLUvSECRET\"",
        ] {
            let shown = worded(&format!("5,2,0,-;{line}\n")).unwrap();
            assert!(shown.contains("=******"), "{shown}");
            assert!(!shown.contains("SECRET"), "{shown}");
        }
    }

    #[test]
    fn nonsense_is_no_record() {
        for record in ["", ";", "x,1,2,-;m", "6,1", "6,1,18446744073709551615,-;m"] {
            let _ = worded(record);
        }
        assert_eq!(worded("x,1,2,-;m"), None);
    }
}
