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
    /// What to do.
    #[command(subcommand)]
    pub verb: ImageVerb,
}

/// What to do with images.
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
