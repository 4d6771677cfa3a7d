//! The API's door.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the daemon with its command line (argv[0] first).
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    drop(args);
    ExitCode::FAILURE
}
