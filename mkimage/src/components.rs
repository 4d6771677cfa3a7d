//! Every component of an image by name and version: the content of the bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use corten_image::sbom::Component;
use corten_kernel::CONFIG_DIR;
use corten_kernel::source::SourceLock;
use corten_rootfs::{images, libkmod, rust};
use corten_steps::arch::Arch;
use corten_steps::error::Result;
use corten_steps::lock::{Lock, SOURCE};
use corten_steps::tool::Tool;
use serde_json::Value;

/// The crates whose programs are in the image.
const PROGRAMS: [&str; 3] = ["init", "node", "udevd"];

/// The Debian packages that files of the image come from.
pub fn debian(lock: &Lock, arch: Arch) -> Vec<Component> {
    lock.packages("rootfs", arch.names().debian)
        .chain(lock.packages(libkmod::PURPOSE, SOURCE))
        .map(package)
        .collect()
}

/// The Debian packages of container images; `has` tells whether an image contains files of a
/// package.
pub fn of_packages(lock: &Lock, arch: Arch, has: impl Fn(&str) -> bool) -> Vec<Component> {
    let debian = arch.names().debian;
    lock.packages("rootfs", debian)
        .chain(lock.packages(images::PURPOSE, debian))
        .filter(|package| has(&package.name))
        .map(package)
        .collect()
}

fn package(package: &corten_steps::lock::Package) -> Component {
    Component {
        name: package.name.clone(),
        version: package.version.clone(),
        supplier: "Organization: Debian".into(),
        licence: None,
        purl: format!(
            "pkg:deb/debian/{}@{}?arch={}",
            package.name,
            package.version.replace('+', "%2B"),
            package.arch
        ),
        sha256: Some(package.sha256.clone()),
    }
}

/// The kernel.
pub fn kernel(source: &Path) -> Result<Component> {
    let lock = SourceLock::read(&source.join(CONFIG_DIR))?.kernel;
    let package = lock.package();
    Ok(Component {
        name: "linux".into(),
        supplier: "Organization: Debian".into(),
        licence: Some("GPL-2.0-only WITH Linux-syscall-note".into()),
        purl: format!(
            "pkg:deb/debian/{}@{}?arch=source",
            package.name, package.version
        ),
        version: package.version,
        sha256: Some(lock.tarball_sha256),
    })
}

/// The crates linked into our programs, from `cargo metadata`, without build and test dependencies.
/// cargo asks `rustc` about the target.
pub fn crates(source: &Path, arch: Arch, rustc: &Path) -> Result<Vec<Component>> {
    let output = rust::cargo(source, rustc)
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--filter-platform",
        ])
        .arg(arch.names().rust)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output).context("reading cargo's metadata")?;
    let list = |value: &Value, key: &str| {
        let found = value.get(key).and_then(Value::as_array);
        found.cloned().unwrap_or_default()
    };
    let text = |value: &Value, key: &str| {
        let found = value.get(key).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let nodes: BTreeMap<String, Value> =
        list(metadata.get("resolve").unwrap_or(&Value::Null), "nodes")
            .into_iter()
            .map(|node| (text(&node, "id"), node))
            .collect();
    let packages: BTreeMap<String, Value> = list(&metadata, "packages")
        .into_iter()
        .map(|package| (text(&package, "id"), package))
        .collect();
    let mut wanted: Vec<String> = packages
        .iter()
        .filter(|(_, p)| {
            p.get("source").is_none_or(Value::is_null)
                && PROGRAMS.contains(&text(p, "name").as_str())
        })
        .map(|(id, _)| id.clone())
        .collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if !linked.insert(id.clone()) {
            continue;
        }
        for dependency in nodes
            .get(&id)
            .map(|node| list(node, "deps"))
            .unwrap_or_default()
        {
            // A null kind is a normal dependency; those of kind "build" and "dev" are not linked.
            if list(&dependency, "dep_kinds")
                .iter()
                .any(|kind| kind.get("kind").is_none_or(Value::is_null))
            {
                wanted.push(text(&dependency, "pkg"));
            }
        }
    }
    let component = |id: &String| {
        let package = packages.get(id)?;
        let (name, version) = (text(package, "name"), text(package, "version"));
        Some(Component {
            purl: format!("pkg:cargo/{name}@{version}"),
            supplier: if package.get("source").is_none_or(Value::is_null) {
                "Organization: Corten"
            } else {
                "NOASSERTION"
            }
            .into(),
            licence: package
                .get("license")
                .and_then(Value::as_str)
                .map(str::to_owned),
            sha256: None,
            name,
            version,
        })
    };
    Ok(linked.iter().filter_map(component).collect())
}

/// The Go modules in the image's Go programs, as `go version -m` reads them from the files.
pub fn go_modules(go: &Path, programs: &Path) -> Result<Vec<Component>> {
    let output = Tool::new(go)
        .args(["version", "-m"])
        .arg(programs)
        .output()?;
    Ok(parse_go(&String::from_utf8_lossy(&output)))
}

/// Lines are `\tdep\tPATH\tVERSION\tSUM` (or `mod`); a `=>` line replaces the module before it.
fn parse_go(output: &str) -> Vec<Component> {
    let mut modules = BTreeMap::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["dep" | "mod" | "=>", name, version, ..] = words.as_slice() {
            modules.insert(((*name).to_owned(), (*version).to_owned()), ());
        }
    }
    let component = |(name, version): (String, String)| Component {
        purl: format!("pkg:golang/{name}@{version}"),
        supplier: "NOASSERTION".into(),
        licence: None,
        sha256: None,
        name,
        version,
    };
    modules
        .into_keys()
        .filter(|(_, version)| version != "(devel)")
        .map(component)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_modules_are_listed_once() {
        let output = "/x/runc: go1.26\n\tpath\tcorten\n\tmod\tcorten/rootfs\t(devel)\t\n\
                      \tdep\texample.org/a\tv1.0.0\th1:x=\n/x/ctr: go1.26\n\
                      \tdep\texample.org/a\tv1.0.0\th1:x=\n\tbuild\t-trimpath=true\n";
        let names: Vec<_> = parse_go(output).into_iter().map(|c| c.purl).collect();
        assert_eq!(names, ["pkg:golang/example.org/a@v1.0.0"]);
    }
}
