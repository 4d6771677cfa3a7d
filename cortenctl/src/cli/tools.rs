//! Verbs that combine several calls, and shell completions and man pages.

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
    /// Print each source when it is requested
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Write the file without encryption; always on
    #[arg(long, hide = true)]
    pub(crate) no_encryption: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `dashboard`.
#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    /// Interval between two updates
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub(crate) update_interval: Duration,
}

/// `completion`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory to write to
    pub(crate) directory: PathBuf,
}
