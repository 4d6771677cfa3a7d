//! Verbs that generate, patch, validate and apply machine configs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::flags::Short;
use corten_client::units::parse_duration;

use super::{GenCa, GenCrt, GenCsr, GenKey};

/// `gen`.
#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// Overwrite files
    #[arg(short, long, global = true, hide = true)]
    pub(crate) force: bool,
    #[command(subcommand)]
    pub(crate) verb: GenVerb,
}

/// What to generate.
#[derive(Debug, Subcommand)]
pub(crate) enum GenVerb {
    /// Write controlplane.yaml, worker.yaml and cortenconfig
    Config(Box<GenConfig>),
    /// Write the secrets of a new cluster, for --with-secrets
    Secrets(GenSecrets),
    /// Make a certificate authority: its key and its certificate
    Ca(GenCa),
    /// Make a key
    Key(GenKey),
    /// Make a certificate request for a key
    Csr(GenCsr),
    /// Sign a request: a client certificate
    Crt(GenCrt),
}

/// `gen config`.
#[derive(Debug, Args)]
pub(crate) struct GenConfig {
    /// The name of the cluster
    pub(crate) cluster: String,
    /// URL of the Kubernetes API, such as https://10.0.0.1:6443; its host is
    /// also the endpoint in the client config
    pub(crate) endpoint: String,
    /// Directory to write to [default: the current one]; with one --output-types, the file,
    /// or - for standard output
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Directory to write to, for any number of files
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Which files to write
    #[arg(
        short = 't',
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "TYPE",
        default_value = "controlplane,worker,cortenconfig"
    )]
    pub(crate) output_types: Vec<OutputType>,
    /// Additional names and addresses in the nodes' certificates
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) additional_sans: Vec<String>,
    /// The disk to install to
    #[arg(long, value_name = "DEVICE", default_value = "/dev/sda")]
    pub(crate) install_disk: String,
    /// Image of the installer [default: the node's own version]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) install_image: Option<String>,
    /// Version of Kubernetes, such as 1.34.1 [default: the node's choice]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,
    /// Source of the Kubernetes images: upstream, or the images that `mkimage --with-images` puts on the disk
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        default_value = "upstream",
        conflicts_with = "kubernetes_version"
    )]
    pub(crate) kubernetes_images: KubernetesImages,
    /// Version that the nodes are compatible with, such as v1.14
    #[arg(long, value_name = "VERSION")]
    pub(crate) talos_version: Option<String>,
    /// Version of the config format
    #[arg(
        long = "version",
        id = "config_version",
        hide = true,
        default_value = "v1alpha1"
    )]
    pub(crate) form: String,
    /// Let nodes find each other through a discovery service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) with_cluster_discovery: Option<bool>,
    /// Mirror of a registry such as docker.io; may be repeated
    #[arg(long, value_name = "HOST=URL")]
    pub(crate) registry_mirror: Vec<String>,
    /// The domain of the cluster's DNS
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    pub(crate) dns_domain: String,
    /// Patch for both configs: text, or @FILE; may be repeated
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch: Vec<String>,
    /// Patch for the config of control plane nodes, applied after --config-patch
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch_control_plane: Vec<String>,
    /// Patch for the config of workers, applied after --config-patch
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch_worker: Vec<String>,
    /// Secrets file of `gen secrets` [default: new secrets]
    #[arg(long, value_name = "FILE")]
    pub(crate) with_secrets: Option<PathBuf>,
    /// Overwrite files; their secrets are lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// A file of `gen config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputType {
    /// The config of control plane nodes
    #[value(name = "controlplane")]
    ControlPlane,
    /// The config of workers
    Worker,
    /// The client config
    #[value(name = "cortenconfig", alias = "talosconfig")]
    ClientConfig,
}

/// Source of the Kubernetes images in a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubernetesImages {
    /// Images of the upstream projects
    Upstream,
    /// Images in the node's image cache
    Bundled,
}

/// `gen secrets`.
#[derive(Debug, Args)]
pub(crate) struct GenSecrets {
    /// The file to write
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "FILE",
        default_value = "secrets.yaml"
    )]
    pub(crate) output_file: PathBuf,
    /// Extract the secrets of a control plane node's config instead of making new ones
    #[arg(long, value_name = "FILE")]
    pub(crate) from_controlplane_config: Option<PathBuf>,
    /// Version that the nodes are compatible with, such as v1.14
    #[arg(long, value_name = "VERSION")]
    pub(crate) talos_version: Option<String>,
    /// Overwrite the file; its secrets are lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `machineconfig`.
#[derive(Debug, Subcommand)]
pub(crate) enum Machineconfig {
    /// The same as `gen config`
    Gen(Box<GenConfig>),
    /// Write a config with patches applied; comments are not kept
    Patch(PatchConfig),
}

/// `machineconfig patch`.
#[derive(Debug, Args)]
pub(crate) struct PatchConfig {
    /// The config; - is standard input
    pub(crate) file: PathBuf,
    /// Documents to merge or a JSON patch: text, or @FILE; applied in order
    #[arg(short, long, value_name = "PATCH", required = true)]
    pub(crate) patch: Vec<String>,
    /// The file to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `validate`.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// The config; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Platform of the node
    #[arg(short, long, value_enum, default_value = "metal")]
    pub(crate) mode: ValidateMode,
    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Platform of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ValidateMode {
    /// A machine that is installed to a disk
    Metal,
    /// A machine whose image is its disk
    Cloud,
    /// A container
    Container,
}

/// `apply-config`.
#[derive(Debug, Args)]
pub(crate) struct ApplyConfig {
    /// The machine config; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Patch for the config: text, or @FILE; may be repeated
    #[arg(short = 'p', long, value_name = "PATCH")]
    pub(crate) config_patch: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// How a machine config is applied.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct How {
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
pub(crate) enum ApplyMode {
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
