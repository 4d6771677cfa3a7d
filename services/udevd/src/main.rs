//! The device daemon of the node; as `modprobe`, its only module loader, for the kernel and for machined.
//!
//! Owns: permissions of device nodes, links in `/dev`, modules by modalias, names of interfaces, `/run/udev`.
//! Never: runs programs, creates device nodes (devtmpfs does), or configures the network.

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
mod net_name;
mod nodes;
mod partitions;
mod path;
mod plan;
mod pool;
mod probe;
mod queue;
mod reading;
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
    /// Mount point of sysfs; only --plan accepts another directory.
    #[arg(long, default_value = "/sys")]
    sys: PathBuf,
    /// Mount point of devtmpfs.
    #[arg(long, default_value = "/dev")]
    dev: PathBuf,
    /// The database's directory.
    #[arg(long, default_value = "/run/udev")]
    run: PathBuf,
    /// A directory with rule files, instead of the usual ones; a file hides
    /// those of its name in directories that follow.
    #[arg(long, value_name = "DIRECTORY")]
    rules: Vec<PathBuf>,
    /// Print the problems of the rule files, and exit.
    #[arg(long)]
    check: bool,
    /// Number of events handled at once; an event that loads a module may take seconds.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// Print the actions of an `add` event of this device, and exit.
    #[arg(long, value_name = "SYSPATH")]
    plan: Option<PathBuf>,
    /// Log every event.
    #[arg(long)]
    debug: bool,
}

fn main() -> ExitCode {
    // A panic in one thread aborts the process: a daemon that lost a worker would look healthy.
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
        _ => match args.nth(1) {
            Some(word) if word == "modprobe" => modprobe(args),
            _ => run(&Options::parse()),
        },
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
        None => {
            if let Err(error) = corten_sys::memory::keep_small() {
                eprintln!("udevd: cannot return unused memory to the kernel: {error}");
            }
            daemon::run(roots, &directories, options.workers)
        }
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
    anyhow::ensure!(broken == 0, "{broken} lines or files do not follow udev(7)");
    Ok(())
}

fn plan(roots: Roots, directories: &[PathBuf], path: &Path) -> anyhow::Result<()> {
    let handler = Handler::new(roots);
    handler.set_rules(Rules::load(directories).0);
    let devpath = handler.sysfs().devpath(path);
    let devpath = devpath.with_context(|| format!("{} is not a device", path.display()))?;
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

/// Arguments of `modprobe`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// No error for an unknown alias. The kernel sets it, because it asks for modules that may not exist.
    quiet: bool,
    name: String,
    parameters: Vec<String>,
}

impl Wanted {
    /// Parses `-q -- ALIAS`, the form the kernel uses, or `-- NAME [PARAMETER...]`.
    fn parse(words: impl Iterator<Item = OsString>) -> Option<Wanted> {
        let mut words = words
            .map(|word| word.to_string_lossy().into_owned())
            .peekable();
        let mut quiet = false;
        while let Some(option) = words.next_if(|word| word.starts_with('-') && word != "--") {
            quiet |= option == "-q" || option == "--quiet";
        }
        words.next_if(|word| word == "--");
        Some(Wanted {
            quiet,
            name: words.next()?,
            parameters: words.collect(),
        })
    }
}

fn modprobe(words: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let wanted = Wanted::parse(words).context("modprobe needs the name of a module")?;
    let loader = modules::Loader::new(Path::new("/sys"), modules::policy().into())?;
    if wanted.quiet {
        loader.load(&wanted.name)?;
    } else {
        let parameters: Vec<&str> = wanted.parameters.iter().map(String::as_str).collect();
        loader.load_named(&wanted.name, &parameters)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_requests_parse_from_the_kernel_and_the_config() {
        let parse = |words: &[&str]| Wanted::parse(words.iter().map(OsString::from));
        let wanted = |quiet, name: &str, parameters: &[&str]| {
            Some(Wanted {
                quiet,
                name: name.to_owned(),
                parameters: parameters.iter().map(|&text| text.to_owned()).collect(),
            })
        };
        assert_eq!(
            parse(&["-q", "--", "net-pf-10"]),
            wanted(true, "net-pf-10", &[])
        );
        let words = ["--", "nbd", "nbds_max=4", "-q"];
        assert_eq!(parse(&words), wanted(false, "nbd", &["nbds_max=4", "-q"]));
        assert_eq!(parse(&["--", "-b"]), wanted(false, "-b", &[]));
        assert_eq!(parse(&["-q", "--"]), None);
    }
}
