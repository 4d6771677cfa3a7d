//! The image cache of the node.

use corten_api::talos::resource::definitions::cri::ImageCacheConfigSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{IMAGE_CACHE_COPIES, IMAGE_CACHE_STATES, number};
use super::{column, open};

/// State of the image cache, from which the node answers image pulls itself; id [`ImageCacheConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageCacheConfig {
    /// `disabled`, `preparing`, `ready`.
    pub status: &'static str,
    /// `unknown`, or `skipped` because the node serves the cache from the partition it came on.
    pub copy_status: &'static str,
    /// Directories of the cache.
    pub roots: Vec<&'static str>,
}

impl ImageCacheConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "image-cache";
}

impl Spec for ImageCacheConfig {
    const DEFINITION: Definition = open(
        "ImageCacheConfigs.cri.talos.dev",
        "cri",
        &[],
        &[
            column("Status", ".status"),
            column("CopyStatus", ".copyStatus"),
            column("Roots", ".roots"),
        ],
    );

    type Message = ImageCacheConfigSpec;

    fn message(&self) -> ImageCacheConfigSpec {
        ImageCacheConfigSpec {
            status: number(self.status, IMAGE_CACHE_STATES).unwrap_or_default(),
            roots: self.roots.iter().map(|root| (*root).to_owned()).collect(),
            copy_status: number(self.copy_status, IMAGE_CACHE_COPIES).unwrap_or_default(),
        }
    }
}
