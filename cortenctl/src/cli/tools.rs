//! Verbs that combine several calls or change manifests, and shell completions and man pages.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use corten_client::flags::Short;
use corten_client::units::parse_duration;
use corten_config::POD_ROLES;

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

/// `inject`.
#[derive(Debug, Subcommand)]
pub(crate) enum Inject {
    /// Give the pods of Kubernetes manifests an account at the node API; calls no node
    #[command(visible_alias = "tsa")]
    Serviceaccount(InjectAccount),
}

/// `inject serviceaccount`.
#[derive(Debug, Args)]
pub(crate) struct InjectAccount {
    /// The manifests; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Roles of the accounts; the machine config limits them
    #[arg(short, long, value_name = "ROLE", value_delimiter = ',', default_value = "os:reader",
          value_parser = PossibleValuesParser::new(POD_ROLES))]
    pub(crate) roles: Vec<String>,
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
