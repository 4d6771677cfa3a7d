//! The provenance of the outputs: an in-toto statement (v1) with SLSA's provenance predicate (v1).
//! It contains nothing of the machine or the time, so that it is as reproducible as the outputs.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use corten_steps::error::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Release, checksums, output};

/// A locked input of the build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Material {
    /// Its package URL or another URI.
    pub uri: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// The content of a provenance statement.
#[derive(Debug)]
pub struct Provenance {
    /// The outputs: files, or directories of files.
    pub outputs: Vec<PathBuf>,
    /// The inputs.
    pub materials: Vec<Material>,
    /// The user's choices: the profile as JSON.
    pub parameters: Value,
    /// The commit of the sources, as nodes report it.
    pub commit: Option<String>,
    /// Packages that differ from the lock.
    pub substituted: Vec<Substituted>,
}

/// A package whose locked version the mirrors have removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Substituted {
    /// Its package URL, without a version.
    pub package: String,
    /// The version in the lock.
    pub locked: String,
    /// The version in the image.
    pub used: String,
}

/// Identifies the meaning of `externalParameters`; must be raised when that changes.
const BUILD_TYPE: &str = "urn:corten:mkimage:build:v1";

/// Writes the statement to `out`.
pub fn write(out: &Path, release: &Release, provenance: &Provenance) -> Result<()> {
    let text = statement(release, provenance)?;
    output::create(out, |file| Ok(file.write_all(text.as_bytes())?))
}

/// The statement.
pub fn statement(release: &Release, provenance: &Provenance) -> Result<String> {
    let subject: Vec<Value> = checksums::of_outputs(&provenance.outputs)?
        .into_iter()
        .map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}))
        .collect();
    let mut materials = provenance.materials.clone();
    materials.sort();
    materials.dedup();
    let materials: Vec<Value> = materials
        .into_iter()
        .map(|material| json!({"uri": material.uri, "digest": {"sha256": material.sha256}}))
        .collect();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": provenance.parameters,
                "internalParameters": {
                    "version": release.version,
                    "commit": provenance.commit,
                    "arch": release.arch.to_string(),
                    "sourceDateEpoch": release.epoch,
                    "substituted": provenance.substituted,
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {
                    "id": "urn:corten:mkimage",
                    "version": {"mkimage": env!("CARGO_PKG_VERSION")},
                },
            },
        },
    });
    Ok(serde_json::to_string_pretty(&statement)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, release};

    #[test]
    fn outputs_and_inputs_are_named_with_their_digests() {
        let scratch = Scratch::new();
        let material = |uri: &str| Material {
            uri: uri.to_owned(),
            sha256: "cd".repeat(32),
        };
        let mut provenance = Provenance {
            outputs: vec![scratch.file("corten.raw", b"disk")],
            materials: vec![
                material("pkg:deb/b"),
                material("pkg:deb/a"),
                material("pkg:deb/b"),
            ],
            parameters: json!({"output": ["raw"]}),
            commit: Some("0123456789ab".into()),
            substituted: vec![Substituted {
                package: "pkg:deb/a".into(),
                locked: "1".into(),
                used: "2".into(),
            }],
        };
        let one = statement(&release(), &provenance).unwrap();
        provenance.materials.reverse();
        assert_eq!(one, statement(&release(), &provenance).unwrap());
        let value: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(value["subject"][0]["name"], "corten.raw");
        assert_eq!(
            value["subject"][0]["digest"]["sha256"],
            checksums::of_bytes(b"disk")
        );
        let definition = &value["predicate"]["buildDefinition"];
        assert_eq!(
            definition["resolvedDependencies"].as_array().unwrap().len(),
            2
        );
        assert_eq!(definition["resolvedDependencies"][0]["uri"], "pkg:deb/a");
        assert_eq!(definition["externalParameters"]["output"][0], "raw");
        assert_eq!(definition["internalParameters"]["commit"], "0123456789ab");
        let substituted = &definition["internalParameters"]["substituted"][0];
        assert_eq!(substituted["used"], "2");
    }
}
