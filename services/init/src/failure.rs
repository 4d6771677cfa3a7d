//! Ends a failed boot: reports the reason and a remedy, counts down, restarts.

use std::fs;
use std::thread;
use std::time::Duration;

use corten_sys::power::{self, End};

use crate::log::Log;

/// Delay before the restart: long enough to read the line, short enough for an unattended node (design, section 4).
const SECONDS: u32 = 10;

/// Remedy for a damaged image.
pub const REWRITE: &str =
    "the image is damaged: write or download it again, and compare SHA256SUMS";
/// Remedy for an unexpected failure.
pub const REPORT: &str = "please report this line together with the version of the image";

/// Reason why the node cannot boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
    remedy: &'static str,
}

impl Failure {
    /// `what` describes the failure, `remedy` the operator's action.
    pub fn new(what: String, remedy: &'static str) -> Failure {
        Failure { what, remedy }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot boot: {}; {}", self.what, self.remedy)
    }
}

/// Reports the failure and restarts the machine. With `corten.panic=0` or `panic=0` waits for ever.
pub fn end(failure: &Failure) -> ! {
    let log = Log::open();
    log.complain(&failure.to_string());
    let parameters = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if waits_for_ever(&parameters) {
        log.complain(
            "not restarting: the kernel parameter corten.panic or panic is 0; reset the machine",
        );
    } else {
        for left in (1..=SECONDS).rev() {
            log.complain(&format!("restarting in {left} s"));
            thread::sleep(Duration::from_secs(1));
        }
        power::sync();
        if let Err(error) = power::end(End::Restart) {
            log.complain(&format!("cannot restart: {error}"));
        }
    }
    loop {
        thread::park();
    }
}

/// Whether the last `panic` parameter is 0.
fn waits_for_ever(parameters: &str) -> bool {
    let value = |word: &str| {
        ["corten.panic=", "talos.panic=", "panic="]
            .iter()
            .find_map(|name| word.strip_prefix(name).map(str::to_owned))
    };
    parameters
        .split_whitespace()
        .filter_map(value)
        .next_back()
        .as_deref()
        == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_panic_parameter_decides() {
        assert!(waits_for_ever("quiet corten.panic=0"));
        assert!(waits_for_ever("panic=10 panic=0"));
        assert!(!waits_for_ever("panic=0 corten.panic=10"));
        assert!(!waits_for_ever("console=ttyS0 xpanic=0"));
    }

    #[test]
    fn boot_failure_is_one_line_with_a_remedy() {
        let text = Failure::new("/rootfs.squashfs is missing".into(), REWRITE).to_string();
        assert_eq!(text.lines().count(), 1);
        assert!(text.starts_with("cannot boot: /rootfs.squashfs is missing; the image is damaged"));
    }
}
