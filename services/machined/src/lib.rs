//! Process 1 of a node and the only owner of its state; its parts are crates below `node/`.
//!
//! Owns: the boot, what happens until its end (`machine/`), the end (`finish.rs`), installations and upgrades.
//! Never: waits for a service or for work that may hang, loads modules, keeps logs, or listens on the network.

mod boot;
mod finish;
mod image_cache;
mod install;
mod machine;
mod machine_files;
mod state;
mod udev_rules;
mod upgrade;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use corten_base::cmdline::Cmdline;
use corten_base::mode::{Ability, Mode};
use corten_base::runtime::{BLOCKING_THREADS, WORKERS};
use corten_base::{console, container_proc, mounts, panics};
use finish::Ending;

/// Entry point of the daemon; `args` starts with the program's name. As process 1 it never returns.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    if args.nth(1).as_deref() == Some(OsStr::new("--print")) {
        print_plan();
        return ExitCode::SUCCESS;
    }
    if std::process::id() != 1 {
        eprintln!("machined: runs only as process 1; `machined --print` shows its boot plan");
        return ExitCode::from(2);
    }
    if Mode::now().can(Ability::KernelLog) {
        console::open(Path::new("/dev/kmsg"));
    } else {
        console::open_none();
    }
    panics::install_hook();
    // A panic that left this function would panic the kernel; caught here it is an orderly restart.
    match panics::caught_here(live) {
        Ok(Ok(ending)) => finish::finish(&ending),
        Ok(Err(why)) => finish::fatal(&why),
        Err(panicked) => finish::fatal(&format!("machined: {panicked}")),
    }
}

/// Runs the node on a runtime. No task runs after it returns.
fn live() -> Result<Ending, String> {
    if !Mode::now().can(Ability::KernelParameters) {
        container_proc::replace_kernels_files()?;
    }
    let cmdline = Cmdline::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("machined")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let outcome = runtime.block_on(panics::caught(machine::live(cmdline)));
    // The supervisor must not reap processes at the same time as `finish`, and no task may start a process any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        Ok(ended) => ended.map_err(|fatal| fatal.to_string()),
        Err(panicked) => Err(format!("machined: {panicked}")),
    }
}

fn print_plan() {
    for (number, phase) in boot::plan(Mode::now()).iter().enumerate() {
        println!("phase {}  {phase}", number + 1);
    }
    print!("\n{}", mounts::describe());
    let mut specs = corten_supervisor::table(corten_supervisor::ApiMode::Secure);
    specs.push(corten_supervisor::trustd());
    print!("\n{}", corten_supervisor::describe(&specs));
    match corten_controllers::graph() {
        Ok(graph) => print!("\n{graph}"),
        Err(error) => eprintln!("machined: {error}"),
    }
}
