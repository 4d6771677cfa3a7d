//! Verbs that read from nodes.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::flags::{Output, Short};
use corten_client::units::parse_duration;

/// `version`.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Only this client; calls no node
    #[arg(long)]
    pub(crate) client: bool,
    /// Only the tags
    #[arg(id = "tags", long = "short")]
    pub(crate) tags: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `memory`.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    /// All 48 fields of the API in kB; four are counts of huge pages
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `dmesg`.
#[derive(Debug, Args)]
pub(crate) struct Dmesg {
    /// Follow new messages
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only new messages; needs --follow
    #[arg(long, requires = "follow")]
    pub(crate) tail: bool,
    /// The log of the previous boot
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The service, as `service` lists it
    pub(crate) id: String,
    /// Follow new lines
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines; -1 is all
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..))]
    pub(crate) tail: i32,
    #[command(flatten)]
    pub(crate) kubernetes: Kubernetes,
    /// The log of the previous boot; the service `kernel` is its dmesg
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// The namespace of containers.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Kubernetes {
    /// Containers of Kubernetes instead of the node's own
    #[arg(short, long)]
    pub(crate) kubernetes: bool,
}

/// `events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Start with the last N stored events; -1 is all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..), conflicts_with_all = ["since", "duration"])]
    pub(crate) tail: i32,
    /// Start after the event with this ID
    #[arg(long, value_name = "ID", conflicts_with = "duration")]
    pub(crate) since: Option<String>,
    /// Start with the events of the last 5m, 1h, ...
    #[arg(long, value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Only events of the action with this actor ID
    #[arg(long, value_name = "ID")]
    pub(crate) actor_id: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `service`.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// The service [default: all services]
    pub(crate) id: Option<String>,
    /// What to do with the service
    #[arg(value_enum, default_value = "status")]
    pub(crate) action: ServiceAction,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// An action on a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceAction {
    /// Show the service
    Status,
    /// Start the service
    Start,
    /// Stop the service
    Stop,
    /// Stop and start the service
    Restart,
}

/// `get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Resource type, by any of its names
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// ID of one resource [default: all resources]
    pub(crate) id: Option<String>,
    /// Namespace [default: the namespace of the type]
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Follow changes of the resources
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `processes`.
#[derive(Debug, Args)]
pub(crate) struct Processes {
    /// The column to sort by, largest first
    #[arg(short, long, value_enum, default_value = "rss")]
    pub(crate) sort: Sort,
    /// Refresh every second
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Sort key of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Resident memory
    Rss,
    /// CPU time
    Cpu,
}

/// `cgroups`.
#[derive(Debug, Args)]
pub(crate) struct Cgroups {
    /// Columns to show
    #[arg(long, value_enum, default_value = "memory")]
    pub(crate) preset: Preset,
    /// Show the kernel's names of groups; always on
    #[arg(long, hide = true)]
    pub(crate) skip_cri_resolve: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Columns of `cgroups`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// CPU time
    Cpu,
    /// Allowed CPUs and memory nodes
    Cpuset,
    /// Disk I/O
    Io,
    /// Memory and its limits
    Memory,
    /// Processes by name
    Process,
    /// Pressure stall information
    Psi,
    /// Swap
    Swap,
}

/// `diskfree`.
#[derive(Debug, Args)]
pub(crate) struct DiskFree {
    /// Only this volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: Option<String>,
    /// Exact sizes in bytes
    #[arg(short, long)]
    pub(crate) bytes: bool,
    /// Inodes instead of bytes
    #[arg(short, long)]
    pub(crate) inodes: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `containers` and `stats`.
#[derive(Debug, Args)]
pub(crate) struct Containers {
    #[command(flatten)]
    pub(crate) kubernetes: Kubernetes,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `time`.
#[derive(Debug, Args)]
pub(crate) struct Time {
    /// Time server to query [default: the node's first]
    #[arg(short, long, value_name = "SERVER")]
    pub(crate) check: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `health`.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// Timeout for the cluster to become healthy
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = parse_duration)]
    pub(crate) wait_timeout: Duration,
    /// Control plane nodes to check [default: all nodes that the control plane node knows; a worker checks itself]
    #[arg(long, alias = "init-node", value_delimiter = ',', value_name = "HOST")]
    pub(crate) control_plane_nodes: Vec<String>,
    /// Workers to check [default: as for --control-plane-nodes]
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub(crate) worker_nodes: Vec<String>,
    /// URL of the Kubernetes API that the node asks [default: any API server that the node knows]
    #[arg(
        long,
        value_name = "URL",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) k8s_endpoint: String,
    /// The called node checks the others; with =false each node checks itself
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) server: bool,
}

/// `inspect`.
#[derive(Debug, Subcommand)]
pub(crate) enum Inspect {
    /// Graph of controllers and their resources, for Graphviz
    Dependencies(Dependencies),
}

/// `inspect dependencies`.
#[derive(Debug, Args)]
pub(crate) struct Dependencies {
    /// Include the existing resources with their IDs
    #[arg(long)]
    pub(crate) with_resources: bool,
}
