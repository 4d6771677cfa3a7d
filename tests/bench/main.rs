//! `make bench`: measurements that depend on the machine, beside a minimal Debian system.
//!
//! Owns: `docs/bench.md`, written after each part, and files under `target/bench`.
//! Never: hides a bad number. Each limit stands next to its number, and an exceeded one makes the program fail.

mod builds;
mod client;
mod cloud;
mod cluster;
mod coldplug;
mod debian;
mod document;
mod functions;
mod measure;
mod programs;
mod report;
mod upgrade;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ::tests::workspace;
use clap::{Parser, ValueEnum};

use document::Section;

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Boot time, memory and sizes
    System,
    /// The time from an address to the config, in a cloud whose metadata service answers at once
    Cloud,
    /// The time and the writes of an upgrade
    Upgrade,
    /// A cluster of one node beside kubeadm; builds the images of Kubernetes, so it runs only on request
    Cluster,
    /// Records the functions that a node uses, by which the builder orders them; needs Kubernetes, too
    Functions,
    /// The time that udevd needs for the existing devices
    Coldplug,
    /// The benchmarks of `cargo bench`
    Programs,
    /// The first byte of the client's help, for every verb
    Client,
    /// A disk image after a change of one line
    Rebuild,
    /// A disk image from downloads alone; takes half an hour, so it runs only on request
    Cold,
}

#[derive(Parser)]
#[command(
    version,
    about = "Boot time, memory, sizes and devices beside a minimal Debian, and programs by themselves; \
             writes docs/bench.md and fails when a limit is not kept"
)]
struct Arguments {
    /// Measure only this part; may be repeated. The page keeps its other sections
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Number of coldplugs of each device daemon; the result is the median
    #[arg(long, default_value_t = 7)]
    coldplugs: usize,
    /// Number of boots of each image; the result is the median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that a configured node idles before its memory is read: containerd's code returns five minutes after its start
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Build the Debian image again
    #[arg(long)]
    fresh: bool,
    /// Leave out Debian and the parts that need it
    #[arg(long)]
    alone: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the measurements; returns whether every limit is kept.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let wanted = |part: &Part| match arguments.only.as_slice() {
        [] => ![Part::Cold, Part::Cluster, Part::Functions].contains(part),
        only => only.contains(part),
    };
    let all = Part::value_variants().iter().copied();
    let parts: Vec<Part> = all.filter(wanted).collect();
    let directory = workspace::target().join("bench");
    let beside = [Part::System, Part::Cluster, Part::Coldplug];
    let debian = if arguments.alone || !parts.iter().any(|part| beside.contains(part)) {
        None
    } else {
        Some(debian::image(&directory, arguments.fresh)?)
    };
    let path = workspace::root().join("docs/bench.md");
    let mut document = document::sections(&fs::read_to_string(&path)?);
    let (mut measured, mut kept) = (BTreeSet::new(), true);
    for part in parts {
        let host = host();
        let mut found = sections(part, arguments, debian.as_ref(), &directory)?;
        for section in &mut found {
            section.text = format!("{}\n\n{host}", section.text.trim_end());
        }
        measured.extend(found.iter().map(|section| section.title.clone()));
        document = document::merged(document, found.clone());
        // Written after each part, because the next one may fail.
        fs::write(&path, document::write(report::INTRODUCTION, &document))?;
        for section in &found {
            for line in report::not_kept(section) {
                eprintln!("bench: a limit is not kept: {}: {line}", section.title);
                kept = false;
            }
        }
    }
    if arguments.only.is_empty() {
        // A full run removes sections that were renamed; sections measured only on request stay.
        let on_request = [builds::COLD, cluster::TITLE, functions::TITLE];
        document.retain(|one| {
            measured.contains(&one.title) || on_request.contains(&one.title.as_str())
        });
    }
    let text = document::write(report::INTRODUCTION, &document);
    print!("{text}");
    fs::write(path, text)?;
    Ok(kept)
}

/// The sections of one part.
fn sections(
    part: Part,
    arguments: &Arguments,
    debian: Option<&debian::Image>,
    directory: &Path,
) -> anyhow::Result<Vec<Section>> {
    match part {
        Part::System => system(arguments, debian),
        Part::Cloud => Ok(vec![cloud::measure(arguments.rounds.max(1))?]),
        Part::Upgrade => Ok(vec![upgrade::measure(arguments.rounds.max(1))?]),
        Part::Cluster => {
            let measure = |debian| cluster::measure(debian, directory, arguments.idle);
            debian.map(measure).into_iter().collect()
        }
        Part::Coldplug => {
            let measure = |debian| coldplug::measure(debian, arguments.coldplugs.max(1));
            debian.map(measure).into_iter().collect()
        }
        Part::Functions => Ok(vec![functions::record(arguments.idle)?]),
        Part::Programs => programs::measure(),
        Part::Client => Ok(vec![client::measure()?]),
        Part::Rebuild => Ok(vec![builds::again(directory)?]),
        Part::Cold => Ok(vec![builds::cold(directory)?]),
    }
}

fn system(arguments: &Arguments, debian: Option<&debian::Image>) -> anyhow::Result<Vec<Section>> {
    let sizes = measure::sizes();
    let mut boots = report::Boots::default();
    for round in 1..=arguments.rounds.max(1) {
        // The systems take turns, so that a change of the host's load affects both.
        let ours = measure::corten_boot()?;
        eprintln!("round {round}: Corten {ours:.1} s");
        boots.corten.push(ours);
        if let Some(image) = debian {
            let theirs = measure::debian_boot(&image.disk)?;
            eprintln!("round {round}: Debian {theirs:.1} s");
            boots.debian.push(theirs);
        }
    }
    let memory = measure::daemon_memory(arguments.idle)?;
    Ok(report::system(&boots, &memory, &sizes, debian))
}

/// A description of the host and its load before the measurement: a busy host makes every number
/// worse.
fn host() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!("Host: {cpus} CPUs; its load was {load} when this began.")
}
