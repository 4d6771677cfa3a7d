//! The node's volumes and their mounts.

use corten_api::talos::resource::definitions::block as wire;
use corten_api::talos::resource::definitions::runtime::MountStatusSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{ENCRYPTION_PROVIDERS, FILE_SYSTEMS, VOLUME_PHASES, VOLUME_TYPES, number};
use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// Mount options of a volume, in a [`VolumeStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSpec {
    /// Mount point.
    pub target_path: String,
    /// Always empty: the node sets no SELinux labels.
    pub selinux_label: &'static str,
    /// Whether XFS counts blocks per project.
    pub project_quota_support: bool,
    /// Whether set-id bits and device nodes have no effect (`nosuid`, `nodev`).
    #[serde(skip_serializing_if = "is_default")]
    pub secure: bool,
    /// Whether programs on the volume cannot run (`noexec`).
    #[serde(skip_serializing_if = "is_default")]
    pub no_exec: bool,
}

impl MountSpec {
    pub(super) fn message(&self) -> wire::MountSpec {
        wire::MountSpec {
            target_path: self.target_path.clone(),
            selinux_label: self.selinux_label.to_owned(),
            project_quota_support: self.project_quota_support,
            secure: self.secure,
            no_exec: self.no_exec,
        }
    }
}

/// A volume the node creates or uses; its id is the partition's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// `waiting`, `missing`, `located`, `ready`, `failed`. `ready` with an error marks a volume to be removed that is
    /// still in use.
    pub phase: &'static str,
    /// Phase before the failure.
    #[serde(skip_serializing_if = "is_default")]
    pub pre_fail_phase: &'static str,
    /// `partition`, `disk`, `directory`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Device of the partition.
    #[serde(skip_serializing_if = "is_default")]
    pub location: String,
    /// Mounted device.
    #[serde(skip_serializing_if = "is_default")]
    pub mount_location: String,
    /// Partition number, from 1.
    #[serde(skip_serializing_if = "is_default")]
    pub partition_index: u64,
    /// Device of the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub parent_location: String,
    /// UUID of the file system.
    #[serde(skip_serializing_if = "is_default")]
    pub uuid: String,
    /// UUID of the partition.
    #[serde(rename = "partitionUUID", skip_serializing_if = "is_default")]
    pub partition_uuid: String,
    /// Size in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub size: u64,
    /// Size for people.
    #[serde(skip_serializing_if = "is_default")]
    pub pretty_size: String,
    /// File system type; `luks` for an encrypted partition that is not open.
    #[serde(skip_serializing_if = "is_default")]
    pub filesystem: String,
    /// `luks2` if the partition is encrypted and open.
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_provider: &'static str,
    /// Mount options; `None` for a volume that is used without a mount.
    #[serde(skip_serializing_if = "is_default")]
    pub mount_spec: Option<MountSpec>,
    /// Human-readable reason for the failure.
    #[serde(skip_serializing_if = "is_default")]
    pub error_message: String,
}

impl Spec for VolumeStatus {
    const DEFINITION: Definition = open(
        "VolumeStatuses.block.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Type", ".type"),
            column("Phase", ".phase"),
            column("Location", ".location"),
            column("Size", ".prettySize"),
        ],
    );

    type Message = wire::VolumeStatusSpec;

    fn message(&self) -> wire::VolumeStatusSpec {
        wire::VolumeStatusSpec {
            phase: number(self.phase, VOLUME_PHASES).unwrap_or_default(),
            location: self.location.clone(),
            error_message: self.error_message.clone(),
            uuid: self.uuid.clone(),
            partition_uuid: self.partition_uuid.clone(),
            pre_fail_phase: number(self.pre_fail_phase, VOLUME_PHASES).unwrap_or_default(),
            parent_location: self.parent_location.clone(),
            partition_index: self.partition_index.try_into().unwrap_or_default(),
            size: self.size,
            filesystem: number(&self.filesystem, FILE_SYSTEMS).unwrap_or_default(),
            mount_location: self.mount_location.clone(),
            encryption_provider: number(self.encryption_provider, ENCRYPTION_PROVIDERS)
                .unwrap_or_default(),
            pretty_size: self.pretty_size.clone(),
            mount_spec: self.mount_spec.as_ref().map(MountSpec::message),
            r#type: number(self.kind, VOLUME_TYPES).unwrap_or_default(),
        }
    }
}

/// The request behind a mount, in a [`MountStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountRequest {
    /// Id of the [`VolumeStatus`].
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Whether the node mounts it read-only.
    pub read_only: bool,
    /// Whether reads leave the access time unchanged (`noatime`).
    #[serde(skip_serializing_if = "is_default")]
    pub disable_access_time: bool,
    /// Same meaning as [`MountSpec::secure`].
    #[serde(skip_serializing_if = "is_default")]
    pub secure: bool,
    /// Same meaning as [`MountSpec::no_exec`].
    #[serde(skip_serializing_if = "is_default")]
    pub no_exec: bool,
    /// Components of the node that need the mount.
    pub requesters: Vec<String>,
}

/// A mounted volume; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountStatus {
    pub spec: MountRequest,
    /// Device.
    pub source: String,
    /// Mount point.
    pub target: String,
    /// File system type; `none` if clients have no number for it.
    pub filesystem: &'static str,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Same meaning as [`MountSpec::project_quota_support`].
    pub project_quota_support: bool,
    /// Same meaning as [`VolumeStatus::encryption_provider`].
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_provider: &'static str,
    /// Always false: every mount is attached to the tree.
    pub detached: bool,
}

impl Spec for MountStatus {
    const DEFINITION: Definition = open(
        "MountStatuses.block.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Source", ".source"),
            column("Target", ".target"),
            column("Filesystem", ".filesystem"),
            column("Volume", ".spec.volumeID"),
        ],
    );

    type Message = wire::MountStatusSpec;

    fn message(&self) -> wire::MountStatusSpec {
        wire::MountStatusSpec {
            spec: Some(wire::MountRequestSpec {
                volume_id: self.spec.volume_id.clone(),
                read_only: self.spec.read_only,
                disable_access_time: self.spec.disable_access_time,
                secure: self.spec.secure,
                no_exec: self.spec.no_exec,
                requesters: self.spec.requesters.clone(),
            }),
            target: self.target.clone(),
            source: self.source.clone(),
            filesystem: number(self.filesystem, FILE_SYSTEMS).unwrap_or_default(),
            read_only: self.read_only,
            project_quota_support: self.project_quota_support,
            encryption_provider: number(self.encryption_provider, ENCRYPTION_PROVIDERS)
                .unwrap_or_default(),
        }
    }
}

/// A [`MountStatus`] from the view of its requester; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMountStatus {
    /// Id of the [`VolumeStatus`].
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Component of the node that needs the mount.
    pub requester: String,
    /// Mount point.
    pub target: String,
    /// Same meaning as in [`MountRequest`], as are the other flags.
    pub read_only: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub disable_access_time: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub secure: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub no_exec: bool,
}

impl Spec for VolumeMountStatus {
    const DEFINITION: Definition = open(
        "VolumeMountStatuses.block.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Volume ID", ".volumeID"),
            column("Requester", ".requester"),
            column("Target", ".target"),
        ],
    );

    type Message = wire::VolumeMountStatusSpec;

    fn message(&self) -> wire::VolumeMountStatusSpec {
        wire::VolumeMountStatusSpec {
            volume_id: self.volume_id.clone(),
            requester: self.requester.clone(),
            target: self.target.clone(),
            read_only: self.read_only,
            disable_access_time: self.disable_access_time,
            secure: self.secure,
            no_exec: self.no_exec,
        }
    }
}

/// A mounted volume for clients older than volumes; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionMount {
    /// Device.
    pub source: String,
    /// Mount point.
    pub target: String,
    /// The kernel's name of the file system.
    pub filesystem_type: String,
    /// Mount options, such as `rw`, `nosuid`.
    pub options: Vec<String>,
    /// Whether the data is encrypted.
    pub encrypted: bool,
    /// Encryption providers.
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_providers: Vec<&'static str>,
}

impl Spec for PartitionMount {
    /// The alias `mountstatuses` belongs to `MountStatuses.block.talos.dev`.
    const DEFINITION: Definition = Definition {
        only_declared_aliases: true,
        ..open(
            "MountStatuses.runtime.talos.dev",
            NAMESPACE,
            &["mounts"],
            &[
                column("Source", ".source"),
                column("Target", ".target"),
                column("Filesystem Type", ".filesystemType"),
            ],
        )
    };

    type Message = MountStatusSpec;

    fn message(&self) -> MountStatusSpec {
        MountStatusSpec {
            source: self.source.clone(),
            target: self.target.clone(),
            filesystem_type: self.filesystem_type.clone(),
            options: self.options.clone(),
            encrypted: self.encrypted,
            encryption_providers: self
                .encryption_providers
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_and_file_systems_are_numbers_on_the_wire() {
        let status = VolumeStatus {
            phase: "ready",
            kind: "partition",
            size: 8_589_934_592,
            filesystem: "xfs".to_owned(),
            ..VolumeStatus::default()
        };
        let message = status.message();
        assert_eq!((message.phase, message.r#type), (6, 0));
        assert_eq!((message.size, message.filesystem), (8_589_934_592, 1));
        assert_eq!((message.pre_fail_phase, message.mount_spec), (0, None));
    }
}
