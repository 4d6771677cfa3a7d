//! `make bench`: what depends on the machine it is measured on, beside a
//! Debian that does as little.
//!
//! Owns: `docs/bench.md` and files under `target/bench`. Never does: fail
//! because a number is bad; it prints the limit next to it. Talks to: the
//! images in `_out`, QEMU, and the package mirror the host's apt is configured
//! for (once, for the Debian image). On a laptop: `make image`, then `make
//! bench`, or `cargo run -p tests --bin bench -- --rounds 1`.

mod debian;
mod measure;
mod report;

use std::process::ExitCode;

use ::tests::workspace;
use clap::Parser;

#[derive(Parser)]
#[command(
    version,
    about = "Boot time, memory and sizes, beside a minimal Debian"
)]
struct Arguments {
    /// Boots of each image; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds a configured node is left alone before its memory is read
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Build the Debian image again
    #[arg(long)]
    fresh: bool,
    /// Leave out Debian
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
    let sizes = measure::sizes();
    let debian = if arguments.alone {
        None
    } else {
        Some(debian::image(
            &workspace::target().join("bench"),
            arguments.fresh,
        )?)
    };
    let mut boots = report::Boots::default();
    for round in 1..=arguments.rounds.max(1) {
        // In turns, so that a change of the host's mood meets both.
        let ours = measure::corten_boot()?;
        eprintln!("round {round}: Corten {ours:.1} s");
        boots.corten.push(ours);
        if let Some(image) = &debian {
            let theirs = measure::debian_boot(&image.disk)?;
            eprintln!("round {round}: Debian {theirs:.1} s");
            boots.debian.push(theirs);
        }
    }
    let memory = measure::daemon_memory(arguments.idle);
    let text = report::render(&boots, &memory, &sizes, debian.as_ref());
    print!("{text}");
    std::fs::write(workspace::root().join("docs/bench.md"), text)?;
    Ok(())
}
