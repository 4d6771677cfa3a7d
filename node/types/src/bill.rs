//! What the node is made of.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// Something the image or an extension is made of: a package, a crate, a Go module, the kernel. Its id is its
/// name, with the version behind it where the name is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SbomItem {
    /// Its name where it comes from.
    pub name: String,
    /// Its version there.
    pub version: String,
    /// The license it declares (SPDX), if it does.
    #[serde(skip_serializing_if = "is_default")]
    pub license: String,
    /// Its names in lists of vulnerabilities (CPE).
    #[serde(skip_serializing_if = "is_default")]
    pub cpes: Vec<String>,
    /// Its package URLs.
    #[serde(skip_serializing_if = "is_default")]
    pub purls: Vec<String>,
    /// It came with an extension.
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
