//! Shows the software bill of materials from the image's SPDX files. It is read once: the image does not change while a
//! node runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use corten_base::console;
use corten_base::regular;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::bill::SbomItem;
use serde::Deserialize;

/// Directories of the image's and the extensions' bills (facts of the reference; SPDX 2.3, JSON).
const IMAGE: &str = "usr/share/spdx";
const EXTENSIONS: &str = "usr/local/share/spdx";
/// Maximum size of a bill in bytes.
const LARGEST: u64 = 16 << 20;
/// Placeholders of SPDX for missing values.
const UNSAID: [&str; 2] = ["NOASSERTION", "NONE"];

#[derive(Debug, Clone)]
pub(super) struct Bill {
    /// `/`, except in tests.
    root: PathBuf,
}

impl Default for Bill {
    fn default() -> Bill {
        Bill { root: "/".into() }
    }
}

impl Controller for Bill {
    fn name(&self) -> &'static str {
        "runtime.SBOMItemController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<SbomItem>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut items = BTreeMap::new();
        for (directory, extension) in [(IMAGE, false), (EXTENSIONS, true)] {
            for path in files(&self.root.join(directory)) {
                match read(&path) {
                    Ok(document) => add(&mut items, document, extension),
                    Err(why) => console::warn(&format!(
                        "a bill of materials is not shown: {}: {why}",
                        path.display()
                    )),
                }
            }
        }
        for (id, item) in items {
            context.put(Draft::new(&id, item))?;
        }
        Ok(())
    }
}

/// The displayed parts of an SPDX document.
#[derive(Debug, Deserialize)]
struct Document {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    name: String,
    #[serde(default)]
    version_info: String,
    #[serde(default)]
    license_declared: String,
    #[serde(default)]
    external_refs: Vec<Reference>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    reference_type: String,
    #[serde(default)]
    reference_locator: String,
}

/// Bills in a directory, sorted by name; empty if the directory is missing.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    files
}

fn read(path: &Path) -> io::Result<Document> {
    let mut bytes = Vec::new();
    let file = regular::open(path, true)?;
    // One extra byte reveals that the file is too large.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!(
            "it has more than {LARGEST} bytes"
        )));
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Adds the packages of a bill to the items by id.
fn add(items: &mut BTreeMap<String, SbomItem>, document: Document, extension: bool) {
    for package in document.packages {
        let item = item(package, extension);
        let id = match items.get(&item.name) {
            Some(other) if *other != item => format!("{}-{}", item.name, item.version),
            _ => item.name.clone(),
        };
        items.insert(id, item);
    }
}

fn item(package: Package, extension: bool) -> SbomItem {
    let of_kind = |kinds: &[&str]| {
        let references = package.external_refs.iter();
        references
            .filter(|reference| kinds.contains(&&*reference.reference_type))
            .map(|reference| reference.reference_locator.clone())
            .collect()
    };
    SbomItem {
        cpes: of_kind(&["cpe22Type", "cpe23Type"]),
        purls: of_kind(&["purl"]),
        license: match UNSAID.contains(&&*package.license_declared) {
            true => String::new(),
            false => package.license_declared,
        },
        name: package.name,
        version: package.version_info,
        extension,
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    const BILL: &str = r#"{"spdxVersion": "SPDX-2.3", "packages": [
        {"name": "time", "versionInfo": "0.3.1", "licenseDeclared": "MIT OR Apache-2.0", "externalRefs":
            [{"referenceType": "purl", "referenceLocator": "pkg:cargo/time@0.3.1"}]},
        {"name": "time", "versionInfo": "1.0", "licenseDeclared": "NOASSERTION"}]}"#;

    async fn shown(files: &[(&str, &str)]) -> Store {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let root = root.path().to_owned();
        runtime.add(Bill { root }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        store
    }

    #[tokio::test]
    async fn every_package_of_every_bill_of_materials_is_an_item() {
        let of_extension = BILL.replace("time", "tool");
        let store = shown(&[
            ("usr/share/spdx/corten.spdx.json", BILL),
            ("usr/local/share/spdx/tool.json", &of_extension),
        ])
        .await;
        let first = store.get_as::<SbomItem>("time").unwrap();
        assert_eq!(
            (&*first.version, &*first.license),
            ("0.3.1", "MIT OR Apache-2.0")
        );
        assert_eq!(first.purls, ["pkg:cargo/time@0.3.1"]);
        assert!(!first.extension);
        let second = store.get_as::<SbomItem>("time-1.0").unwrap();
        assert_eq!((&*second.license, second.purls.len()), ("", 0));
        assert!(store.get_as::<SbomItem>("tool").unwrap().extension);
    }

    #[tokio::test]
    async fn broken_bill_of_materials_does_not_hide_the_others() {
        let store = shown(&[
            ("usr/local/share/spdx/a.json", "{\"packages\": [{}"),
            ("usr/local/share/spdx/b.json", BILL),
            ("usr/local/share/spdx/c.txt", "no bill"),
        ])
        .await;
        assert!(store.get_as::<SbomItem>("time").is_some());
    }
}
