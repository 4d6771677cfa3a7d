//! The arguments of `apply-config`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use corten_client::flags::Short;
use corten_client::units::parse_duration;

/// `apply-config`.
#[derive(Debug, Args)]
pub struct ApplyConfig {
    /// The machine config; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Patch for the config: text, or @FILE; may be repeated
    #[arg(short = 'p', long, value_name = "PATCH", allow_hyphen_values = true)]
    pub(crate) config_patch: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
    /// The short form of `--insecure`.
    #[command(flatten)]
    pub short: Short,
}

/// How a machine config is applied.
#[derive(Debug, Clone, Copy, Args)]
pub struct How {
    /// How the node applies the config
    #[arg(short, long, value_enum, default_value = "auto")]
    pub(crate) mode: ApplyMode,
    /// Only print the changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --mode try: time until the node returns to the old config
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

/// How a node applies a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyMode {
    /// At once; the node reboots only to install itself
    Auto,
    /// The same as auto
    NoReboot,
    /// With a reboot
    Reboot,
    /// At the next reboot
    Staged,
    /// At once; reverted after --timeout
    Try,
}
