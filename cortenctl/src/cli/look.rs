//! Verbs that look at nodes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{Output, Short};
use crate::units::parse_duration;

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
    /// All 48 numbers of the API, in kB; four are numbers of huge pages
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
    /// Go on as messages come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only messages that come from now on; goes with --follow
    #[arg(long, requires = "follow")]
    pub(crate) tail: bool,
    /// What the boot before this one left
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
    /// Go on as lines come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines; -1 is all there are
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..))]
    pub(crate) tail: i32,
    #[command(flatten)]
    pub(crate) kubernetes: Kubernetes,
    /// What the boot before this one left; `kernel` is its dmesg
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// Which containers are meant.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Kubernetes {
    /// Kubernetes' containers instead of the node's own
    #[arg(short, long)]
    pub(crate) kubernetes: bool,
}

/// `events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Begin with the last N that are kept; -1 is all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..), conflicts_with_all = ["since", "duration"])]
    pub(crate) tail: i32,
    /// Begin after the event with this id
    #[arg(long, value_name = "ID", conflicts_with = "duration")]
    pub(crate) since: Option<String>,
    /// Begin with those of the last 5m, 1h, ...
    #[arg(long, value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Only those of one action, by the id its answer gave
    #[arg(long, value_name = "ID")]
    pub(crate) actor_id: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `service`.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// The service; without it all are listed
    pub(crate) id: Option<String>,
    /// What to do with it
    #[arg(value_enum, default_value = "status")]
    pub(crate) action: ServiceAction,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// What to do with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceAction {
    /// Show it
    Status,
    /// Start it
    Start,
    /// Stop it
    Stop,
    /// Stop and start it
    Restart,
}

/// `get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The type, by any of its names
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// One resource; without it all are listed
    pub(crate) id: Option<String>,
    /// Where to look instead of the type's own namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Go on as resources change
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
    /// Show them every second, until this is ended
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Resident memory
    Rss,
    /// Time on the processor
    Cpu,
}

/// `cgroups`.
#[derive(Debug, Args)]
pub(crate) struct Cgroups {
    /// Which columns
    #[arg(long, value_enum, default_value = "memory")]
    pub(crate) preset: Preset,
    /// Names of groups as the kernel has them; they always are
    #[arg(long, hide = true)]
    pub(crate) skip_cri_resolve: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Columns of `cgroups`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Time on the processors
    Cpu,
    /// Which processors
    Cpuset,
    /// Disks
    Io,
    /// Memory and its limits
    Memory,
    /// Processes by name
    Process,
    /// How long was waited for something
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
    /// Exact numbers
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
    /// Ask this time server instead of the node's first
    #[arg(short, long, value_name = "SERVER")]
    pub(crate) check: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `health`.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// How long the cluster has to become healthy
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = parse_duration)]
    pub(crate) wait_timeout: Duration,
    /// Nodes of the control plane to check; without any name only the nodes that are called
    #[arg(long, alias = "init-node", value_delimiter = ',', value_name = "HOST")]
    pub(crate) control_plane_nodes: Vec<String>,
    /// Workers to check; without any name only the nodes that are called
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub(crate) worker_nodes: Vec<String>,
    /// Where Kubernetes answers; taken and not used, as there are no checks of it yet
    #[arg(long, hide = true, value_name = "URL", default_value = "")]
    pub(crate) k8s_endpoint: String,
    /// The node that is called asks the others; with =false each makes the checks of itself
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) server: bool,
}

/// `image`.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// Whose images
    #[arg(long, value_enum, global = true, hide = true, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
    #[command(subcommand)]
    pub(crate) verb: ImageVerb,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// List images
    #[command(visible_aliases = ["ls", "l"])]
    List(ImageList),
    /// Have a node get an image
    #[command(visible_alias = "p")]
    Pull(ImageName),
    /// Send a node the images of an archive
    Import(ImageFile),
    /// Remove an image from a node
    #[command(visible_alias = "rm")]
    Remove(ImageName),
}

/// `image list`.
#[derive(Debug, Args)]
pub(crate) struct ImageList {
    /// Whose images
    #[arg(long, value_enum, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `image pull` and `image remove`.
#[derive(Debug, Args)]
pub(crate) struct ImageName {
    /// The image, as registry.example/name:tag
    pub(crate) image: String,
    /// Whose image
    #[arg(long, value_enum, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
}

/// `image import`.
#[derive(Debug, Args)]
pub(crate) struct ImageFile {
    /// An OCI archive, or what `docker save` writes
    pub(crate) file: PathBuf,
    /// Whose images they become
    #[arg(long, value_enum, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
}

/// Whose images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageNamespace {
    /// Those of the node's own containers
    System,
    /// Those of Kubernetes
    Cri,
}

/// `inspect`.
#[derive(Debug, Subcommand)]
pub(crate) enum Inspect {
    /// What the node's controllers read and write, as a graph for Graphviz
    Dependencies(Dependencies),
}

/// `inspect dependencies`.
#[derive(Debug, Args)]
pub(crate) struct Dependencies {
    /// With the resources there are, each with its id
    #[arg(long)]
    pub(crate) with_resources: bool,
}
