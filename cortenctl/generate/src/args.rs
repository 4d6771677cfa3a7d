//! The arguments of the verbs.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `gen`.
#[derive(Debug, Args)]
pub struct Gen {
    /// Overwrite files
    #[arg(short, long, global = true, hide = true)]
    pub(crate) force: bool,
    /// The verb.
    #[command(subcommand)]
    pub verb: GenVerb,
}

/// The verbs of `gen`.
#[derive(Debug, Subcommand)]
pub enum GenVerb {
    /// Write controlplane.yaml, worker.yaml and cortenconfig
    Config(Box<GenConfig>),
    /// Write the secrets of a new cluster, for --with-secrets
    Secrets(GenSecrets),
    /// Make a certificate authority (CA): its key and its certificate
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
pub struct GenConfig {
    /// The name of the cluster
    pub cluster: String,
    /// URL of the Kubernetes API, such as https://10.0.0.1:6443; its host is
    /// also the endpoint in the client config
    pub endpoint: String,
    /// Directory to write to [default: the current one]; with one --output-types, the file,
    /// or - for standard output
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Directory to write to, for any number of files
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub output_dir: Option<PathBuf>,
    /// Which files to write
    #[arg(
        short = 't',
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "TYPE",
        default_value = "controlplane,worker,cortenconfig"
    )]
    pub output_types: Vec<OutputType>,
    /// Additional names and addresses in the nodes' certificates
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub additional_sans: Vec<String>,
    /// The disk to install to
    #[arg(long, value_name = "DEVICE", default_value = "/dev/sda")]
    pub install_disk: String,
    /// Image of the installer [default: the node's own version]
    #[arg(long, value_name = "IMAGE")]
    pub install_image: Option<String>,
    /// Version of Kubernetes, such as 1.36.3 [default: no images, and the node runs no Kubernetes]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<String>,
    /// Source of the Kubernetes images: upstream, or the images that `mkimage --with-images` puts on the disk
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        default_value = "upstream",
        conflicts_with = "kubernetes_version"
    )]
    pub kubernetes_images: KubernetesImages,
    /// Version that the nodes are compatible with, such as v1.14
    #[arg(long, value_name = "VERSION")]
    pub talos_version: Option<String>,
    /// Version of the config format
    #[arg(
        long = "version",
        id = "config_version",
        hide = true,
        default_value = "v1alpha1"
    )]
    pub form: String,
    /// Let nodes find each other through a discovery service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub with_cluster_discovery: Option<bool>,
    /// Mirror of a registry such as docker.io; may be repeated
    #[arg(long, value_name = "HOST=URL")]
    pub registry_mirror: Vec<String>,
    /// The domain of the cluster's DNS
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    pub dns_domain: String,
    /// Patch for both configs: text, or @FILE; may be repeated
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub config_patch: Vec<String>,
    /// Patch for the config of control plane nodes, applied after --config-patch
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub config_patch_control_plane: Vec<String>,
    /// Patch for the config of workers, applied after --config-patch
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub config_patch_worker: Vec<String>,
    /// Secrets file of `gen secrets` [default: new secrets]
    #[arg(long, value_name = "FILE")]
    pub with_secrets: Option<PathBuf>,
    /// Overwrite files; their secrets are lost
    #[arg(short, long)]
    pub force: bool,
}

/// A file of `gen config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputType {
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
pub enum KubernetesImages {
    /// Images of the upstream projects
    Upstream,
    /// Images in the node's image cache
    Bundled,
}

/// `gen secrets`.
#[derive(Debug, Args)]
pub struct GenSecrets {
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
    /// Take the CAs and the service account key of a kubeadm cluster, from a copy of /etc/kubernetes/pki
    #[arg(
        short = 'p',
        long,
        value_name = "DIR",
        conflicts_with = "from_controlplane_config"
    )]
    pub(crate) from_kubernetes_pki: Option<PathBuf>,
    /// Bootstrap token of the kubeadm cluster [default: a new one]
    #[arg(
        short = 't',
        long,
        value_name = "TOKEN",
        requires = "from_kubernetes_pki"
    )]
    pub(crate) kubernetes_bootstrap_token: Option<String>,
    /// Version that the nodes are compatible with, such as v1.14
    #[arg(long, value_name = "VERSION")]
    pub(crate) talos_version: Option<String>,
    /// Overwrite the file; its secrets are lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `machineconfig`.
#[derive(Debug, Subcommand)]
pub enum Machineconfig {
    /// The same as `gen config`
    Gen(Box<GenConfig>),
    /// Write a config with patches applied; comments are not kept
    Patch(PatchConfig),
}

/// `machineconfig patch`.
#[derive(Debug, Args)]
pub struct PatchConfig {
    /// The config; - is standard input
    pub(crate) file: PathBuf,
    /// Documents to merge or a JSON patch: text, or @FILE; applied in order
    #[arg(
        short,
        long,
        value_name = "PATCH",
        required = true,
        allow_hyphen_values = true
    )]
    pub(crate) patch: Vec<String>,
    /// The file to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `validate`.
#[derive(Debug, Args)]
pub struct Validate {
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
pub enum ValidateMode {
    /// A machine that is installed to a disk
    Metal,
    /// A machine whose image is its disk
    Cloud,
    /// A container
    Container,
}

/// `gen ca`.
#[derive(Debug, Args)]
pub struct GenCa {
    /// Organization in the certificate, and name of the files
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: String,
    /// Lifetime of the certificate in hours
    #[arg(long, default_value_t = 87_600, value_parser = hours())]
    pub(crate) hours: u64,
    /// Overwrite files; their key is lost
    #[arg(short, long)]
    pub force: bool,
}

/// `gen key`.
#[derive(Debug, Args)]
pub struct GenKey {
    /// Name of the file without the suffix .key
    #[arg(long)]
    pub(crate) name: String,
    /// Overwrite the file; its key is lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `gen csr`.
#[derive(Debug, Args)]
pub struct GenCsr {
    /// The key of the request, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// IP address in the certificate; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Vec<IpAddr>,
    /// Roles in the certificate, at most two
    #[arg(long, value_delimiter = ',', default_value = "os:admin")]
    pub(crate) roles: Vec<String>,
    /// Overwrite the file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `gen crt`.
#[derive(Debug, Args)]
pub struct GenCrt {
    /// The CA that signs: files NAME.crt and NAME.key
    #[arg(long, value_name = "NAME")]
    pub(crate) ca: PathBuf,
    /// The request, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) csr: PathBuf,
    /// Name of the file without the suffix .crt
    #[arg(long)]
    pub(crate) name: String,
    /// Lifetime of the certificate in hours
    #[arg(long, default_value_t = 24, value_parser = hours())]
    pub(crate) hours: u64,
    /// Overwrite the file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// At most a thousand years: certificates end in the year 9999.
fn hours() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=8_760_000)
}
