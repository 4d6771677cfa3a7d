//! Settings of containerd other than registries.

use std::fmt;

use corten_api::talos::resource::definitions::cri as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value as Json;

use super::message::object;
use super::open;

const NAMESPACE: &str = "cri";

/// A fragment of containerd's configuration; its id is the fragment's name. Only administrators may read it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CustomizationConfig {
    /// TOML text from the machine config.
    pub content: String,
}

impl fmt::Debug for CustomizationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomizationConfig")
            .finish_non_exhaustive()
    }
}

impl Spec for CustomizationConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("CustomizationConfigs.cri.talos.dev", NAMESPACE, &[], &[])
    };

    type Message = wire::CustomizationConfigSpec;

    fn message(&self) -> wire::CustomizationConfigSpec {
        wire::CustomizationConfigSpec {
            content: self.content.clone(),
        }
    }
}

/// Base OCI runtime spec of pod containers, or overrides of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BaseRuntimeSpecConfig(pub Json);

impl BaseRuntimeSpecConfig {
    /// Id of the base spec without overrides.
    pub const DEFAULT: &str = "default";
    /// Id of the overrides from the machine config.
    pub const OVERRIDES: &str = "overrides";
}

impl Spec for BaseRuntimeSpecConfig {
    const DEFINITION: Definition =
        open("BaseRuntimeSpecConfigs.cri.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::BaseRuntimeSpecConfigSpec;

    fn message(&self) -> wire::BaseRuntimeSpecConfigSpec {
        let object = object(&self.0);
        wire::BaseRuntimeSpecConfigSpec { object }
    }
}

/// A seccomp profile for pods from the machine config; its id is its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeccompProfile {
    /// Name of its file.
    pub name: String,
    /// Profile (OCI runtime specification, `seccomp`).
    pub value: Json,
}

impl Spec for SeccompProfile {
    const DEFINITION: Definition = open("SeccompProfiles.cri.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::SeccompProfileSpec;

    fn message(&self) -> wire::SeccompProfileSpec {
        wire::SeccompProfileSpec {
            name: self.name.clone(),
            value: object(&self.value),
        }
    }
}
