//! System extensions and the machine config's settings for their services.

use std::fmt;

use corten_api::talos::resource::definitions::extensions as wire;
use corten_api::talos::resource::definitions::runtime::{
    ExtensionServiceConfigFile as WireFile, ExtensionServiceConfigSpec,
    ExtensionServiceConfigStatusSpec,
};
use corten_config::kinds::ExtensionServiceConfig as Document;
use corten_extension::manifest::Metadata;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// A system extension in the root file system; its id is its position in the layer stack, 0 at the bottom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtensionStatus {
    /// File name of its layer.
    pub image: String,
    /// Metadata from its own manifest.
    pub metadata: Metadata,
}

impl Spec for ExtensionStatus {
    const DEFINITION: Definition = open(
        "ExtensionStatuses.runtime.talos.dev",
        NAMESPACE,
        &["extensions"],
        &[
            column("Name", ".metadata.name"),
            column("Version", ".metadata.version"),
        ],
    );

    type Message = wire::Layer;

    fn message(&self) -> wire::Layer {
        let metadata = &self.metadata;
        let constraint = wire::Constraint {
            version: metadata.compatibility.talos.version.clone(),
        };
        wire::Layer {
            image: self.image.clone(),
            metadata: Some(wire::Metadata {
                name: metadata.name.clone(),
                version: metadata.version.clone(),
                author: metadata.author.clone(),
                description: metadata.description.clone(),
                compatibility: Some(wire::Compatibility {
                    talos: Some(constraint),
                }),
                extra_info: metadata.extra_info.clone(),
            }),
        }
    }
}

/// Settings of an extension service from the machine config; its id is the service's name without `ext-`. It may
/// contain secrets.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ExtensionServiceConfig {
    /// Files mounted into its container.
    #[serde(skip_serializing_if = "is_default")]
    pub files: Vec<ExtensionServiceConfigFile>,
    /// Environment variables: `NAME=value`.
    #[serde(skip_serializing_if = "is_default")]
    pub environment: Vec<String>,
}

/// A file in an [`ExtensionServiceConfig`].
#[expect(missing_debug_implementations, reason = "a file may hold a secret")]
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionServiceConfigFile {
    /// Complete content.
    pub content: String,
    /// Path in the container.
    pub mount_path: String,
}

impl fmt::Debug for ExtensionServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionServiceConfig")
            .finish_non_exhaustive()
    }
}

impl From<&Document> for ExtensionServiceConfig {
    fn from(document: &Document) -> ExtensionServiceConfig {
        let files = document.config_files.iter();
        ExtensionServiceConfig {
            files: files
                .map(|file| ExtensionServiceConfigFile {
                    content: file.content.expose().to_owned(),
                    mount_path: file.mount_path.to_string(),
                })
                .collect(),
            environment: document
                .environment
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

impl Spec for ExtensionServiceConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(
            "ExtensionServiceConfigs.runtime.talos.dev",
            NAMESPACE,
            &[],
            &[],
        )
    };

    type Message = ExtensionServiceConfigSpec;

    fn message(&self) -> ExtensionServiceConfigSpec {
        let file = |file: &ExtensionServiceConfigFile| WireFile {
            content: file.content.clone(),
            mount_path: file.mount_path.clone(),
        };
        ExtensionServiceConfigSpec {
            files: self.files.iter().map(file).collect(),
            environment: self.environment.clone(),
        }
    }
}

/// Marks the files of an [`ExtensionServiceConfig`] as written for its service; same id. It exists only for services
/// that an extension brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionServiceConfigStatus {
    /// Version of the [`ExtensionServiceConfig`].
    pub spec_version: String,
}

impl Spec for ExtensionServiceConfigStatus {
    const DEFINITION: Definition = open(
        "ExtensionServiceConfigStatuses.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = ExtensionServiceConfigStatusSpec;

    fn message(&self) -> ExtensionServiceConfigStatusSpec {
        let spec_version = self.spec_version.clone();
        ExtensionServiceConfigStatusSpec { spec_version }
    }
}
