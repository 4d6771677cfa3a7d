//! Every component of an image by name and version: the content of the bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_image::sbom::Component;
use corten_kernel::CONFIG_DIR;
use corten_kernel::source::SourceLock;
use corten_rootfs::licences::notice;
use corten_rootfs::{go, images, libkmod, rust};
use corten_steps::arch::Arch;
use corten_steps::error::Result;
use corten_steps::lock::{Lock, Package, SOURCE};
use corten_steps::tool::Tool;
use serde_json::Value;

/// The name of Go's library among the Go modules of a bill of materials.
pub const LIBRARY: &str = "stdlib";

/// The purposes of packages that the image has files or linked code of.
pub const PURPOSES: [&str; 3] = ["rootfs", "boot", "std"];

/// A component, and where its licence stands.
#[derive(Debug, Clone)]
pub struct Part {
    /// The component; its licence if that is known without a file.
    pub component: Component,
    /// Where its licence stands.
    pub licence: Licence,
}

/// Where the licence of a component stands.
#[derive(Debug, Clone)]
pub enum Licence {
    /// In the copyright file of this Debian package.
    Package(Package),
    /// In the source archive of libkmod.
    Source,
    /// In files below the directory of the sources, which may have authors.
    Directory(PathBuf, Vec<String>),
    /// In the file of this repository.
    Ours,
    /// In the list of SPDX: the component brings no text.
    Spdx,
}

/// The Debian packages that files of the image come from.
pub fn debian(lock: &Lock, arch: Arch) -> Vec<Part> {
    let debian = arch.names().debian;
    let of = |purpose| lock.packages(purpose, debian).map(package);
    let mut found: Vec<Part> = PURPOSES.into_iter().flat_map(of).collect();
    let sources = lock.packages(libkmod::PURPOSE, SOURCE).map(package);
    found.extend(sources.map(|part| Part {
        licence: Licence::Source,
        ..part
    }));
    found
}

/// The Debian packages of container images; `has` tells whether an image contains files of a
/// package.
pub fn of_packages(lock: &Lock, arch: Arch, has: impl Fn(&str) -> bool) -> Vec<Part> {
    let debian = arch.names().debian;
    lock.packages("rootfs", debian)
        .chain(lock.packages(images::PURPOSE, debian))
        .filter(|package| has(&package.name))
        .map(package)
        .collect()
}

fn package(package: &Package) -> Part {
    let component = Component {
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
    };
    Part {
        licence: Licence::Package(package.clone()),
        component,
    }
}

/// The kernel.
pub fn kernel(source: &Path) -> Result<Part> {
    let lock = SourceLock::read(&source.join(CONFIG_DIR))?.kernel;
    let package = lock.package();
    let component = Component {
        name: "linux".into(),
        supplier: "Organization: Debian".into(),
        licence: Some("GPL-2.0-only WITH Linux-syscall-note".into()),
        purl: format!(
            "pkg:deb/debian/{}@{}?arch=source",
            package.name, package.version
        ),
        version: package.version,
        sha256: Some(lock.tarball_sha256),
    };
    Ok(Part {
        component,
        licence: Licence::Spdx,
    })
}

/// The crates linked into our programs, from `cargo metadata`, without build and test dependencies.
/// cargo asks `rustc` about the target.
pub fn crates(source: &Path, arch: Arch, rustc: &Path) -> Result<Vec<Part>> {
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
    let packages: BTreeMap<String, Value> = list(&metadata, "packages")
        .into_iter()
        .map(|package| (text(&package, "id"), package))
        .collect();
    let linked = linked(&metadata, &packages);
    let found = linked.iter().filter_map(|id| packages.get(id));
    found.map(a_crate).collect()
}

/// The ids of the programs' packages, and of all that are linked into them.
fn linked(metadata: &Value, packages: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let nodes: BTreeMap<String, Value> =
        list(metadata.get("resolve").unwrap_or(&Value::Null), "nodes")
            .into_iter()
            .map(|node| (text(&node, "id"), node))
            .collect();
    let mut wanted: Vec<String> = packages
        .iter()
        .filter(|(_, p)| is_ours(p) && rust::packages().any(|name| name == text(p, "name")))
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
    linked
}

/// A crate by its package in the metadata.
fn a_crate(package: &Value) -> Result<Part> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let manifest = PathBuf::from(text(package, "manifest_path"));
    let directory = manifest.parent().unwrap_or(Path::new("")).to_owned();
    let authors = list(package, "authors").into_iter();
    let authors = authors
        .filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect();
    let (supplier, licence) = match is_ours(package) {
        true => ("Organization: Corten", Licence::Ours),
        false => ("NOASSERTION", Licence::Directory(directory, authors)),
    };
    let declared = package.get("license").and_then(Value::as_str);
    let declared = declared.map(notice::canonical).transpose();
    let component = Component {
        purl: format!("pkg:cargo/{name}@{version}"),
        supplier: supplier.into(),
        licence: declared.with_context(|| format!("reading the licence of the crate {name}"))?,
        sha256: None,
        name,
        version,
    };
    Ok(Part { component, licence })
}

fn is_ours(package: &Value) -> bool {
    package.get("source").is_none_or(Value::is_null)
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    let found = value.get(key).and_then(Value::as_array);
    found.cloned().unwrap_or_default()
}

fn text(value: &Value, key: &str) -> String {
    let found = value.get(key).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// The Go modules in Go programs, as `go version -m` reads them from the files, and Go's library.
/// `modules` is the directory of fetched modules.
pub fn go_modules(lock: &Lock, go: &Path, programs: &Path, modules: &Path) -> Result<Vec<Part>> {
    let output = Tool::new(go)
        .args(["version", "-m"])
        .arg(programs)
        .output()?;
    let debian = Arch::BUILD.names().debian;
    // The compiler's package brings the copyright file of the library, too.
    let package = lock.packages("go", debian).next();
    let found = parse_go(&String::from_utf8_lossy(&output));
    let part = |(name, version): (String, String)| Part {
        licence: match &package {
            Some(package) if name == LIBRARY => Licence::Package((*package).clone()),
            _ => Licence::Directory(modules.join(go::directory(&name, &version)), Vec::new()),
        },
        component: Component {
            purl: format!("pkg:golang/{name}@{version}"),
            supplier: "NOASSERTION".into(),
            licence: None,
            sha256: None,
            name,
            version,
        },
    };
    Ok(found.into_iter().map(part).collect())
}

/// Names and versions in lines of the forms `PROGRAM: goVERSION` and `\tdep\tPATH\tVERSION\tSUM` (or
/// `mod`); a `=>` line replaces the module before it.
fn parse_go(output: &str) -> BTreeSet<(String, String)> {
    let mut found = Vec::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, version) = match (words.as_slice(), line.rsplit_once(": go")) {
            (_, Some((_, version))) if !line.starts_with('\t') => (LIBRARY, version),
            (["dep" | "mod", name, version, ..], _) => (*name, *version),
            (["=>", name, version, ..], _) => {
                found.pop();
                (*name, *version)
            }
            _ => continue,
        };
        found.push((name.to_owned(), version.to_owned()));
    }
    found.retain(|(_, version)| version != "(devel)");
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(output: &str) -> Vec<String> {
        let found = parse_go(output).into_iter();
        found
            .map(|(name, version)| format!("{name}@{version}"))
            .collect()
    }

    #[test]
    fn go_modules_are_listed_once_with_the_library() {
        let output = "/x/runc: go1.26.1\n\tpath\tcorten\n\tmod\tcorten/rootfs\t(devel)\t\n\
                      \tdep\texample.org/a\tv1.0.0\th1:x=\n/x/ctr: go1.26.1\n\
                      \tdep\texample.org/a\tv1.0.0\th1:x=\n\tbuild\t-trimpath=true\n";
        assert_eq!(parsed(output), ["example.org/a@v1.0.0", "stdlib@1.26.1"]);
    }

    #[test]
    fn replaced_go_module_is_listed_as_what_replaces_it() {
        let output = "/x/kubelet: go1.26.1\n\tdep\tk8s.io/api\tv0.0.0\n\
                      \t=>\tk8s.io/api\tv0.37.2\th1:x=\n\tdep\texample.org/a\tv1.0.0\th1:x=\n";
        let wanted = [
            "example.org/a@v1.0.0",
            "k8s.io/api@v0.37.2",
            "stdlib@1.26.1",
        ];
        assert_eq!(parsed(output), wanted);
    }
}
