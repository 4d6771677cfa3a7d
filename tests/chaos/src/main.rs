//! A fault injector inside a running node: the initramfs has it as `/init`, and the image's own as `/init.real`.
//!
//! Owns: the agent, a process that takes commands from the second serial port (`tests/support/chaos.rs` sends them).
//! Never: exists in a shipped image, or changes the node without a command.

mod agent;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Mount point of /proc for the agent's start, removed before the image's init runs.
const PROC: &str = "/chaos-proc";
const DEV: &str = "/chaos-dev";
/// The image's own `init`.
const REAL: &str = "/init.real";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["--agent", proc, port] => agent::serve(Path::new(proc), Path::new(port)),
        ["--parent", own] => agent::leave_orphan(own),
        ["--bomb"] => agent::multiply(),
        ["--orphan"] => {
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        }
        _ if std::process::id() == 1 => Err(first()),
        _ => Err(io::Error::other(
            "started by tests only; see the crate's header",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Process 1: starts the agent and becomes the image's init. A failure to start the agent is
/// printed on the console and does not stop the boot.
fn first() -> io::Error {
    if let Err(error) = leave_agent() {
        eprintln!("chaos: no agent: {error}");
    }
    Command::new(REAL).arg0("/init").exec()
}

fn leave_agent() -> io::Result<()> {
    for (target, kind) in [(PROC, "proc"), (DEV, "devtmpfs")] {
        fs::create_dir_all(target)?;
        mount(kind, target, kind, MountFlags::empty(), None)?;
    }
    let port = format!("{DEV}/ttyS1");
    let mut agent = Command::new("/init")
        .args([OsStr::new("--agent"), OsStr::new(PROC), OsStr::new(&port)])
        // Not Stdio::null(): the initramfs has no /dev/null.
        .stdin(File::open(format!("{DEV}/null"))?)
        .stdout(Stdio::piped())
        .spawn()?;
    // The agent prints a line, or ends, once it no longer needs the mounts.
    if let Some(ready) = agent.stdout.take() {
        BufReader::new(ready).read_line(&mut String::new())?;
    }
    for target in [PROC, DEV] {
        unmount(target, UnmountFlags::DETACH)?;
        fs::remove_dir(target)?;
    }
    Ok(())
}
