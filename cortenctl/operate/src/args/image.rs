//! The arguments of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::flags::Output;

/// `image`.
#[derive(Debug, Args)]
pub struct Image {
    /// Namespace of the images
    #[arg(long, value_enum, global = true, hide = true, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
    /// The verb.
    #[command(subcommand)]
    pub verb: ImageVerb,
}

/// The verbs of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    /// List images
    #[command(visible_aliases = ["ls", "l"])]
    List(ImageList),
    /// Pull an image to a node
    #[command(visible_alias = "p")]
    Pull(ImageName),
    /// Import the images of an archive into a node
    Import(ImageFile),
    /// Remove an image from a node
    #[command(visible_alias = "rm")]
    Remove(ImageName),
    /// Print the upstream images of a cluster, for a mirror; calls no node
    #[command(name = "k8s-bundle", visible_alias = "default")]
    Bundle(ImageBundle),
}

/// `image k8s-bundle`.
#[derive(Debug, Args)]
pub struct ImageBundle {
    /// Version of Kubernetes [default: the version of this client's bundled images]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) k8s_version: Option<String>,
    /// Version of etcd [default: that of a config without an image]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) etcd_version: Option<String>,
    /// Version of CoreDNS [default: as for --etcd-version]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) coredns_version: Option<String>,
    /// Version of flannel [default: as for --etcd-version]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) flannel_version: Option<String>,
    /// Version of kube-network-policies [default: as for --etcd-version]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) kube_network_policies_version: Option<String>,
}

/// A version as the tag of an image, without the leading `v`.
fn parse_version(text: &str) -> Result<String, String> {
    let version = text.strip_prefix('v').unwrap_or(text);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(fits);
    is_version
        .then(|| version.to_owned())
        .ok_or_else(|| "give a version such as 1.37.2".to_owned())
}

/// `image list`.
#[derive(Debug, Args)]
pub struct ImageList {
    /// Namespace of the images
    #[arg(long, value_enum, default_value = "cri")]
    pub namespace: ImageNamespace,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `image pull` and `image remove`.
#[derive(Debug, Args)]
pub struct ImageName {
    /// The image, as registry.example/name:tag
    pub(crate) image: String,
    /// Namespace of the image
    #[arg(long, value_enum, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
}

/// `image import`.
#[derive(Debug, Args)]
pub struct ImageFile {
    /// An OCI archive, or an archive of `docker save`
    pub(crate) file: PathBuf,
    /// Namespace of the images
    #[arg(long, value_enum, default_value = "cri")]
    pub(crate) namespace: ImageNamespace,
}

/// A namespace of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImageNamespace {
    /// Images of the node's own containers
    System,
    /// Images of Kubernetes
    Cri,
}
