//! The multi-call program of the image: which daemon it is depends on `argv[0]`.
//!
//! Owns: the mapping from name to daemon. Never does: anything else. Talks to: the daemons' libraries.
//! On a laptop: `cargo run -p node -- apid --help` (a daemon's name may also be the first argument).

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The daemons in this program; also the names of the symlinks in the image.
const NAMES: &str = "init (machined), apid, syslogd";

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let own_name = args.next().unwrap_or_default();
    if let Some(code) = dispatch(&own_name, &mut args) {
        return code;
    }
    match args.next().and_then(|name| dispatch(&name, &mut args)) {
        Some(code) => code,
        None => {
            eprintln!("corten-node: call me by the name of a daemon: {NAMES}");
            ExitCode::from(2)
        }
    }
}

/// Runs the daemon of that name; `None` when there is none.
fn dispatch(name: &OsStr, args: &mut dyn Iterator<Item = OsString>) -> Option<ExitCode> {
    match Path::new(name).file_name()?.to_str()? {
        "init" | "machined" => Some(machined::run(args)),
        "apid" => Some(apid::run(args)),
        "syslogd" => Some(syslogd::run(args)),
        _ => None,
    }
}
