//! The multi-call program of the image: `argv[0]` selects the daemon.
//!
//! Owns: the names of daemons, the kernel's helper requests (`helper.rs`), the return of freed memory to the kernel.
//! Never: does anything else; an unknown name fails at once.

mod helper;

use std::env::ArgsOs;
use std::ffi::{OsStr, OsString};
use std::iter::once;
use std::path::Path;
use std::process::ExitCode;

use helper::Request;

/// The daemons in this program, for the error message; also the names of the image's symlinks.
const NAMES: &str = "init (machined), apid, registryd, syslogd, trustd";

/// The builder orders the functions of this program by this list. So cargo links again after a change of the list.
const _: &str = include_str!("../functions.txt");

fn main() -> ExitCode {
    // A panic in one thread aborts the process: a daemon that lost a thread would look healthy. machined has its own
    // hook.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let mut args = std::env::args_os();
    let mut name = args.next().unwrap_or_default();
    if let Some(request) = name.to_str().and_then(Request::parse) {
        return request.fulfil(args);
    }
    if Path::new(&name).file_name() == Some(OsStr::new("corten-node")) {
        name = args.next().unwrap_or_default();
    }
    match daemon(&name) {
        Some(daemon) => {
            if let Err(error) = corten_sys::memory::keep_small() {
                eprintln!("corten-node: cannot return freed memory to the kernel: {error}");
            }
            daemon(name, args)
        }
        None => {
            eprintln!("corten-node: the program's name must be that of a daemon: {NAMES}");
            ExitCode::from(2)
        }
    }
}

/// The entry of the daemon of that name; it takes the name and the arguments after it.
fn daemon(name: &OsStr) -> Option<fn(OsString, ArgsOs) -> ExitCode> {
    match Path::new(name).file_name()?.to_str()? {
        "init" | "machined" => Some(|name, args| machined::run(once(name).chain(args))),
        "apid" => Some(|name, args| apid::run(once(name).chain(args))),
        "registryd" => Some(|name, args| registryd::run(once(name).chain(args))),
        "syslogd" => Some(|name, args| syslogd::run(once(name).chain(args))),
        "trustd" => Some(|name, args| trustd::run(once(name).chain(args))),
        _ => None,
    }
}
