//! Runs tests that change process-wide state in a process of their own: its children, limits, standard error or panic
//! hook.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::io::Write as _;
use std::process::Command;

/// Environment variable that marks the child process.
const MARK: &str = "CORTEN_TEST_ALONE";

/// Runs a test in a child process: the test program with this test alone. `test` is its full name. Returns the child's
/// standard error, or `None` in the child itself, where the test has then run.
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
    // With a wrong name, no test would run and the parent could not fail.
    assert!(out.contains("1 passed"), "{test}: {out}");
    // Skipped tests must be visible in the parent's output.
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        std::io::stderr()
            .write_all(format!("\n{line}\n").as_bytes())
            .unwrap();
    }
    Some(said)
}
