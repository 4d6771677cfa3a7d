//! What containerd is told beside registries.

use std::fmt;

use corten_api::talos::resource::definitions::cri as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde_json::Value as Json;

use super::message::object;
use super::open;

const NAMESPACE: &str = "cri";

/// A part of containerd's configuration; its name is the id. It takes an administrator to read it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CustomizationConfig {
    /// TOML, as the config has it.
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

/// The specification that containers of pods begin with, or changes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BaseRuntimeSpecConfig(pub Json);

impl BaseRuntimeSpecConfig {
    /// The id of the one without any change.
    pub const DEFAULT: &str = "default";
    /// The id of the changes that the config asks for.
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
