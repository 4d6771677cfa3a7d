//! The node's volumes, and where they are mounted.

use corten_api::talos::resource::definitions::block as wire;
use corten_api::talos::resource::definitions::runtime::MountStatusSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{ENCRYPTION_PROVIDERS, FILE_SYSTEMS, VOLUME_PHASES, VOLUME_TYPES, number};
use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// How a volume is to be mounted; part of [`VolumeStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSpec {
    /// The mount point.
    pub target_path: String,
    /// Always empty: the node labels nothing.
    pub selinux_label: &'static str,
    /// XFS counts blocks by project.
    pub project_quota_support: bool,
    /// Set-id bits and device nodes have no effect.
    #[serde(skip_serializing_if = "is_default")]
    pub secure: bool,
    /// No program of it runs.
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

/// A volume the node makes or uses; its id is the partition's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// `waiting`, `missing`, `located`, `ready`, `failed`. One that is `ready` and has an error is to go and in use.
    pub phase: &'static str,
    /// How far it was before it failed.
    #[serde(skip_serializing_if = "is_default")]
    pub pre_fail_phase: &'static str,
    /// `partition`, `disk`, `directory`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The partition's device.
    #[serde(skip_serializing_if = "is_default")]
    pub location: String,
    /// What is mounted of it.
    #[serde(skip_serializing_if = "is_default")]
    pub mount_location: String,
    /// From 1.
    #[serde(skip_serializing_if = "is_default")]
    pub partition_index: u64,
    /// The disk's device.
    #[serde(skip_serializing_if = "is_default")]
    pub parent_location: String,
    /// The file system's.
    #[serde(skip_serializing_if = "is_default")]
    pub uuid: String,
    /// The partition's.
    #[serde(rename = "partitionUUID", skip_serializing_if = "is_default")]
    pub partition_uuid: String,
    /// In bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub size: u64,
    /// The same for people.
    #[serde(skip_serializing_if = "is_default")]
    pub pretty_size: String,
    /// Its type; of an encrypted partition that is not open `luks`.
    #[serde(skip_serializing_if = "is_default")]
    pub filesystem: String,
    /// `luks2`: the partition is encrypted, and open.
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_provider: &'static str,
    /// `None` for a volume that is used without being mounted.
    #[serde(skip_serializing_if = "is_default")]
    pub mount_spec: Option<MountSpec>,
    /// Why it failed, for a person.
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

/// Which volume is mounted; part of [`MountStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountRequest {
    /// The id of its [`VolumeStatus`].
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// The node does not write to it.
    pub read_only: bool,
    /// Reading leaves no time of access.
    #[serde(skip_serializing_if = "is_default")]
    pub disable_access_time: bool,
    /// As [`MountSpec::secure`].
    #[serde(skip_serializing_if = "is_default")]
    pub secure: bool,
    /// As [`MountSpec::no_exec`].
    #[serde(skip_serializing_if = "is_default")]
    pub no_exec: bool,
    /// Who needs it.
    pub requesters: Vec<String>,
}

/// A volume that is mounted; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountStatus {
    pub spec: MountRequest,
    /// The device.
    pub source: String,
    /// The mount point.
    pub target: String,
    /// The file system's type; `none` for one that clients have no number for.
    pub filesystem: &'static str,
    /// Nothing can be written to it.
    pub read_only: bool,
    /// As [`MountSpec::project_quota_support`].
    pub project_quota_support: bool,
    /// As [`VolumeStatus::encryption_provider`].
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_provider: &'static str,
    /// Always false: every mount has a place in the tree.
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

/// A [`MountStatus`] as seen by who needs it; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMountStatus {
    /// The id of its [`VolumeStatus`].
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// A part of the node.
    pub requester: String,
    /// The mount point.
    pub target: String,
    /// As in [`MountRequest`], and the others.
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

/// The same for clients of the time before volumes; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionMount {
    /// The device.
    pub source: String,
    /// The mount point.
    pub target: String,
    /// As the kernel names it.
    pub filesystem_type: String,
    /// Such as `rw`, `nosuid`.
    pub options: Vec<String>,
    /// Whether what is written is encrypted.
    pub encrypted: bool,
    /// By what.
    #[serde(skip_serializing_if = "is_default")]
    pub encryption_providers: Vec<&'static str>,
}

impl Spec for PartitionMount {
    /// `mountstatuses` are those of `MountStatuses.block.talos.dev`.
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
