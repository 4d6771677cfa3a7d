//! The bill of materials: SPDX 2.3 in JSON, one package per component of the image.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use corten_steps::calendar;
use corten_steps::error::Result;
use serde_json::{Value, json};

use super::{Release, checksums, output};

/// A component of an image: a Debian package, a crate, a Go module, the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// Its upstream name.
    pub name: String,
    /// Its upstream version.
    pub version: String,
    /// Its supplier in SPDX's form: `Organization: Debian`, or `NOASSERTION`.
    pub supplier: String,
    /// Its licence as an SPDX expression, if declared.
    pub licence: Option<String>,
    /// Its package URL.
    pub purl: String,
    /// SHA-256 of its source file, if there is one.
    pub sha256: Option<String>,
}

const NO_ASSERTION: &str = "NOASSERTION";
const IMAGE: &str = "SPDXRef-Image";

/// Writes the document to `out`.
pub fn write(out: &Path, release: &Release, components: &[Component]) -> Result<()> {
    let text = document(release, components)?;
    output::create(out, |file| Ok(file.write_all(text.as_bytes())?))
}

/// The document: sorted components without duplicates.
pub fn document(release: &Release, components: &[Component]) -> Result<String> {
    let mut components = components.to_vec();
    components.sort_by(|a, b| a.purl.cmp(&b.purl).then_with(|| a.cmp(b)));
    components.dedup();
    let ids: Vec<String> = (1..)
        .zip(&components)
        .map(|(number, component)| id(number, &component.name))
        .collect();
    let mut packages = vec![json!({
        "SPDXID": IMAGE,
        "name": release.stem(),
        "versionInfo": release.version,
        "supplier": "Organization: Corten",
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": false,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
        "primaryPackagePurpose": "OPERATING-SYSTEM",
    })];
    packages.extend(
        ids.iter()
            .zip(&components)
            .map(|(id, component)| package(id, component)),
    );
    let mut relationships = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", IMAGE)];
    relationships.extend(ids.iter().map(|id| relation(IMAGE, "CONTAINS", id)));
    // Different documents need different namespaces; the namespace is a hash of the content.
    let content = checksums::of_bytes(serde_json::to_string(&packages)?.as_bytes());
    let mut document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": release.stem(),
        "documentNamespace": format!("urn:uuid:{}", release.uuid(&format!("sbom/{content}"))),
        "creationInfo": {
            "created": calendar::rfc3339(release.epoch),
            "creators": [format!("Tool: mkimage-{}", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": relationships,
    });
    let texts = references(&components);
    if let (Some(fields), false) = (document.as_object_mut(), texts.is_empty()) {
        fields.insert("hasExtractedLicensingInfos".to_owned(), texts.into());
    }
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The licences outside SPDX's list, which a document must describe.
fn references(components: &[Component]) -> Vec<Value> {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for component in components {
        let licence = component.licence.as_deref().unwrap_or_default();
        let words = licence.split([' ', '(', ')']);
        for reference in words.filter(|word| word.starts_with("LicenseRef-")) {
            users.entry(reference).or_default().insert(&component.name);
        }
    }
    let described = |(reference, users): (&str, BTreeSet<&str>)| {
        let users: Vec<&str> = users.into_iter().collect();
        let text = format!(
            "The list of licence texts in the image has it, under {}.",
            users.join(", ")
        );
        json!({"licenseId": reference, "extractedText": text})
    };
    users.into_iter().map(described).collect()
}

fn package(id: &str, component: &Component) -> Value {
    let mut package = json!({
        "SPDXID": id,
        "name": component.name,
        "versionInfo": component.version,
        "supplier": component.supplier,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": false,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": component.licence.as_deref().unwrap_or(NO_ASSERTION),
        "copyrightText": NO_ASSERTION,
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": component.purl,
        }],
    });
    if let (Some(fields), Some(digest)) = (package.as_object_mut(), &component.sha256) {
        let sum = json!([{"algorithm": "SHA256", "checksumValue": digest}]);
        fields.insert("checksums".to_owned(), sum);
    }
    package
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to})
}

/// An id with SPDX's characters only: letters, digits, dots and dashes.
fn id(number: u32, name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    format!(
        "SPDXRef-{number}-{}",
        name.chars().map(plain).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::release;

    fn component(name: &str, licence: Option<&str>) -> Component {
        Component {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            supplier: NO_ASSERTION.to_owned(),
            licence: licence.map(str::to_owned),
            purl: format!("pkg:cargo/{name}@1.0"),
            sha256: licence.is_none().then(|| "ab".repeat(32)),
        }
    }

    #[test]
    fn licence_outside_the_list_of_spdx_is_described() {
        let licence = "MIT AND (LicenseRef-a-own OR ISC)";
        let both = ["a", "b"].map(|name| component(name, Some(licence)));
        let text = document(&release(), &both).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let described = value["hasExtractedLicensingInfos"].as_array().unwrap();
        assert_eq!(described.len(), 1, "{described:?}");
        assert_eq!(described[0]["licenseId"], "LicenseRef-a-own");
        let told = described[0]["extractedText"].as_str().unwrap();
        assert!(told.ends_with("under a, b."), "{told}");
    }

    #[test]
    fn order_and_repetition_do_not_matter() {
        let (a, b) = (
            component("a_b", Some("MIT OR Apache-2.0")),
            component("zz", None),
        );
        let one = document(&release(), &[a.clone(), b.clone()]).unwrap();
        assert_eq!(
            one,
            document(&release(), &[b.clone(), a.clone(), b]).unwrap()
        );
        let value: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(value["packages"][1]["SPDXID"], "SPDXRef-1-a-b");
        assert_eq!(value["packages"][1]["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(
            value["packages"][2]["checksums"][0]["checksumValue"],
            "ab".repeat(32)
        );
        assert_eq!(value["relationships"].as_array().unwrap().len(), 3);
        assert_eq!(value["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        let other: Value = serde_json::from_str(&document(&release(), &[a]).unwrap()).unwrap();
        assert_ne!(value["documentNamespace"], other["documentNamespace"]);
    }
}
