//! Software bill of materials (SBOM) of the node.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// A component of the image or of an extension: a package, a crate, a Go module, the kernel. Its id is its name; if the
/// name is taken, the version follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SbomItem {
    /// Name at its origin.
    pub name: String,
    /// Version at its origin.
    pub version: String,
    /// Declared license (SPDX), if any.
    #[serde(skip_serializing_if = "is_default")]
    pub license: String,
    /// Names in vulnerability databases (CPE).
    #[serde(skip_serializing_if = "is_default")]
    pub cpes: Vec<String>,
    /// Package URLs.
    #[serde(skip_serializing_if = "is_default")]
    pub purls: Vec<String>,
    /// Whether an extension brought it.
    #[serde(skip_serializing_if = "is_default")]
    pub extension: bool,
}

impl Spec for SbomItem {
    const DEFINITION: Definition = open(
        "SBOMItems.talos.dev",
        NAMESPACE,
        &["sbom", "sboms"],
        &[
            column("Version", ".version"),
            column("License", ".license"),
            column("Extension", ".extension"),
        ],
    );

    type Message = wire::SbomItemSpec;

    fn message(&self) -> wire::SbomItemSpec {
        wire::SbomItemSpec {
            name: self.name.clone(),
            version: self.version.clone(),
            license: self.license.clone(),
            cp_es: self.cpes.clone(),
            pur_ls: self.purls.clone(),
            extension: self.extension,
        }
    }
}
