//! The arguments of the verbs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::flags::Output;
use corten_client::units::parse_duration;
use corten_generate::args::KubernetesImages;

use crate::plan::Subnet;

/// `cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Create a cluster of containers or virtual machines, and wait until it is ready
    Create(Box<ClusterCreate>),
    /// Stop a cluster and remove everything that `create` made
    Destroy(ClusterDestroy),
    /// List the clusters, or the nodes of one
    Show(ClusterShow),
    /// A node's processes
    #[command(hide = true)]
    RunNode(ClusterNode),
    /// A node's processes
    #[command(hide = true)]
    EnterNode(ClusterNode),
}

/// How nodes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Provisioner {
    /// Containers in kernel namespaces; needs root, and no other program
    Namespaces,
    /// Virtual machines; needs root, QEMU and its UEFI firmware
    Qemu,
    /// Containers of Docker
    Docker,
}

/// A cluster on this machine.
#[derive(Debug, Args)]
pub struct ClusterName {
    /// The cluster's name
    #[arg(long, default_value = "corten")]
    pub(crate) name: String,
    /// Directory of all clusters [default: ~/.corten/clusters]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// `cluster destroy`.
#[derive(Debug, Args)]
pub struct ClusterDestroy {
    #[command(flatten)]
    pub(crate) cluster: ClusterName,
    /// Also remove a cluster whose directory or plan is missing or damaged, by the names of its parts
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `cluster show`.
#[derive(Debug, Args)]
pub struct ClusterShow {
    /// The cluster whose nodes are shown
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Directory of all clusters [default: ~/.corten/clusters]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A node's processes.
#[derive(Debug, Args)]
pub struct ClusterNode {
    /// The cluster's directory
    pub(crate) directory: PathBuf,
    /// The node's name
    pub(crate) node: String,
}

/// `cluster create`.
#[derive(Debug, Args)]
// Verbs of the reference that are refused need no image.
#[command(subcommand_negates_reqs = true)]
pub struct ClusterCreate {
    #[command(flatten)]
    pub(crate) cluster: ClusterName,
    /// How the nodes are made
    #[arg(long, value_enum, default_value = "namespaces")]
    pub(crate) provisioner: Provisioner,
    /// Root file system of containers: a rootfs.squashfs, or a directory with its files; disk image (.raw) of virtual
    /// machines; container image of Docker: a name, or a container.tar
    #[arg(long, value_name = "PATH")]
    pub(crate) image: PathBuf,
    /// Image cache that containers serve to themselves: a file or a directory
    #[arg(long, value_name = "PATH")]
    pub(crate) image_cache: Option<PathBuf>,
    /// Number of control plane nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) controlplanes: usize,
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) workers: usize,
    /// Network of the nodes
    #[arg(long, value_name = "NETWORK", default_value = "10.5.0.0/24")]
    pub(crate) cidr: Subnet,
    #[command(flatten)]
    pub(crate) shape: MachineShape,
    /// Source of the Kubernetes images [default: bundled with --image-cache, else upstream; of virtual machines, upstream
    /// with --kubernetes-version, else bundled]
    #[arg(long, value_enum, value_name = "SOURCE")]
    pub(crate) kubernetes_images: Option<KubernetesImages>,
    /// Kubernetes version of the upstream images, such as 1.37.0
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,
    /// Patch for the config of all nodes: text, or @FILE; may be repeated
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub(crate) config_patch: Vec<String>,
    /// Patch for the config of control plane nodes, applied after --config-patch
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub(crate) config_patch_control_plane: Vec<String>,
    /// Patch for the config of workers, applied after --config-patch
    #[arg(long, value_name = "PATCH", allow_hyphen_values = true)]
    pub(crate) config_patch_worker: Vec<String>,
    /// State of the cluster to wait for
    #[arg(long, value_enum, value_name = "STATE", default_value = "ready")]
    pub(crate) wait: WaitFor,
    /// Timeout of each step
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = parse_duration)]
    pub(crate) wait_timeout: Duration,
}

/// Shape of virtual machines.
#[derive(Debug, Args)]
pub struct MachineShape {
    /// Processors of a virtual machine [default: 2]
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<u32>,
    /// Memory of a control plane node's virtual machine [default: 4096]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_control_plane: Option<u32>,
    /// Memory of a worker's virtual machine [default: 2048]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_worker: Option<u32>,
    /// Size of a virtual machine's disk [default: 16384]
    #[arg(long, value_name = "MIB")]
    pub(crate) disk_size: Option<u64>,
}

/// The state that `cluster create` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum WaitFor {
    /// The node API answers; etcd is not started
    Api,
    /// etcd has started
    Bootstrapped,
    /// Kubernetes reports every node as Ready
    Ready,
}
