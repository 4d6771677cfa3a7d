//! The operator's client of the node API.
//!
//! Owns: the command line as one tree, the verbs that look at a node, and the exit codes (`corten_client::failure`).
//! Never: touches a node except through the API, holds state, or prints a secret except in a requested config.

mod cli;
mod interrupt;
mod lines;
mod untar;
mod verbs;

use std::process::ExitCode;

use corten_client::failure::{self, Failure};

fn main() -> ExitCode {
    match cli::command().try_get_matches() {
        Ok(matches) => failure::exit_code(cli::read(&matches).and_then(run)),
        Err(usage) => {
            // A closed pipe is no reason to fail after `--help`.
            usage.print().ok();
            u8::try_from(usage.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Connections have a thread of their own. They must answer a node's pings also while this thread
/// blocks on its output, such as on a pager.
fn run(cli: cli::Cli) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::call(format!("cannot start: {error}")))?;
    // These verbs remove by themselves what they have made, which takes longer.
    if matches!(cli.verb, cli::Verb::Cluster(_) | cli::Verb::Conformance(_)) {
        return runtime.block_on(verbs::run(cli));
    }
    runtime.block_on(interrupt::or_interrupted(verbs::run(cli)))
}
