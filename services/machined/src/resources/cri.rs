//! What containerd is told beside registries.

use std::fmt;

use corten_api::talos::resource::definitions::cri as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde::Serialize;
use serde_json::Value as Json;

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
        let object = match value(&self.0).kind {
            Some(Kind::StructValue(object)) => Some(object),
            _ => None,
        };
        wire::BaseRuntimeSpecConfigSpec { object }
    }
}

/// JSON in protobuf (`google/protobuf/struct.proto`), which has one type of numbers.
fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(truth) => Kind::BoolValue(*truth),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(value).collect(),
        }),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, field)| (name.clone(), value(field)));
            Kind::StructValue(Struct {
                fields: fields.collect(),
            })
        }
    };
    Value { kind: Some(kind) }
}
