//! Verbs that put several calls together, and what shells and readers get.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;

use super::{Short, parse_duration};

/// `support`.
#[derive(Debug, Args)]
pub(crate) struct Support {
    /// The file to write
    #[arg(short = 'O', long, value_name = "FILE", default_value = "support.zip")]
    pub(crate) output: PathBuf,
    /// Overwrite the file
    #[arg(long)]
    pub(crate) force: bool,
    /// Say of each thing when it is asked for
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Write it as it is; it always is
    #[arg(long, hide = true)]
    pub(crate) no_encryption: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `dashboard`.
#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    /// How often nodes are asked
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub(crate) update_interval: Duration,
}

/// `completion`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory to write them to
    pub(crate) directory: PathBuf,
}
