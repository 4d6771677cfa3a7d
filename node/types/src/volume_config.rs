//! Desired volumes of the node.

use corten_api::talos::resource::definitions::block as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::expression::Expression;
use super::names::{FILE_SYSTEMS, VOLUME_TYPES, number};
use super::volume::MountSpec;
use super::{is_default, open};

/// A desired volume; its id is the partition's name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeConfig {
    /// `partition` or `directory`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How the node creates it; empty for a volume that is found or unused.
    pub provisioning: Provisioning,
    /// How the node finds it.
    pub locator: Locator,
    /// How the node mounts it.
    #[serde(skip_serializing_if = "is_default")]
    pub mount: Option<MountSpec>,
}

/// Parameters for creating a [`VolumeConfig`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    #[serde(skip_serializing_if = "is_default")]
    pub disk_selector: Option<DiskSelector>,
    #[serde(skip_serializing_if = "is_default")]
    pub partition_spec: Option<PartitionSpec>,
    #[serde(skip_serializing_if = "is_default")]
    pub filesystem_spec: Option<FilesystemSpec>,
}

/// Disk selection of a [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskSelector {
    /// Expression that selects eligible disks.
    #[serde(rename = "match")]
    pub matches: Expression,
}

/// Partition of a [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionSpec {
    /// Minimum size in bytes.
    pub min_size: u64,
    /// Maximum size in bytes; if absent, the partition takes the rest of the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub max_size: Option<u64>,
    /// Whether it grows with its disk.
    pub grow: bool,
    /// Name of the partition.
    pub label: String,
    /// Type of the partition.
    #[serde(rename = "typeUUID")]
    pub type_uuid: String,
}

/// File system of a [`Provisioning`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilesystemSpec {
    /// `xfs` or `swap`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub label: String,
}

/// Search criteria of a [`VolumeConfig`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locator {
    /// Expression that selects the volume.
    #[serde(rename = "match")]
    pub matches: Expression,
    /// Expression that selects the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub disk_match: Expression,
}

/// The type is sensitive because clients expect it to hold keys of encrypted volumes.
impl Spec for VolumeConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("VolumeConfigs.block.talos.dev", "runtime", &[], &[])
    };

    type Message = wire::VolumeConfigSpec;

    fn message(&self) -> wire::VolumeConfigSpec {
        wire::VolumeConfigSpec {
            r#type: number(self.kind, VOLUME_TYPES).unwrap_or_default(),
            provisioning: Some(self.provisioning.message()),
            locator: Some(wire::LocatorSpec {
                r#match: self.locator.matches.message(),
                disk_match: self.locator.disk_match.message(),
            }),
            mount: self.mount.as_ref().map(MountSpec::message),
        }
    }
}

impl Provisioning {
    fn message(&self) -> wire::ProvisioningSpec {
        let selector = |selector: &DiskSelector| wire::DiskSelector {
            r#match: selector.matches.message(),
        };
        let partition = |spec: &PartitionSpec| wire::PartitionSpec {
            min_size: spec.min_size,
            max_size: spec.max_size.unwrap_or_default(),
            grow: spec.grow,
            label: spec.label.clone(),
            type_uuid: spec.type_uuid.clone(),
        };
        let file_system = |spec: &FilesystemSpec| wire::FilesystemSpec {
            r#type: number(spec.kind, FILE_SYSTEMS).unwrap_or_default(),
            label: spec.label.clone(),
        };
        wire::ProvisioningSpec {
            disk_selector: self.disk_selector.as_ref().map(selector),
            partition_spec: self.partition_spec.as_ref().map(partition),
            filesystem_spec: self.filesystem_spec.as_ref().map(file_system),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn volume_config_shows_locator_and_provisioning() {
        let config = VolumeConfig {
            kind: "partition",
            provisioning: Provisioning {
                disk_selector: Some(DiskSelector {
                    matches: Expression::read("system_disk").unwrap(),
                }),
                partition_spec: Some(PartitionSpec {
                    min_size: 1 << 20,
                    max_size: None,
                    grow: true,
                    label: "u-data".to_owned(),
                    type_uuid: "type".to_owned(),
                }),
                filesystem_spec: Some(FilesystemSpec {
                    kind: "xfs",
                    label: "u-data".to_owned(),
                }),
            },
            locator: Locator {
                matches: Expression::read("volume.partition_label == 'u-data'").unwrap(),
                disk_match: Expression::default(),
            },
            mount: Some(MountSpec {
                target_path: "/var/mnt/data".to_owned(),
                ..MountSpec::default()
            }),
        };
        let yaml = config.to_yaml().unwrap();
        for line in [
            "    match: system_disk",
            "  match: volume.partition_label == 'u-data'",
        ] {
            assert!(yaml.lines().any(|found| found == line), "{line}: {yaml}");
        }
        assert!(!yaml.contains("diskMatch"), "{yaml}");
        let message = config.message();
        let locator = message.locator.unwrap();
        assert!(locator.r#match.is_some() && locator.disk_match.is_none());
        let provisioning = message.provisioning.unwrap();
        assert!(provisioning.disk_selector.unwrap().r#match.is_some());
        let partition = provisioning.partition_spec.unwrap();
        assert_eq!((partition.min_size, partition.max_size), (1 << 20, 0));
        assert_eq!(provisioning.filesystem_spec.unwrap().r#type, 1);
        assert_eq!(message.mount.unwrap().target_path, "/var/mnt/data");
    }
}
