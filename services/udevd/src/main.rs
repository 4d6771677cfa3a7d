//! The device daemon of the node.
//!
//! Owns: device nodes' permissions, the links in `/dev`, module loading by
//! modalias, and the database under `/run/udev` that libudev's clients read.
//! Never does: run programs, make the nodes of devices (devtmpfs does),
//! configure the network; it renames interfaces only when a rule file says so.
//! Talks to: the kernel (uevents, sysfs, modules); the supervisor, which it
//! tells when the devices that were there at start are settled.
//!
//! An event becomes properties, properties become a plan, a plan becomes
//! actions; each is a value, and `--plan` prints them. The built-in rules are
//! in `defaults`; rule files in udev's language come after them (`rules`) and
//! are read again when they change. Started under the name `modprobe` it loads the modules that
//! its arguments name or alias: the kernel calls that for what it misses
//! (a file system, a netfilter match), and the node has no other loader.
//!
//! On a laptop, without root, and changing nothing:
//! `udevd --plan /sys/class/block/sda`, `udevd --check --rules DIRECTORY`

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that fails shall fail")
)]

mod apply;
mod broadcast;
mod coldplug;
mod daemon;
mod database;
mod defaults;
mod disk;
mod dm;
mod encode;
mod event;
mod links;
mod modprobe_d;
mod modules;
mod monitor;
mod nodes;
mod notify;
mod partitions;
mod path;
mod plan;
mod probe;
mod queue;
mod reload;
mod rename;
mod rules;
#[cfg(test)]
mod storm;
mod sysfs;
#[cfg(test)]
mod testing;
mod usb;
mod watch;

use anyhow::Context as _;
use apply::{Handler, Roots};
use clap::Parser;
use rules::{Rules, Severity};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Handles the kernel's device events.
#[derive(Debug, Parser)]
#[command(name = "udevd", version)]
struct Options {
    /// The mount of sysfs; another than the kernel's only with --plan.
    #[arg(long, default_value = "/sys")]
    sys: PathBuf,
    /// The mount of devtmpfs.
    #[arg(long, default_value = "/dev")]
    dev: PathBuf,
    /// The database's directory.
    #[arg(long, default_value = "/run/udev")]
    run: PathBuf,
    /// A directory with rule files, instead of the usual ones; a file hides
    /// those of its name in directories that follow.
    #[arg(long, value_name = "DIRECTORY")]
    rules: Vec<PathBuf>,
    /// Print what is wrong with the rule files, and do nothing.
    #[arg(long)]
    check: bool,
    /// Events handled at once; one that loads a module may take seconds.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// Print what an `add` of this device would do, and do nothing.
    #[arg(long, value_name = "SYSPATH")]
    plan: Option<PathBuf>,
    /// Log every event.
    #[arg(long)]
    debug: bool,
}

fn main() -> ExitCode {
    // A daemon that lost one of its threads would seem to work.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let mut args = std::env::args_os().peekable();
    let name = args
        .peek()
        .and_then(|name| Path::new(name).file_name()?.to_str().map(str::to_owned));
    let result = match name.as_deref() {
        Some("modprobe") => modprobe(args.skip(1)),
        _ => run(&Options::parse_from(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", name.as_deref().unwrap_or("udevd"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let level = if options.debug {
        tracing::Level::DEBUG
    } else {
        tracing::Level::INFO
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
    let (dev, run) = (options.dev.clone(), options.run.clone());
    let roots = Roots {
        sys: options.sys.clone(),
        dev,
        run,
        proc: "/proc".into(),
    };
    let directories = match options.rules.as_slice() {
        [] => rules::DIRECTORIES.map(PathBuf::from).to_vec(),
        directories => directories.to_vec(),
    };
    match &options.plan {
        _ if options.check => check(&directories),
        Some(path) => plan(roots, &directories, path),
        None => daemon::run(roots, &directories, options.workers),
    }
}

fn check(directories: &[PathBuf]) -> anyhow::Result<()> {
    let (rules, problems) = Rules::load(directories);
    let mut out = std::io::stdout().lock();
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    let broken = problems.iter().filter(|p| p.severity == Severity::Broken);
    let (broken, count) = (broken.count(), rules.len());
    writeln!(out, "{count} rules, {broken} broken")?;
    anyhow::ensure!(
        broken == 0,
        "{broken} lines or files are not as udev(7) wants them"
    );
    Ok(())
}

fn plan(roots: Roots, directories: &[PathBuf], path: &Path) -> anyhow::Result<()> {
    let handler = Handler::new(roots);
    handler.set_rules(Rules::load(directories).0);
    let devpath = handler.sysfs().devpath(path);
    let devpath = devpath.with_context(|| format!("{} is no device", path.display()))?;
    let event = handler
        .sysfs()
        .event(&devpath)
        .context("read the device's uevent")?;
    let (_, actions) = handler.plan(&event);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{event}")?;
    for action in actions {
        writeln!(out, "{}", action.to_string().trim_end())?;
    }
    Ok(())
}

/// `modprobe -q -- NAME`, as the kernel calls it: options are skipped.
fn modprobe(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let loader = modules::Loader::new(Path::new("/sys"), modules::policy().into())?;
    for alias in args.filter(|arg| !arg.as_encoded_bytes().starts_with(b"-")) {
        loader.load(&alias.to_string_lossy())?;
    }
    Ok(())
}
