//! What the node wants of its volumes.

use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::volume::MountSpec;
use super::{is_default, open};

/// A volume the node wants; its id is the partition's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeConfig {
    /// `partition` or `directory`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How it is made; empty for one that is found or not used.
    pub provisioning: Provisioning,
    /// How it is found.
    pub locator: Locator,
    /// How it is mounted.
    #[serde(skip_serializing_if = "is_default")]
    pub mount: Option<MountSpec>,
}

/// Part of [`VolumeConfig`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    #[serde(skip_serializing_if = "is_default")]
    pub disk_selector: Option<DiskSelector>,
    #[serde(skip_serializing_if = "is_default")]
    pub partition_spec: Option<PartitionSpec>,
    #[serde(skip_serializing_if = "is_default")]
    pub filesystem_spec: Option<FilesystemSpec>,
}

/// Part of [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskSelector {
    /// In the Common Expression Language.
    #[serde(rename = "match")]
    pub matches: String,
}

/// Part of [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionSpec {
    /// In bytes.
    pub min_size: u64,
    /// In bytes; without it the partition takes the rest of the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub max_size: Option<u64>,
    /// It is made larger when its disk is.
    pub grow: bool,
    /// The partition's name.
    pub label: String,
    /// The partition's type.
    #[serde(rename = "typeUUID")]
    pub type_uuid: String,
}

/// Part of [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilesystemSpec {
    /// `xfs` or `swap`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub label: String,
}

/// Part of [`VolumeConfig`]; both are in the Common Expression Language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locator {
    #[serde(rename = "match")]
    pub matches: String,
    #[serde(skip_serializing_if = "is_default")]
    pub disk_match: &'static str,
}

/// Clients know it as one that may hold the keys of an encrypted volume.
impl Spec for VolumeConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("VolumeConfigs.block.talos.dev", "runtime", &[], &[])
    };
}
