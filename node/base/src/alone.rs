//! Tests that change what a process has only once: its children, its limits, its standard error, its panic hook.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::io::Write as _;
use std::process::Command;

/// Tells the process that is the one.
const MARK: &str = "CORTEN_TEST_ALONE";

/// Runs a test in a process of its own, the test's program with nothing but this test. `test` is the test's whole name.
/// Returns what the process said on its standard error; `None`: this is that process, and the test is done.
pub fn in_a_process(test: &str, body: impl FnOnce()) -> Option<String> {
    if std::env::var_os(MARK).is_some() {
        body();
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{test}: {out}\n{said}");
    // A name that is none would be a test that cannot fail.
    assert!(out.contains("1 passed"), "{test}: {out}");
    // What was left out must be seen.
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        std::io::stderr()
            .write_all(format!("\n{line}\n").as_bytes())
            .unwrap();
    }
    Some(said)
}
