//! Verbs about clusters on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{KubernetesImages, Output, parse_duration};
use crate::verbs::Subnet;

/// `cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Make a cluster whose nodes are containers, and wait until it works
    Create(Box<ClusterCreate>),
    /// End a cluster and remove all that was made for it
    Destroy(ClusterName),
    /// What clusters there are, or the nodes of one
    Show(ClusterShow),
    #[command(hide = true)]
    RunNode(ClusterNode),
    #[command(hide = true)]
    EnterNode(ClusterNode),
}

/// Who makes nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provisioner {
    /// Containers out of the kernel's namespaces; needs root, and no other program
    Namespaces,
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterName {
    /// The cluster's name
    #[arg(long, default_value = "corten")]
    pub(crate) name: String,
    /// Where clusters are kept [default: ~/.corten/clusters]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// `cluster show`.
#[derive(Debug, Args)]
pub(crate) struct ClusterShow {
    /// The cluster whose nodes are shown
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Where clusters are kept [default: ~/.corten/clusters]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A node's processes.
#[derive(Debug, Args)]
pub(crate) struct ClusterNode {
    /// The cluster's directory
    pub(crate) directory: PathBuf,
    /// The node's name
    pub(crate) node: String,
}

/// `cluster create`.
#[derive(Debug, Args)]
// Verbs of the reference that are refused need no image.
#[command(subcommand_negates_reqs = true)]
pub(crate) struct ClusterCreate {
    #[command(flatten)]
    pub(crate) cluster: ClusterName,
    /// Who makes the nodes
    #[arg(long, value_enum, default_value = "namespaces")]
    pub(crate) provisioner: Provisioner,
    /// The nodes' root file system: a rootfs.squashfs, or a directory with its files
    #[arg(long, value_name = "PATH")]
    pub(crate) image: PathBuf,
    /// Images that the nodes serve themselves: the content of an image cache, as a file or directory
    #[arg(long, value_name = "PATH")]
    pub(crate) image_cache: Option<PathBuf>,
    /// Control plane nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) controlplanes: usize,
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) workers: usize,
    /// The network of the nodes
    #[arg(long, value_name = "NETWORK", default_value = "10.5.0.0/24")]
    pub(crate) cidr: Subnet,
    /// Whose images of Kubernetes [default: bundled with --image-cache, else upstream]
    #[arg(long, value_enum, value_name = "SOURCE")]
    pub(crate) kubernetes_images: Option<KubernetesImages>,
    /// The version of Kubernetes, such as 1.37.0, of upstream images
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<String>,
    /// Change the config of all nodes: text, or @FILE; may be repeated
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch: Vec<String>,
    /// Change the config of control plane nodes, after the others
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch_control_plane: Vec<String>,
    /// Change the config of workers, after the others
    #[arg(long, value_name = "PATCH")]
    pub(crate) config_patch_worker: Vec<String>,
    /// How far to wait
    #[arg(long, value_enum, value_name = "STATE", default_value = "ready")]
    pub(crate) wait: WaitFor,
    /// How long to wait for each step
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = parse_duration)]
    pub(crate) wait_timeout: Duration,
}

/// The state that `cluster create` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum WaitFor {
    /// The node API answers; etcd is not started
    Api,
    /// etcd was started
    Bootstrapped,
    /// Kubernetes calls every node Ready
    Ready,
}
