//! The log daemon of the node.
//!
//! Owns: `/dev/log`, the reading of `/dev/kmsg`, and one bounded ring per log.
//! Never: writes to disk, waits for a reader, grows past its bound.
//! Talks to: whoever writes to `/dev/log`; machined through `LogService`.
//! On a laptop, without root: `syslogd --dev-log /tmp/log --socket /tmp/s.sock`.

use std::ffi::OsString;
use std::process::ExitCode;

/// The daemon's entry; `args` starts with the program's name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let _ = args;
    ExitCode::FAILURE
}
