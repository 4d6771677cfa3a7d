//! The first program of the initramfs: assembles the root file system and executes machined.
//!
//! Owns: the machine until machined runs: mounts, the lower bound of the clock, the root and its layers, `switch_root`.
//! Never: loads modules, uses disks or the network, reads a machine config, or stays in memory.

mod beside;
mod date;
mod failure;
mod log;
mod mounts;
mod program;
mod root;
mod signers;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use corten_sys::{clock, console, host, mount, sysctl};
use failure::Failure;
use log::Log;

/// Mount point of the root file system before it becomes `/`.
const NEW_ROOT: &str = "/root";
/// Path of machined in the new root.
const NEXT: &str = "/usr/bin/init";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new("--print")) {
        print!("{}", mounts::table());
        return ExitCode::SUCCESS;
    }
    if std::process::id() != 1 {
        eprintln!(
            "init: runs only as process 1, started by the kernel; `init --print` shows its mounts"
        );
        return ExitCode::from(2);
    }
    std::panic::set_hook(Box::new(|panic| {
        failure::end(&Failure::new(
            format!("init has panicked: {panic}"),
            failure::REPORT,
        ));
    }));
    let failure = match boot() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    failure::end(&failure)
}

/// Boots. Returns only if a step failed.
fn boot() -> Result<std::convert::Infallible, Failure> {
    mounts::mount_all()?;
    // A machine may have no console. Output is then lost, but not the kernel log.
    if console::attach(Path::new("/dev/console")).is_err() {
        let _ = console::attach(Path::new("/dev/null"));
    }
    // Without it the kernel drops lines of a verbose boot.
    let _ = sysctl::write(Path::new("/proc/sys"), "kernel.printk_devkmsg", "on");
    let log = Log::open();
    let date = date::of_image(Path::new("/"));
    let signers = signers::of_image(Path::new("/"));
    raise_clock(date, &log);
    for text in beside::complaints(Path::new("/")) {
        log.complain(&text);
    }
    let parts = root::Parts::find(Path::new("/"), |text| log.complain(text))?;
    log.say(&format!("root file system: {parts}"));
    root::assemble(&parts, Path::new(NEW_ROOT), NEXT, |text| log.complain(text))?;
    mounts::move_all(Path::new(NEW_ROOT))?;
    mount::remove_same_device(Path::new("/"));
    mount::switch_root(Path::new(NEW_ROOT)).map_err(|error| {
        Failure::new(
            format!("cannot switch to the root file system: {error}"),
            failure::REPORT,
        )
    })?;
    if !host::has_random_numbers() {
        log.say(
            "waiting for random numbers: the machine has no source of them, so the kernel generates them",
        );
        host::await_random_numbers();
    }
    log.say("handing over to machined");
    Err(hand_over(date, signers))
}

/// Raises the clock to the image's date: a machine without a clock battery starts in 1970, and the image is not from
/// the future.
fn raise_clock(date: Option<SystemTime>, log: &Log) {
    let Some(date) = date else {
        return log.complain("the image has no date; the clock is not checked");
    };
    match clock::raise(date) {
        Ok(true) => log.say("the clock was behind the image's date and is set to it"),
        Ok(false) => {}
        Err(error) => log.complain(&format!(
            "the clock is behind the image's date and cannot be set: {error}"
        )),
    }
}

/// Executes machined. Its environment has only values that machined cannot find out itself.
fn hand_over(date: Option<SystemTime>, signers: Option<String>) -> Failure {
    let mut next = Command::new(NEXT);
    next.arg0("/sbin/init").env_clear().env("PATH", "/usr/bin");
    if let Some(date) = date.and_then(date::text) {
        next.env(date::VARIABLE, date);
    }
    if let Some(signers) = signers {
        next.env(signers::VARIABLE, signers);
    }
    if let Ok(terminal) = std::env::var("TERM") {
        next.env("TERM", terminal);
    }
    let error = next.exec();
    let size = fs::metadata(NEXT).map_or(0, |data| data.len());
    Failure::new(
        format!("cannot run {NEXT} ({size} bytes): {error}"),
        failure::REWRITE,
    )
}
