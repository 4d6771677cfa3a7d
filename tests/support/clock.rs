//! The clock of the machine that runs a test. Only a kernel of the test's own lends it.

use std::fs;
use std::process::Command;

/// Whether a test may set the clock: it runs in a user-mode kernel, and the machine's own clock stays as it is.
#[must_use]
pub fn is_ours() -> bool {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu.contains("User Mode Linux")
}

/// Sets the clock to a time as `date --date` takes it.
///
/// # Panics
/// The clock cannot be set.
pub fn set(time: &str) {
    date(&["--set", time]);
}

/// The time in UTC as RFC 3339 has it, with seconds.
///
/// # Panics
/// There is no program `date`.
#[must_use]
pub fn now() -> String {
    date(&["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
}

fn date(arguments: &[&str]) -> String {
    let output = Command::new("date").args(arguments).output();
    let output = output.expect("the program date");
    let [told, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    assert!(output.status.success(), "date {arguments:?}: {error}");
    told
}
