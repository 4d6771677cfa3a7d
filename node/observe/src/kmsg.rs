//! Formats a record of `/dev/kmsg` for the API.
//!
//! Unprintable bytes stay in the kernel's escape `\xNN`, so a record is one line.

use std::time::{Duration, SystemTime};

use corten_api::parameters;
use corten_base::calendar::rfc3339;
use corten_sys::kmsg;

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

/// A record as a line with its line feed; `None` if it is malformed.
pub(super) fn line(record: &[u8], booted: SystemTime) -> Option<Vec<u8>> {
    let record = kmsg::parse(record)?;
    let code = usize::from(record.priority);
    // The log contains the kernel command line, which may hold a config.
    let message = parameters::hide(&record.text);
    let facility = FACILITIES.get(code / 8).copied().unwrap_or("unknown");
    let priority = PRIORITIES.get(code % 8).copied().unwrap_or("unknown");
    let at = booted.checked_add(Duration::from_micros(record.microseconds))?;
    let at = rfc3339(at);
    Some(format!("{facility}: {priority:>7}: [{at}]: {message}\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn worded(record: &str) -> Option<String> {
        let booted = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        line(record.as_bytes(), booted).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn kernel_record_is_formatted_as_one_line() {
        assert_eq!(
            worded("6,339,5140900,-;NET: Registered PF_INET\n SUBSYSTEM=x\n").unwrap(),
            "kern:    info: [2023-11-14T22:13:25.1409Z]: NET: Registered PF_INET\n"
        );
        assert_eq!(
            worded("30,1,0,-;started; well").unwrap(),
            "daemon:    info: [2023-11-14T22:13:20Z]: started; well\n"
        );
        assert_eq!(
            worded("30,1,0,-;a\\x0ab\n").unwrap(),
            "daemon:    info: [2023-11-14T22:13:20Z]: a\\x0ab\n"
        );
    }

    #[test]
    fn config_in_the_kernel_parameters_is_not_shown() {
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
    fn malformed_kernel_records_are_ignored() {
        for record in ["", ";", "x,1,2,-;m", "6,1", "6,1,18446744073709551615,-;m"] {
            let _ = worded(record);
        }
        assert_eq!(worded("x,1,2,-;m"), None);
    }
}
