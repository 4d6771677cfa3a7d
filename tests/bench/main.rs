//! `make bench`: what depends on the machine it is measured on, beside a
//! Debian that does as little.
//!
//! Owns: `docs/bench.md` and files under `target/bench`. Never does: fail
//! because a number is bad; it prints the limit next to it. Talks to: the
//! images in `_out`, QEMU, and the package mirror the host's apt is configured
//! for (once, for the Debian image); `cargo bench`, for what needs no machine.
//! On a laptop: `make image`, then `make bench`, or
//! `cargo run -p tests --bin bench -- --only coldplug`.

mod builds;
mod coldplug;
mod debian;
mod document;
mod measure;
mod programs;
mod report;

use std::fs;
use std::process::ExitCode;

use ::tests::workspace;
use clap::{Parser, ValueEnum};

use document::Section;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Boot time, memory and sizes
    System,
    /// The time udevd takes for the devices that are there
    Coldplug,
    /// What `cargo bench` measures
    Programs,
    /// A disk image after a change of one line
    Rebuild,
    /// A disk image from nothing but downloads; half an hour, so only when it is named
    Cold,
}

#[derive(Parser)]
#[command(
    version,
    about = "Boot time, memory, sizes and devices beside a minimal Debian, and programs by themselves"
)]
struct Arguments {
    /// Measure only this; may be repeated. The document keeps its other sections
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Coldplugs of each device daemon; the median counts
    #[arg(long, default_value_t = 7)]
    coldplugs: usize,
    /// Boots of each image; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds a configured node is left alone before its memory is read
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Build the Debian image again
    #[arg(long)]
    fresh: bool,
    /// Leave out Debian, and with it coldplug
    #[arg(long)]
    alone: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let named = |part| arguments.only.contains(&part);
    let wanted = |part| named(part) || (arguments.only.is_empty() && part != Part::Cold);
    let directory = workspace::target().join("bench");
    let debian = if arguments.alone || !(wanted(Part::System) || wanted(Part::Coldplug)) {
        None
    } else {
        Some(debian::image(&directory, arguments.fresh)?)
    };
    let mut found = Vec::new();
    if wanted(Part::System) {
        let host = host();
        found.extend(with_host(system(arguments, debian.as_ref())?, &host));
    }
    if let Some(debian) = debian.as_ref().filter(|_| wanted(Part::Coldplug)) {
        let host = host();
        let section = coldplug::measure(debian, arguments.coldplugs.max(1))?;
        found.extend(with_host(vec![section], &host));
    }
    if wanted(Part::Programs) {
        let host = host();
        found.extend(with_host(programs::measure()?, &host));
    }
    if wanted(Part::Rebuild) {
        let host = host();
        found.extend(with_host(vec![builds::again(&directory)?], &host));
    }
    if wanted(Part::Cold) {
        let host = host();
        found.extend(with_host(vec![builds::cold(&directory)?], &host));
    }
    let path = workspace::root().join("docs/bench.md");
    let mut old = document::sections(&fs::read_to_string(&path)?);
    // A section that was renamed goes when everything is measured; what is measured only by name stays.
    old.retain(|section| !arguments.only.is_empty() || section.title == builds::COLD);
    let text = document::write(report::INTRODUCTION, &document::merged(old, found));
    print!("{text}");
    fs::write(path, text)?;
    Ok(())
}

fn system(arguments: &Arguments, debian: Option<&debian::Image>) -> anyhow::Result<Vec<Section>> {
    let sizes = measure::sizes();
    let mut boots = report::Boots::default();
    for round in 1..=arguments.rounds.max(1) {
        // In turns, so that a change of the host's mood meets both.
        let ours = measure::corten_boot()?;
        eprintln!("round {round}: Corten {ours:.1} s");
        boots.corten.push(ours);
        if let Some(image) = debian {
            let theirs = measure::debian_boot(&image.disk)?;
            eprintln!("round {round}: Debian {theirs:.1} s");
            boots.debian.push(theirs);
        }
    }
    let memory = measure::daemon_memory(arguments.idle);
    Ok(report::system(&boots, &memory, &sizes, debian))
}

/// Where it is measured, and what ran there before: a busy host makes every number worse.
fn host() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!("Host: {cpus} CPUs; its load was {load} when this began.")
}

fn with_host(mut sections: Vec<Section>, host: &str) -> Vec<Section> {
    for section in &mut sections {
        section.text = format!("{}\n\n{host}", section.text.trim_end());
    }
    sections
}
