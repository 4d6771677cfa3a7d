//! Access of pods to the node's API.

use corten_api::talos::resource::definitions::kubeaccess as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::open;

/// The pods that get access to the API, and their roles; id [`PodAccessConfig::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAccessConfig {
    /// Whether pods get access.
    pub enabled: bool,
    /// Roles that pods may have at most.
    #[serde(rename = "allowedAPIRoles")]
    pub allowed_api_roles: Vec<String>,
    /// Namespaces of the allowed pods.
    pub allowed_kubernetes_namespaces: Vec<String>,
}

impl PodAccessConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "config";
}

impl Spec for PodAccessConfig {
    const DEFINITION: Definition = open(
        "KubernetesAccessConfigs.cluster.talos.dev",
        "config",
        &[],
        &[],
    );

    type Message = wire::ConfigSpec;

    fn message(&self) -> wire::ConfigSpec {
        wire::ConfigSpec {
            enabled: self.enabled,
            allowed_api_roles: self.allowed_api_roles.clone(),
            allowed_kubernetes_namespaces: self.allowed_kubernetes_namespaces.clone(),
        }
    }
}
