//! The machine config and the facts derived from it alone.

use corten_api::resource::config as wire;
use corten_api::talos::resource::definitions::cluster::InfoSpec;
use corten_config::MachineType as Kind;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "config";

/// The active machine config as it was submitted, including secrets; id [`MachineConfig::ID`].
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MachineConfig {
    /// The YAML text.
    pub source: String,
}

impl MachineConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "v1alpha1";
    /// Annotation that marks the spec as text rather than a tree; clients test for the key alone.
    pub const IS_TEXT: (&str, &str) = ("talos.dev/yaml-spec", "1");
}

impl std::fmt::Debug for MachineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineConfig").finish_non_exhaustive()
    }
}

impl Spec for MachineConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("MachineConfigs.config.talos.dev", NAMESPACE, &[], &[])
    };

    const IS_LARGE: bool = true;

    type Message = wire::MachineConfigSpec;

    fn message(&self) -> wire::MachineConfigSpec {
        let yaml_marshalled = self.source.clone().into_bytes();
        wire::MachineConfigSpec { yaml_marshalled }
    }
}

/// The node's role in its cluster; id [`MachineType::ID`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MachineType {
    /// Role: `controlplane`, `worker`, `init`.
    pub name: &'static str,
}

impl MachineType {
    /// Id of the only resource of this type.
    pub const ID: &str = "machine-type";

    /// Number on the wire.
    pub(crate) fn number(self) -> i32 {
        let machine_type = match self.name {
            "controlplane" => wire::MachineType::ControlPlane,
            "worker" => wire::MachineType::Worker,
            _ => wire::MachineType::Init,
        };
        machine_type.into()
    }
}

impl From<Kind> for MachineType {
    fn from(kind: Kind) -> MachineType {
        let name = match kind {
            Kind::ControlPlane => "controlplane",
            Kind::Worker => "worker",
            Kind::Init => "init",
        };
        MachineType { name }
    }
}

impl Spec for MachineType {
    const DEFINITION: Definition = open(
        "MachineTypes.config.talos.dev",
        NAMESPACE,
        &[],
        &[column("Type", "@")],
    );

    type Message = wire::MachineTypeSpec;

    fn message(&self) -> wire::MachineTypeSpec {
        let machine_type = self.number();
        wire::MachineTypeSpec { machine_type }
    }
}

/// The node's cluster; id [`ClusterInfo::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterInfo {
    /// Id of the cluster for the discovery service; often empty.
    #[serde(rename = "clusterId")]
    pub id: String,
    /// Name of the cluster.
    #[serde(rename = "clusterName")]
    pub name: String,
}

impl ClusterInfo {
    /// Id of the only resource of this type.
    pub const ID: &str = "current";
}

impl Spec for ClusterInfo {
    const DEFINITION: Definition = open(
        "Infos.cluster.talos.dev",
        "cluster",
        &[],
        &[
            column("Cluster ID", ".clusterId"),
            column("Cluster Name", ".clusterName"),
        ],
    );

    type Message = InfoSpec;

    fn message(&self) -> InfoSpec {
        InfoSpec {
            cluster_id: self.id.clone(),
            cluster_name: self.name.clone(),
        }
    }
}
